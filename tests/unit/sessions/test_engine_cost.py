"""What an event costs in the engine, and that it costs the same in a session of a million (`make faults`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from support.machine import slack
from support.profiles import FAULTS
from support.session_trials import MODEL_REF, arguments, asked, finished

from makai.core import session_events as ev
from makai.sessions.commands import ApproveCall, Command, Create, Report, Send
from makai.sessions.engine import decide
from makai.sessions.state import SessionState, fold

RecordMeasure: TypeAlias = Callable[[str, str, str], None]

SMALL = 1_000
LARGE = 1_000_000 if FAULTS else 100_000
WINDOW = 1_000
BAR_US = 25.0
"""20,000 events a second on one core leave 50 µs for everything; the engine needs less than half, on a busy machine."""


def commands() -> Iterator[Command]:
    """A session that works without end: runs with an approved call, and an answer of twenty deltas."""
    yield Create(now=1, model_ref=MODEL_REF)
    number = 0
    while True:
        number += 1
        yield Send(now=number, input_id=f"i{number}", content="go", client_msg_id=f"m{number}")
        for event in before_the_approval(f"c{number}"):
            yield Report(now=number, event=event, run_id="")
        yield ApproveCall(now=number, call_id=f"c{number}", by="web", scope="session")
        for event in after_the_approval(f"c{number}"):
            yield Report(now=number, event=event, run_id="")


def before_the_approval(call_id: str) -> list[ev.SessionEvent]:
    return [
        ev.TurnStarted(turn=1),
        ev.ToolCalled(call_id=call_id, name="shell", arguments_json=arguments(call_id)),
        ev.TurnEnded(turn=1, stop_reason="tool_use"),
        asked(call_id, grant="Bash(echo:*)"),
    ]


def after_the_approval(call_id: str) -> list[ev.SessionEvent]:
    return [
        ev.ToolStarted(call_id=call_id),
        finished(call_id),
        ev.TurnStarted(turn=2),
        *[ev.AssistantTextDelta(content_index=0, delta="word ")] * 20,
        ev.AssistantText(content_index=0, text="word " * 20),
        ev.TurnEnded(turn=2, stop_reason="end_turn"),
        ev.RunFinished(stop_reason="end_turn"),
    ]


class Session:
    """Lives through `commands`, once as the engine decides and once as a reader of its log folds."""

    def __init__(self) -> None:
        self._commands = commands()
        self._state = SessionState()
        self._folded = SessionState()

    def cost(self, at: int) -> tuple[float, float]:
        """µs per event of deciding and of evolving, in the best of five windows after event `at`."""
        self._live(at)
        windows = [self._live(self._state.last_event_id + WINDOW) for _ in range(5)]
        assert self._folded == self._state
        return min(decided for decided, _ in windows), min(evolved for _, evolved in windows)

    def _live(self, until: int) -> tuple[float, float]:
        first = self._state.last_event_id
        deciding = evolving = 0.0
        while self._state.last_event_id < until:
            command = self._next_command()
            began = time.process_time()
            decision = decide(self._state, command)
            decided = time.process_time()
            self._folded = fold(decision.events, self._folded)
            evolving += time.process_time() - decided
            deciding += decided - began
            self._state = decision.state
        events = max(1, self._state.last_event_id - first)
        return deciding / events * 1e6, evolving / events * 1e6

    def _next_command(self) -> Command:
        command = next(self._commands)
        if isinstance(command, Report) and self._state.run is not None:
            return Report(now=command.now, event=command.event, run_id=self._state.run.run_id)
        return command


@pytest.mark.alone
@pytest.mark.scaled
def test_an_event_costs_the_same_in_a_long_session(record_measure: RecordMeasure) -> None:
    session = Session()
    small, large = session.cost(SMALL), session.cost(LARGE)

    for what, before, after in zip(("decide", "evolve"), small, large, strict=True):
        measured = f"{before:.2f} µs at {SMALL:,}, {after:.2f} µs at {LARGE:,} events"
        record_measure(f"{what}, per event", f"flat, <= {BAR_US:.0f} µs", measured)
        # Generous, because the machine is shared: anything that grows with the session would be a hundredfold.
        assert after < 3 * before * slack() + 1
        assert after < BAR_US * slack()
