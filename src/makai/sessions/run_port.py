"""The port of a run, as its session implements it: facts go into the log, questions to people, answers back to the run.
The engine's effects arrive here (`abort`, `steer`, `resolve`) and wake the harness that waits for them. Every question
is in the log, with the exact arguments, their digest and a deadline, before a client can see it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from makai.core import session_events as ev
from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import Aborted, MakaiError
from makai.core.lent_variables import NO_CALLER
from makai.core.sanitize import sanitize
from makai.harness.base import PlacedMessage, Question, Settlement, ToolAnswer, ToolRequest
from makai.sessions.commands import AnyEffect, ResolveApproval, RunTool, Steer
from makai.sessions.conversation import conversation
from makai.sessions.log.base import EventLog, Pending, replay
from makai.sessions.log.encoding import encoded
from makai.sessions.state import Run, SessionState

APPROVAL_S: Final = 24 * 60 * 60.0
"""How long a question waits for a person, unless the session's terms say otherwise."""

_NEAR: Final = 50


class PortSession(Protocol):
    """What a port needs of its session; `live.LiveSession` has it."""

    session_id: str
    state: SessionState
    log: EventLog
    clock: Callable[[], int]
    execute: Callable[[ToolRequest], Awaitable[ToolAnswer | None]]

    async def report(self, run_id: str, event: ev.SessionEvent) -> None: ...
    def report_delta(self, run_id: str, event: ev.Delta) -> bool: ...
    async def report_durably(self, run_id: str, event: ev.SessionEvent) -> tuple[AnyEffect, ...]: ...
    def withdraw(self, run_id: str, call_id: str, reason: str) -> None: ...
    def fresh_call_id(self, vendor_call_id: str) -> str: ...


