"""Collects the events and effects of a decision while the engine makes it. It knows how events are numbered and which
events go together (a run's start, its settlement, a decided call), but not when they are allowed. Every event is
applied as it is logged, so a step sees what the steps before it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import UUID, uuid5

import msgspec

from makai.core import session_events as ev
from makai.core.content import SessionPart, Text
from makai.core.messages import Message
from makai.core.usage import Usage
from makai.harness.base import StartRun
from makai.sessions.commands import AnyEffect, ResolveApproval, Send, Steer
from makai.sessions.state import Run, SessionState, UnfinishedCall, evolve

RUN_IDS = UUID("6d616b61-6900-5000-8000-72756e206964")
"""The namespace of run ids (RFC 9562 section 5.5)."""


OpenTextsOf: TypeAlias = Callable[[], tuple[ev.AssistantText | ev.Reasoning, ...]]
"""Gives the text and thinking blocks that have begun and are not whole, as the log should have them (`open_texts`)."""


class Decision(msgspec.Struct, frozen=True):
    events: tuple[ev.Logged, ...]
    effects: tuple[AnyEffect, ...]
    state: SessionState
    """After the events."""


class Draft:
    __slots__ = ("_effects", "_events", "_open_texts", "state", "ts")

    def __init__(self, state: SessionState, now: int, open_texts: OpenTextsOf = tuple) -> None:
        self.state = state
        self._open_texts = open_texts
        self.ts = max(now, state.last_ts)
        """Now, unless the clock went backwards: the time of a session never does."""
        self._events: list[ev.Logged] = []
        self._effects: list[AnyEffect] = []

    def decision(self) -> Decision:
        return Decision(tuple(self._events), tuple(self._effects), self.state)

    def log(self, event: ev.SessionEvent, run_id: str | None = None) -> None:
        logged = ev.Logged(event_id=self.state.last_event_id + 1, ts=self.ts, event=event, run_id=run_id)
        self._events.append(logged)
        self.state = evolve(self.state, logged)

    def effect(self, effect: AnyEffect) -> None:
        self._effects.append(effect)

    def start_run(
        self,
        input_id: str,
        content: str | tuple[SessionPart, ...],
        client_msg_id: str | None,
        terms: ev.RunTerms,
        history: tuple[Message, ...] = (),
    ) -> None:
        run_id = self.log_run_start(input_id, "input", terms)
        self._log_history(history, run_id)
        self.log(ev.UserInput(input_id=input_id, content=content, client_msg_id=client_msg_id), run_id)
        self.effect(StartRun(run_id=run_id, input_id=input_id, model_ref=self.state.model_ref))

    def answer_history(self, command: Send, retried_run_id: str = "") -> None:
        """Start a run without input."""
        answers = {"client_msg_id": command.client_msg_id, "retried_run_id": retried_run_id}
        run_id = self.log_run_start(command.input_id, "input", command.terms, input_id=command.input_id, **answers)
        self._log_history(command.history, run_id)
        self.effect(StartRun(run_id=run_id, input_id=command.input_id, model_ref=self.state.model_ref))

    def _log_history(self, history: tuple[Message, ...], run_id: str) -> None:
        for message in history:
            self.log(ev.HistoryMessage(message=message), run_id)

    def log_run_start(self, seed: str, purpose: ev.RunPurpose, terms: ev.RunTerms | None = None, **answers: Any) -> str:
        """Open a run whose id follows from its number and the unique `seed`; `answers` are fields of the event."""
        number = self.state.run_counter + 1
        run_id = str(uuid5(RUN_IDS, f"{number}:{seed}"))
        started = ev.RunStarted(
            run_number=number,
            model_ref=self.state.model_ref,
            purpose=purpose,
            terms=terms or ev.RunTerms(),
            without_turns=not self.state.capabilities.has_turns,
            **answers,
        )
        self.log(started, run_id)
        self.log(ev.RunStatusChanged(status="starting"), run_id)
        return run_id

    def start_waiting(self) -> None:
        """Start the next run when input waits. Steering input goes first: it was meant for a run before."""
        waiting = self.state.waiting
        if not waiting:
            return
        first = next((other for other in waiting if other.delivery == "steer"), waiting[0])
        self.start_run(first.input_id, first.content, first.client_msg_id, first.terms)
        if self.state.run is not None:
            self.steer_waiting(self.state.run.run_id)

    def steer_waiting(self, run_id: str) -> None:
        """Hand every steering input that waits to this run."""
        for waiting in self.state.waiting if self.state.capabilities.steer else ():
            if waiting.delivery == "steer":
                self.effect(Steer(run_id=run_id, input_id=waiting.input_id, content=waiting.content))

    def decide_call(self, run_id: str, decided: ev.ApprovalDecided) -> None:
        """Log a decision, resolve the wait for it, and continue the run when it was the last one."""
        self.log(decided, run_id)
        self.effect(ResolveApproval(run_id=run_id, decided=decided))
        run = self.state.run
        if run is not None and run.status == "awaiting_approval" and not run.pending():
            self.log(ev.RunStatusChanged(status="running"), run_id)

    def finish_call(self, run_id: str, call: UnfinishedCall, why: str) -> None:
        """Close a call whose tool will not answer any more."""
        is_started = call.status == "started"
        content = (Text(text=why),)
        self.log(ev.ToolFinished(call_id=call.call_id, content=content, is_error=True, interrupted=is_started), run_id)

    def drop_call(self, run_id: str, call: UnfinishedCall, when: str) -> None:
        """Close a call that its agent will not ask about or finish any more, while the run continues."""
        if call.status == "pending":
            withdrawn = ev.ApprovalDecided(call_id=call.call_id, decision="deny_continue", by="run_ended", reason=when)
            self.decide_call(run_id, withdrawn)
        self._end_call(run_id, call, when)

    def _end_call(self, run_id: str, call: UnfinishedCall, when: str) -> None:
        if call.status == "started":
            self.finish_call(run_id, call, f"Interrupted: {when} while this tool ran; what it did is unknown.")
        else:
            self.finish_call(run_id, call, f"Not run: {when} before this tool started.")

    def log_open_texts(self, run_id: str) -> None:
        for text in self._open_texts():
            self.log(text, run_id)

    def log_abort(self, run_id: str, by: str, reason: str, token: str = "") -> None:
        self.log_open_texts(run_id)
        self.log(ev.RunStatusChanged(status="aborting"), run_id)
        self.log(ev.RunAborted(by=by, reason=reason, token=token), run_id)

    def settle(self, run: Run, terminal: ev.RunFinished | ev.RunFailed) -> None:
        """End the run: close what is open, log the end once, and start what waits. A run that was being aborted ends as
        aborted, however its agent ended. A terminal without usage gets the sum of the run's turns."""
        if run.status == "aborting":
            turns = terminal.turns if isinstance(terminal, ev.RunFinished) else 0
            terminal = ev.RunFinished(stop_reason="aborted", usage=terminal.usage, turns=turns)
        elif isinstance(terminal, ev.RunFinished) and terminal.stop_reason == "aborted":
            self.log_abort(run.run_id, by="agent", reason="")
        is_failure = isinstance(terminal, ev.RunFailed)
        if is_failure:
            self.log_open_texts(run.run_id)
        for call in run.calls.values():
            if call.status == "pending":
                denied = ev.ApprovalDecided(call_id=call.call_id, decision="deny_abort", by="run_ended")
                self.log(denied, run.run_id)
            self._end_call(run.run_id, call, "the run failed" if is_failure else "the run was over")
        if run.turn_open:
            self.log(ev.TurnEnded(turn=run.turn, stop_reason="error" if is_failure else "aborted"), run.run_id)
        if run.status not in ("finished", "error"):
            self.log(ev.RunStatusChanged(status="error" if is_failure else "finished"), run.run_id)
        if terminal.usage == Usage() and self.state.run is not None:
            terminal = msgspec.structs.replace(terminal, usage=self.state.run.usage)
        self.log(terminal, run.run_id)
        self.start_waiting()
