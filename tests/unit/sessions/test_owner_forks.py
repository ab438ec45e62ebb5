"""A fork is a copy that is nobody's run and nobody's permission: those stay with the session they were given to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.live_sessions import SCENARIO_MODEL, decoded, desk, owned_sessions
from support.session_trials import Trial

from makai.core.session_events import ApprovalDecided, AssistantTextDelta, RunFinished
from makai.sessions.log.base import Pending
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import ForkSession, GetState
from makai.sessions.state import fold


class Witness(MemoryLog):
    """Knows where every append ended: there a process may die."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[str, int]] = []

    async def append(
        self, session_id: str, events: Sequence[Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        numbers = await super().append(session_id, events, expected_last, generation)
        self.ends.append((session_id, numbers[1]))
        return numbers


async def test_a_process_that_dies_while_it_forks_leaves_no_run_that_would_be_resumed(tmp_path: Path) -> None:
    log = Witness()
    async with owned_sessions(tmp_path, "say: Hello.\n---\npace: 2ms\nrepeat: 100000 word", log) as sessions:
        origin = await desk(sessions)
        await origin.send("Hi")
        await origin.until_settled()
        await origin.send("Go on")
        await origin.until(lambda logged: isinstance(logged.event, AssistantTextDelta))
        fork = await sessions.dispatch(ForkSession(origin=origin.session_id))
        events = decoded(await log.read_raw(fork))
        ends = [last for session_id, last in log.ends if session_id == fork]
        assert [fold(events[:end]).active_run for end in ends] == [None] * len(ends)
        assert events[-1].event == RunFinished(stop_reason="aborted")


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
