"""Which session a person means."""

from __future__ import annotations

import pytest

from makai.cli.session_selection import chosen_session, every_session, find_session
from makai.core.errors import InvalidRequest
from makai.core.session_events import SessionClosed, SessionCreated
from makai.protocols.makai.envelope import log_id_of
from makai.providers.runtime import ModelRuntime
from makai.sessions.log.base import Pending
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions


async def sessions_of(*named: tuple[str, str], cwd: str = "/a", ts: int = 1_000) -> tuple[OwnedSessions, MemoryLog]:
    """Sessions by id and title; a later one is newer."""
    log = MemoryLog()
    for offset, (session_id, title) in enumerate(named):
        created = SessionCreated(model_ref="scripted/scripted@echo", title=title, cwd=cwd)
        await log.append(session_id, [Pending(ts + offset, None, created)], 0)
    runtime = ModelRuntime({})
    return OwnedSessions(runtime.home, log, runtime), log


async def refusal(sessions: OwnedSessions, given: str) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequest) as refused:
        await find_session(sessions, given)
    return refused.value.message, refused.value.hint


@pytest.mark.parametrize("given", ["abc-1", "abc-1x", "ab", " abc-1x "])
async def test_a_whole_id_or_a_beginning_that_only_one_has_is_enough(given: str) -> None:
    sessions, _ = await sessions_of(("abc-1", "one") if given == "abc-1" else ("xyz", ""), ("abc-1x", "two"))

    found = await find_session(sessions, given)

    assert found.session_id == ("abc-1" if given == "abc-1" else "abc-1x")


async def test_a_beginning_that_several_have_lists_them() -> None:
    sessions, _ = await sessions_of(*((f"abc-{number}", "") for number in range(7)))

    assert await refusal(sessions, "abc") == (
        "7 sessions begin with 'abc': abc-6, abc-5, abc-4, abc-3, abc-2 and 2 more.",
        "Type more of the id.",
    )


async def test_the_name_that_a_program_gave_its_session_is_enough_where_no_id_begins_with_it() -> None:
    named = log_id_of("my run/1")
    sessions, _ = await sessions_of((named, "by a program"), ("abc-1", ""), (log_id_of("abc"), ""))

    assert (await find_session(sessions, "my run/1")).session_id == named
    assert await refusal(sessions, "abc") == (
        f"2 sessions begin with 'abc' or have this name: {log_id_of('abc')}, abc-1.",
        "Type more of the id.",
    )
    assert (await refusal(sessions, "my run/2"))[0] == "there is no session 'my run/2'."


async def test_a_typing_mistake_is_answered_with_what_was_meant() -> None:
    sessions, _ = await sessions_of(("3f2c9a1b-77", "Fix the parser"), ("99999999-00", ""))

    for given in ("3f2c9b1b", "fix the parsr"):
        assert await refusal(sessions, given) == (
            f"there is no session {given!r}.",
            "Did you mean 3f2c9a1b-77 (Fix the parser)? List every session: `makai sessions list --all`.",
        )


@pytest.mark.parametrize("given", ["", "zzz"])
async def test_nothing_close_points_to_the_list(given: str) -> None:
    sessions, _ = await sessions_of(("3f2c9a1b-77", "Fix the parser"))

    assert await refusal(sessions, given) == (
        f"there is no session {given!r}.",
        "List every session: `makai sessions list --all`.",
    )


async def test_without_any_session_the_first_step_is_named() -> None:
    sessions, _ = await sessions_of()

    _, hint = await refusal(sessions, "x")
    assert hint == 'You have none yet. Begin one with `makai run "…"` or `makai`.'


async def test_every_session_is_read_however_many_changed_at_once() -> None:
    sessions, log = await sessions_of(*((f"s-{number}", "") for number in range(700)))
    for number in range(700):
        created = SessionCreated(model_ref="scripted/scripted@echo", cwd="/b")
        await log.append(f"t-{number}", [Pending(5_000, None, created)], 0)

    assert len(await every_session(sessions)) == 1_400


async def test_the_newest_session_of_a_folder_that_can_go_on_is_continued() -> None:
    sessions, log = await sessions_of(("old", ""), ("new", ""), ("closed", ""))
    await log.append("closed", [Pending(9_000, None, SessionClosed())], 1)

    assert (await chosen_session(sessions, None, "/a")).session_id == "new"
    with pytest.raises(InvalidRequest, match="there is no session to continue in /b"):
        await chosen_session(sessions, None, "/b")
