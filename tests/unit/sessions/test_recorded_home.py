"""A home whose `sessions.db` an earlier version wrote opens, reads and continues unchanged.

`tests/fixtures/homes/2026-11-16` was written by the code of commit 4c388ae: every type of event, a fork, a pending
approval in an active run, a checkpoint, grants, trust, a deleted session and a type of event that no version knows.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from support.live_sessions import Desk, owned_sessions

from makai.core.session_events import Logged, RunFailed, RunFinished, SessionEvent
from makai.sessions.history import history
from makai.sessions.log import repair
from makai.sessions.log.base import EventLog, UnknownLogged, replay
from makai.sessions.log.opening import open_log
from makai.sessions.requests import GetState
from makai.sessions.state import fold, unpacked

RECORDED = Path(__file__).parents[2] / "fixtures" / "homes" / "2026-11-16"
EXPORT: dict[str, Any] = json.loads(gzip.decompress((RECORDED / "sessions.json.gz").read_bytes()))
SESSIONS = sorted(EXPORT["events"])


pytestmark = pytest.mark.sqlite_file("a recorded file")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "makai-home"
    folder.mkdir()
    (folder / "sessions.db").write_bytes(gzip.decompress((RECORDED / "sessions.db.gz").read_bytes()))
    return folder


@pytest.fixture
async def log(home: Path) -> AsyncIterator[EventLog]:
    opened = await open_log(home)
    yield opened
    await opened.close()


def plain(value: object) -> Any:
    """As JSON shows it."""
    return json.loads(msgspec.json.encode(value, enc_hook=list))


def as_recorded(value: Any, recorded: Any) -> Any:
    """Without the fields that later versions added."""
    if not isinstance(value, dict) or not isinstance(recorded, dict):
        return value
    return {name: as_recorded(value[name], old) for name, old in recorded.items() if name in value}


async def test_lists_grants_trust_and_approvals_are_what_they_were(log: EventLog) -> None:
    assert plain(await log.sessions()) == EXPORT["summaries"]
    assert plain(await log.grants(None)) == EXPORT["grants"]
    assert plain(await log.pending_approvals()) == EXPORT["approvals"]
    folders = ("/project/src", "/project/vendored/lib", "/elsewhere")
    assert [await log.is_trusted(folder) for folder in folders] == [True, False, False]


async def test_every_event_is_read_as_it_was_written(log: EventLog) -> None:
    found = {session_id: await log.read_raw(session_id) for session_id in SESSIONS}
    assert {
        session_id: [json.loads(record.line) for record in records] for session_id, records in found.items()
    } == EXPORT["events"]
    known = [logged.event async for logged in replay(log, "every-event") if isinstance(logged, Logged)]
    assert {type(event) for event in known} <= set(get_args(SessionEvent))
    assert len(known) == len(EXPORT["events"]["every-event"])
    unknown = [logged async for logged in replay(log, "future") if isinstance(logged, UnknownLogged)]
    assert [(logged.event_id, logged.type) for logged in unknown] == [(2, "from_the_future")]


@pytest.mark.proof("D9")
@pytest.mark.parametrize("session_id", SESSIONS)
async def test_sessions_fold_to_the_state_they_had(log: EventLog, session_id: str) -> None:
    state = fold([logged async for logged in replay(log, session_id)])
    expected = EXPORT["states"][session_id]
    # What was granted for always is kept beside the sessions alone since then, where it can be revoked.
    events = [logged["event"] for logged in EXPORT["events"][session_id]]
    always = {event["grant"] for event in events if event.get("scope") == "always"}
    expected = {**expected, "grants": [grant for grant in expected["grants"] if grant["rule"] not in always]}
    assert as_recorded(plain(state), expected) == expected
    assert history([logged async for logged in replay(log, session_id)]).items()


async def test_a_checkpoint_leads_to_the_same_state_as_all_events(log: EventLog) -> None:
    checkpoint = await log.checkpoint("finished")
    assert checkpoint is not None
    rest = [logged async for logged in replay(log, "finished", checkpoint.event_id)]
    assert fold(rest, unpacked(checkpoint.data)) == fold([logged async for logged in replay(log, "finished")])


async def test_sessions_continue_with_new_events(home: Path, tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hello again.") as sessions:
        before = len(EXPORT["events"]["finished"])
        client = Desk(sessions, "finished", before)
        assert isinstance(await client.run("Go on"), RunFinished | RunFailed)
        assert client.seen[0].event_id == before + 1
        waiting = await sessions.dispatch(GetState("waiting"))
        assert waiting.run is not None
        assert [call.call_id for call in waiting.run.pending()] == ["c1"]
    report = repair.check(home)
    assert report.problems == ()
