"""The sessions of a home, for commands: what goes wrong with the store says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.cli.session_access import in_words, is_ours, open_sessions
from makai.core.errors import HomeInUse, LogDamaged, StorageUnavailable
from makai.providers.runtime import ModelRuntime
from makai.sessions.requests import CreateSession, GetSession

HOME = Path("/home/ada/.makai")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (HomeInUse("In use.", pid=7), "Stop it (kill 7) and try again."),
        (HomeInUse("In use.", pid=None), "Stop it and try again."),
        (LogDamaged("Damaged.", session_id="s"), "Run `makai sessions repair`"),
        (StorageUnavailable("Cannot be read (file is not a database)."), "Run `makai sessions repair`"),
        (StorageUnavailable("Cannot be stored (attempt to write a readonly database)."), f"Make {HOME} writable"),
        (StorageUnavailable("x cannot be locked (Read-only file system)."), f"Make {HOME} writable"),
        (StorageUnavailable("Cannot be stored (disk is full).", hint="Make room."), "Make room."),
    ],
)
def test_a_store_that_refuses_says_what_to_do(error: StorageUnavailable, hint: str) -> None:
    told = in_words(error, HOME)

    assert told is error
    assert (told.hint or "").startswith(hint)


async def test_one_process_owns_the_sessions_and_others_reach_them_through_it(tmp_path: Path) -> None:
    async with (
        ModelRuntime({"MAKAI_HOME": str(tmp_path)}) as models,
        open_sessions(models=models) as owner,
        open_sessions(models=models) as other,
    ):
        session_id = await other.dispatch(CreateSession(model_ref="scripted/scripted@echo"))
        seen = await owner.dispatch(GetSession(session_id))

        assert (is_ours(owner), is_ours(other), seen is not None) == (True, False, True)
