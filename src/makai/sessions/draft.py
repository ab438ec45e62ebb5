"""A decision while it is being made.

In: a state, a time, and the steps the engine takes. Out: a `Decision`. It knows how events are numbered and which
events go together (a run's start, its settlement, a decided call), but not when they are allowed.

Every event is applied as it is logged, so a step sees what the steps before it did.
"""

from __future__ import annotations

from uuid import UUID, uuid5

import msgspec

from makai.core.content import Text, UserPart
from makai.core.session_events import (
    ApprovalDecided,
    Logged,
    RunAborted,
    RunFailed,
    RunFinished,
    RunPurpose,
    RunStarted,
    RunStatusChanged,
    RunTerms,
    SessionEvent,
    ToolFinished,
    TurnEnded,
    UserMessage,
)
from makai.core.usage import Usage
from makai.harness.base import StartRun
from makai.sessions.commands import AnyEffect, ResolveApproval, Steer
from makai.sessions.state import Call, Run, SessionState, evolve

RUN_IDS = UUID("6d616b61-6900-5000-8000-72756e206964")
"""The namespace of run ids (RFC 9562 section 5.5)."""


class Decision(msgspec.Struct, frozen=True):
    """What a command leads to."""

    events: tuple[Logged, ...]
    effects: tuple[AnyEffect, ...]
    state: SessionState
    """After the events."""


class Draft:
    """Collects events and effects."""

    __slots__ = ("_effects", "_events", "state", "ts")

    def __init__(self, state: SessionState, now: int) -> None:
        self.state = state
        self.ts = max(now, state.last_ts)
        """Now, unless the clock went backwards: the time of a session never does."""
        self._events: list[Logged] = []
        self._effects: list[AnyEffect] = []

    def decision(self) -> Decision:
        return Decision(tuple(self._events), tuple(self._effects), self.state)

    def log(self, event: SessionEvent, run_id: str | None = None) -> None:
        """One more event, of a run or of the session itself."""
        logged = Logged(event_id=self.state.last_event_id + 1, ts=self.ts, event=event, run_id=run_id)
        self._events.append(logged)
        self.state = evolve(self.state, logged)

    def effect(self, effect: AnyEffect) -> None:
        self._effects.append(effect)

    # ------------------------------------------------------------ how runs begin

    def start_run(
        self, input_id: str, content: str | tuple[UserPart, ...], client_msg_id: str | None, terms: RunTerms
    ) -> None:
        """A run that answers these words."""
        run_id = self.log_run_start(input_id, "input", terms)
        self.log(UserMessage(input_id=input_id, content=content, client_msg_id=client_msg_id), run_id)
        self.effect(StartRun(run_id=run_id, input_id=input_id, model_ref=self.state.model_ref))

    def log_run_start(self, input_id: str, purpose: RunPurpose, terms: RunTerms | None = None) -> str:
        number = self.state.run_counter + 1
        run_id = str(uuid5(RUN_IDS, f"{number}:{input_id}"))
        started = RunStarted(
            run_number=number, model_ref=self.state.model_ref, purpose=purpose, terms=terms or RunTerms()
        )
        self.log(started, run_id)
        self.log(RunStatusChanged(status="starting"), run_id)
        return run_id

    def start_waiting(self) -> None:
        """Start the next run when someone waits for one. Steering words go first: they were meant for a run before."""
        waiting = self.state.waiting
        if not waiting:
            return
        first = next((other for other in waiting if other.delivery == "steer"), waiting[0])
        self.start_run(first.input_id, first.content, first.client_msg_id, first.terms)
        if self.state.run is not None:
            self.steer_waiting(self.state.run.run_id)

    def steer_waiting(self, run_id: str) -> None:
        """Hand every steering input that waits to this run."""
        for waiting in self.state.waiting:
            if waiting.delivery == "steer":
                self.effect(Steer(run_id=run_id, input_id=waiting.input_id, content=waiting.content))

    # ------------------------------------------------------------ how calls go on

    def decide_call(self, run_id: str, decided: ApprovalDecided) -> None:
        """Log a decision, tell who waits for it, and let the run go on when it was the last one."""
        self.log(decided, run_id)
        self.effect(ResolveApproval(run_id=run_id, decided=decided))
        run = self.state.run
        if run is not None and run.status == "awaiting_approval" and not run.pending():
            self.log(RunStatusChanged(status="running"), run_id)

    def finish_call(self, run_id: str, call: Call, why: str) -> None:
        """Close a call whose tool will not answer any more."""
        self.log(
            ToolFinished(
                call_id=call.call_id,
                content=(Text(text=why),),
                is_error=True,
                interrupted=call.status == "started",
            ),
            run_id,
        )

    # ------------------------------------------------------------ how runs end

    def log_abort(self, run_id: str, by: str, reason: str) -> None:
        self.log(RunStatusChanged(status="aborting"), run_id)
        self.log(RunAborted(by=by, reason=reason), run_id)

    def settle(self, run: Run, terminal: RunFinished | RunFailed) -> None:
        """End the run: close what is open, say so once, and start what waits.

        A run that was being aborted ends as aborted, however its loop ended. A terminal without usage gets the sum
        of the run's turns.
        """
        if run.status == "aborting":
            terminal = RunFinished(stop_reason="aborted", usage=terminal.usage)
        elif isinstance(terminal, RunFinished) and terminal.stop_reason == "aborted":
            self.log_abort(run.run_id, by="agent", reason="")
        is_failure = isinstance(terminal, RunFailed)
        self._close_calls(run, "the run failed" if is_failure else "the run was over")
        if run.turn_open:
            self.log(TurnEnded(turn=run.turn, stop_reason="error" if is_failure else "aborted"), run.run_id)
        if run.status not in ("finished", "error"):
            self.log(RunStatusChanged(status="error" if is_failure else "finished"), run.run_id)
        if terminal.usage == Usage() and self.state.run is not None:
            terminal = msgspec.structs.replace(terminal, usage=self.state.run.usage)
        self.log(terminal, run.run_id)
        self.start_waiting()

    def _close_calls(self, run: Run, when: str) -> None:
        for call in run.calls.values():
            if call.status == "pending":
                denied = ApprovalDecided(call_id=call.call_id, decision="deny_abort", by="run_ended")
                self.log(denied, run.run_id)
            if call.status == "started":
                self.finish_call(run.run_id, call, f"Interrupted: {when} while this tool ran; what it did is unknown.")
            else:
                self.finish_call(run.run_id, call, f"Not run: {when} before this tool started.")