class SessionRunPort:
    """`harness.base.RunPort` for one run of a live session."""

    def __init__(self, session: PortSession, run_id: str, environ: Mapping[str, str] = NO_CALLER) -> None:
        self.session_id = session.session_id
        self.run_id = run_id
        self.environ = environ
        self.is_aborted = False
        self.failure: MakaiError | None = None
        """Why a fact of the run could not be kept. Nothing that follows it is kept, except for the end of the run."""
        self.call_id = session.fresh_call_id
        self.now = time.monotonic
        self.execute = session.execute
        self.emit_delta = partial(session.report_delta, run_id)
        self._session = session
        self._stopped = asyncio.Event()
        self._steered: list[ev.UserInput] = []
        self._has_steering = asyncio.Event()
        self._questions: dict[str, asyncio.Future[ev.ApprovalDecided]] = {}
        self._earlier: dict[str, ev.ApprovalDecided] = {}
        """Decisions from before the run was resumed."""

    def unfinished(self) -> Settlement:
        """The end of a run that did not say how it ended."""
        if self.is_aborted or self.failure is not None:
            return ev.RunFinished(stop_reason="aborted")
        message = "The agent ended without an outcome."
        return ev.RunFailed(code="internal_error", message=message, hint="Please report this.")

    def abort(self) -> None:
        self.is_aborted = True
        self._stopped.set()

    def fail(self, error: MakaiError) -> None:
        """Stop the work, also when it waits for the answer to a question that was not kept."""
        if self.failure is None:
            self.failure = error
        self._stopped.set()

    async def until_stopped(self, work: asyncio.Task[None]) -> None:
        """Wait for the end of the work, or for a reason to end it."""
        stop = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    def steer(self, effect: Steer) -> None:
        self._steered.append(ev.UserInput(input_id=effect.input_id, content=effect.content))
        self._has_steering.set()

    def resolve(self, effect: ResolveApproval) -> None:
        """Wake the wait for a decision; a run that has just been resumed may not wait yet."""
        answer = self.question(effect.decided.call_id)
        if not answer.done():
            answer.set_result(effect.decided)

    def question(self, call_id: str) -> asyncio.Future[ev.ApprovalDecided]:
        """The decision about a call, when it comes. Made before the question is logged, so none can be missed."""
        answer = self._questions.get(call_id)
        if answer is None:
            answer = self._questions[call_id] = asyncio.get_running_loop().create_future()
        return answer

    @property
    def session(self) -> SessionState:
        return self._session.state

    @property
    def run(self) -> Run:
        run = self._session.state.run
        assert run is not None, "the engine starts a run before its effect"
        return run

    async def emit(self, event: ev.SessionEvent) -> None:
        event = sanitize(event)
        match event:
            case ev.ToolStarted(call_id=call_id):
                effects = await self._session.report_durably(self.run_id, event)
                if not any(isinstance(effect, RunTool) and effect.call_id == call_id for effect in effects):
                    # The run was stopped meanwhile: a tool whose start is not in the log is never run.
                    raise Aborted("The run is over.")
            case ev.UserInput():
                await self._session.report_durably(self.run_id, event)
            case _:
                await self._session.report(self.run_id, event)

    def check_storable(self, event: ev.SessionEvent) -> None:
        encoded([Pending(0, None, event)])

    def steering(self) -> Sequence[ev.UserInput]:
        taken = tuple(self._steered)
        self._steered.clear()
        self._has_steering.clear()
        return taken

    async def until_steered(self) -> None:
        await self._has_steering.wait()

    def position(self) -> int:
        return self._session.state.last_event_id

    def elapsed_s(self) -> float:
        return max(self._session.clock() - self.run.started_at, 0) / 1000

    async def grants(self) -> list[tuple[str, bool]]:
        state = self._session.state
        stored = await self._session.log.grants(state.cwd or "")  # None would mean those of all folders
        return [*((grant.rule, grant.allow) for grant in stored), *((g.rule, g.allow) for g in state.grants)]

    async def input(self, input_id: str) -> ev.UserInput:
        for first in (max(self.position() - _NEAR, 0), 0):  # it is among the last facts when a run starts
            async for logged in replay(self._session.log, self.session_id, first, deltas=False):
                event = logged.event if isinstance(logged, ev.Logged) else None
                if isinstance(event, ev.UserInput) and event.input_id == input_id:
                    return event
        raise AssertionError("the input of a run is logged before the run starts")

    async def conversation(self) -> tuple[PlacedMessage, ...]:
        through = self._session.state.compacted_through
        return (await conversation(self._session.log, self.session_id, summary=through)).placed()

    async def open_calls(self) -> tuple[ev.ToolCalled, ...]:
        run = self.run
        calls: dict[str, ev.ToolCalled] = {}
        if run.calls:
            first = min(call.event_id for call in run.calls.values())
            async for logged in replay(self._session.log, self.session_id, first - 1, deltas=False):
                event = logged.event if isinstance(logged, ev.Logged) else None
                if isinstance(event, ev.ToolCalled):
                    calls[event.call_id] = event
                elif isinstance(event, ev.ApprovalDecided):
                    self._earlier[event.call_id] = event
        return tuple(calls[call_id] for call_id in run.calls if call_id in calls)

    async def decide(self, question: Question) -> ev.ApprovalDecided:
        question = sanitize(question)
        call = question.call
        seconds = self._session.state.terms.approval_s
        self.question(call.call_id)
        await self._session.report(
            self.run_id,
            ev.ApprovalRequested(
                call_id=call.call_id,
                name=call.name,
                arguments_json=call.arguments_json,
                digest=digest(call, question.confinement),
                title=question.title,
                diffs=question.diffs,
                deadline_ms=self._session.clock() + int((APPROVAL_S if seconds is None else seconds) * 1000),
                grant=question.grant,
                options=question.options,
                confinement=question.confinement,
                grants=question.grants,
            ),
        )
        return await self._answer(call.call_id)

    def asked_confinement(self, call_id: str) -> Confinement | None:
        known = self.run.calls.get(call_id)
        return None if known is None or known.request is None else known.request.confinement

    async def earlier_decision(
        self,
        call: ev.ToolCalled,
        diffs: tuple[ev.FileDiff, ...] = (),
        confinement: Confinement = SESSION_SANDBOX,
    ) -> ev.ApprovalDecided | None:
        confinement = sanitize(confinement)
        known = self.run.calls.get(call.call_id)  # None: the call is on its way to the log
        asked = None if known is None else known.request
        if known is not None and asked is not None and (asked.diffs, asked.confinement) != (diffs, confinement):
            reason = "The files changed since this was asked. Look at them again."
            if known.status == "pending":
                self._session.withdraw(self.run_id, call.call_id, reason)
            return ev.ApprovalDecided(call_id=call.call_id, decision="deny_continue", by="agent", reason=reason)
        if call.call_id in self._earlier:
            return self._earlier[call.call_id]
        if known is None or known.status == "called":
            return None
        return await self._answer(call.call_id)

    async def _answer(self, call_id: str) -> ev.ApprovalDecided:
        try:
            return await self.question(call_id)
        except asyncio.CancelledError:
            if not self.is_aborted:
                self._session.withdraw(self.run_id, call_id, "The call is no longer wanted.")
            raise
        finally:
            self._questions.pop(call_id, None)


def digest(call: ev.ToolCalled, confinement: Confinement) -> str:
    """Binds a decision to exactly these arguments of exactly this tool, and to what it opens for them."""
    opened = f"\0{msgspec.json.encode(confinement).decode()}" if confinement.opens else ""
    return hashlib.sha256(f"{call.name}\0{call.arguments_json}{opened}".encode()).hexdigest()
