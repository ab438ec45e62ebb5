"""A fork is a copy that is unknown's run and unknown's permission: those stay with the session they were given to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.live_sessions import SCENARIO_MODEL, decoded, new_session, owned_sessions
from support.session_trials import Trial
from support.troubled_log import TroubledLog

from makai.core.errors import SessionRefused
from makai.core.session_events import ApprovalDecided, AssistantTextDelta, RunFinished, SessionTerms
from makai.sessions.log.base import Pending
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession, ForkSession, GetState
from makai.sessions.state import fold


class Witness(TroubledLog):
    """Knows where every append ended: there a process may die."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[str, int]] = []

    async def stored(self, session_id: str, events: Sequence[Pending], last: int) -> None:
        self.ends.append((session_id, last))


async def test_a_process_that_dies_while_it_forks_leaves_no_run_that_would_be_resumed(tmp_path: Path) -> None:
    log = Witness()
    async with new_session(tmp_path, "say: Hello.\n---\npace: 2ms\nrepeat: 100000 word", log) as (sessions, origin):
        await origin.run("Hi")
        await origin.send("Go on")
        await origin.until(lambda logged: isinstance(logged.event, AssistantTextDelta))
        fork = await sessions.dispatch(ForkSession(origin=origin.session_id))
        events = decoded(await log.read_raw(fork))
        ends = [last for session_id, last in log.ends if session_id == fork]
        assert [fold(events[:end]).active_run for end in ends] == [None] * len(ends)
        assert events[-1].event == RunFinished(stop_reason="aborted")


TERMS = SessionTerms(builtin_tools=True, system="Be brief.", sandbox="read-only")


async def test_a_fork_with_another_model_keeps_everything_else(tmp_path: Path) -> None:
    cwd, root = tmp_path / "project", tmp_path / "data"
    cwd.mkdir()
    root.mkdir()
    async with owned_sessions(tmp_path, "say: Hello.", MemoryLog()) as sessions:
        wanted = CreateSession(
            model_ref=SCENARIO_MODEL, mode="plan", cwd=str(cwd), roots=(str(root),), title="Plan it", terms=TERMS
        )
        origin = await sessions.dispatch(wanted)
        fork = await sessions.dispatch(ForkSession(origin=origin, model_ref="scripted/echo"))
        state = await sessions.dispatch(GetState(fork))

        assert (state.model_ref, state.title) == ("scripted/echo", "Plan it (fork)")
        assert (state.mode, state.cwd, state.roots, state.terms) == ("plan", str(cwd), (str(root),), TERMS)


async def test_a_fork_takes_what_it_names_also_when_that_is_empty(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hello.", MemoryLog()) as sessions:
        terms = SessionTerms(system="Be brief.")
        origin = await sessions.dispatch(CreateSession(model_ref=SCENARIO_MODEL, title="Old", terms=terms))
        changes = ForkSession(origin=origin, session_id="mine", mode="plan", title="", terms=SessionTerms())
        fork = await sessions.dispatch(changes)
        state = await sessions.dispatch(GetState(fork))

        assert (fork, state.mode, state.title, state.terms) == ("mine", "plan", "", SessionTerms())
        assert state.model_ref == SCENARIO_MODEL
        with pytest.raises(SessionRefused, match="of this id already"):
            await sessions.dispatch(changes)


async def test_a_permission_that_was_taken_back_does_not_come_back_with_a_fork(tmp_path: Path) -> None:
    log = MemoryLog()
    session = Trial().create()
    session.send("Hi")
    session.call("c1", "c2", ask=False)
    rule = "Bash(git log:*)"
    granted = [
        ApprovalDecided(call_id="c1", decision="approve", by="me", scope="session", grant=rule),
        ApprovalDecided(call_id="c2", decision="approve", by="me", scope="always", grant=rule),
    ]
    pending = [Pending(logged.ts, logged.run_id, logged.event) for logged in session.log]
    run_id = session.run.run_id
    await log.append("origin", [*pending, *(Pending(2_000, run_id, decided) for decided in granted)], 0)
    (grant,) = await log.grants("")
    await log.revoke(grant.folder, grant.rule)
    async with owned_sessions(tmp_path, "say: Hello.", log) as sessions:
        fork = await sessions.dispatch(ForkSession(origin="origin", model_ref=SCENARIO_MODEL))
        assert await log.grants("") == []
        assert (await sessions.dispatch(GetState(fork))).grants == ()
