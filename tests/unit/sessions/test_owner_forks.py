"""A fork is a copy that is unknown's run and unknown's permission: those stay with the session they were given to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.live_sessions import SCENARIO_MODEL, decoded, new_session, owned_sessions, refused
from support.session_trials import Trial
from support.troubled_log import TroubledLog

from makai.core.errors import SessionRefused
from makai.core.session_events import (
    ApprovalDecided,
    AssistantText,
    AssistantTextDelta,
    Compacted,
    Logged,
    RunFinished,
    SessionTerms,
    ToolFinished,
    UserInput,
)
from makai.sessions.commands import Compact
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


def said(events: Sequence[Logged]) -> list[str]:
    """What a reader sees of a log: who said what, and how runs ended."""
    found = []
    for logged in events:
        match logged.event:
            case UserInput(content=str(text)):
                found.append(f"you: {text}")
            case AssistantText(text=text):
                found.append(f"model: {text}")
            case Compacted() | RunFinished() | ToolFinished():
                found.append(type(logged.event).__name__)
    return found


def place_of(events: Sequence[Logged], text: str) -> int:
    return next(one.event_id for one in events if isinstance(one.event, UserInput) and one.event.content == text)


async def test_a_fork_before_a_message_has_exactly_what_was_said_before_it(tmp_path: Path) -> None:
    """Also where the message was queued, steered a run, or came after a summary."""
    log = MemoryLog()
    trial = Trial().create()
    trial.send("one")
    trial.send("two", "queue")
    trial.answer("First.")
    trial.call("c1")
    trial.run_tool("c1")
    trial.send("careful", "steer")
    trial.report(UserInput(input_id="input-careful", content="careful"))
    trial.answer("Second.", turn=2)
    trial.do(Compact(now=trial.now, input_id="k"))
    trial.report(
        Compacted(summary="So far.", through=trial.state.last_event_id - 2), RunFinished(stop_reason="end_turn")
    )
    trial.send("three")
    trial.answer("Third.")
    pending = [Pending(logged.ts, logged.run_id, logged.event) for logged in trial.log]
    await log.append("origin", pending, 0)
    whole = said(trial.log)
    async with owned_sessions(tmp_path, "say: Hello.", log) as sessions:

        async def before(text: str) -> list[str]:
            wanted = ForkSession(origin="origin", before=place_of(trial.log, text), model_ref=SCENARIO_MODEL)
            events = decoded(await log.read_raw(await sessions.dispatch(wanted)))
            assert fold(events).active_run is None
            return said(events)

        assert await before("one") == []
        assert await before("two") == whole[: whole.index("you: two")]
        assert await before("careful") == [*whole[: whole.index("you: careful")], "RunFinished"]
        assert await before("three") == whole[: whole.index("you: three")]
        for wrong in (0, 1, place_of(trial.log, "two") - 1, 10_000):
            with refused("BAD_ARGUMENT"):
                await sessions.dispatch(ForkSession(origin="origin", before=wrong))
        with refused("BAD_ARGUMENT", "not both"):
            await sessions.dispatch(ForkSession(origin="origin", at=3, before=4))


async def test_a_conversation_that_the_agent_keeps_itself_is_not_branched(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hello.", MemoryLog()) as sessions:
        terms = SessionTerms(agent_session_id="theirs")
        wanted = CreateSession(model_ref="", harness="stub", cwd=str(tmp_path), terms=terms)
        origin = await sessions.dispatch(wanted)
        with refused("INVALID_COMMAND", "cannot be branched"):
            await sessions.dispatch(ForkSession(origin=origin))


@pytest.mark.parametrize(("title", "named"), [("Plan it", "Plan it (fork)"), ("x" * 500, f"{'x' * 493} (fork)")])
async def test_the_fork_of_a_fork_is_named_once_and_within_the_limit(tmp_path: Path, title: str, named: str) -> None:
    async with owned_sessions(tmp_path, "say: Hello.", MemoryLog()) as sessions:
        session_id = await sessions.dispatch(CreateSession(model_ref=SCENARIO_MODEL, title=title))
        for _ in range(2):
            session_id = await sessions.dispatch(ForkSession(origin=session_id))
        assert (await sessions.dispatch(GetState(session_id))).title == named
