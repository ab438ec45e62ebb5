"""A session as the agent loop sees it: somebody who keeps its facts, and somebody who knows what it may do.

In: facts and calls of one run. Out: facts in the log; decisions of rules, modes and people. What a person has to decide
becomes a row with the exact arguments, their digest and a deadline before anyone can see the question (DESIGN §6).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from makai.core.errors import Aborted
from makai.core.session_events import (
    ApprovalDecided,
    ApprovalRequested,
    FileDiff,
    SessionEvent,
    ToolCalled,
    ToolStarted,
    UserMessage,
)
from makai.sessions.commands import RunTool
from makai.sessions.live import LiveSession
from makai.sessions.run_port import RunPort
from makai.tools.base import CallDescription
from makai.tools.permissions import Verdict

APPROVAL_S: Final = 24 * 60 * 60.0
"""How long a question waits for a person, unless the session's terms say otherwise."""

Judge: TypeAlias = Callable[[ToolCalled, CallDescription], Awaitable[Verdict]]
"""What rules, grants and the mode say about a call, now."""


class SessionHost:
    """`agent.host.AgentHost` for one run of a live session."""

    def __init__(
        self,
        session: LiveSession,
        port: RunPort,
        judge: Judge,
        clock: Callable[[], int],
        earlier: Mapping[str, ApprovalDecided] | None = None,
    ) -> None:
        """`earlier` are decisions from before the run was resumed."""
        self._session = session
        self._port = port
        self._judge = judge
        self._clock = clock
        self._earlier = earlier or {}

    async def emit(self, event: SessionEvent) -> None:
        """Keep a fact. The start of a tool and words that were read are waited for, everything else follows soon."""
        match event:
            case ToolStarted(call_id=call_id):
                effects = await self._session.report_durably(self._port.run_id, event)
                if not any(isinstance(effect, RunTool) and effect.call_id == call_id for effect in effects):
                    # The run was stopped meanwhile: a tool whose start is not in the log is never run.
                    raise Aborted("The run is over.")
            case UserMessage():
                await self._session.report_durably(self._port.run_id, event)
            case _:
                await self._session.report(self._port.run_id, event)

    async def decide(
        self, call: ToolCalled, description: CallDescription, diffs: tuple[FileDiff, ...]
    ) -> ApprovalDecided:
        """What becomes of a call."""
        # A call that is not in the state yet is on its way to the log: nothing is known about it.
        run = self._session.state.run
        known = run.calls.get(call.call_id) if run is not None else None
        status = known.status if known is not None else "called"
        if known is not None and known.request is not None and known.request.diffs != diffs:
            return self._outdated(call, status)
        if call.call_id in self._earlier:
            return self._earlier[call.call_id]
        if status == "called":
            verdict = await self._judge(call, description)
            if verdict.decision != "ask":
                return await self._decided(call, verdict)
            return await self._ask(call, description, diffs, verdict.grant)
        # It was asked before the server was restarted; somebody may even have decided since.
        return await self._answer(call.call_id)

    def _outdated(self, call: ToolCalled, status: str) -> ApprovalDecided:
        """The server was restarted, and the call would not do any more what a person was, or is being, asked about."""
        reason = "The files changed since this was asked. Look at them again."
        if status == "pending":
            self._session.withdraw(self._port.run_id, call.call_id, reason)
        return ApprovalDecided(call_id=call.call_id, decision="deny_continue", by="agent", reason=reason)

    def steering(self) -> Sequence[UserMessage]:
        """What users said since the last time."""
        return self._port.take_steering()

    def call_id(self, vendor_call_id: str) -> str:
        """An id that no call of this session has, nor one that is still on its way to the log."""
        return self._session.fresh_call_id(vendor_call_id)

    def position(self) -> int:
        """The last committed event."""
        return self._session.state.last_event_id

    def now(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()

    # ------------------------------------------------------------ decisions

    async def _decided(self, call: ToolCalled, verdict: Verdict) -> ApprovalDecided:
        decided = ApprovalDecided(
            call_id=call.call_id,
            decision="approve" if verdict.decision == "allow" else "deny_continue",
            by=verdict.by,
            reason=verdict.reason,
        )
        if verdict.decision == "deny" or verdict.by == "rule":
            await self._session.report(self._port.run_id, decided)
        return decided

    async def _ask(
        self, call: ToolCalled, description: CallDescription, diffs: tuple[FileDiff, ...], grant: str
    ) -> ApprovalDecided:
        seconds = self._session.state.terms.approval_s
        deadline = self._clock() + int((APPROVAL_S if seconds is None else seconds) * 1000)
        self._port.question(call.call_id)
        await self._session.report(
            self._port.run_id,
            ApprovalRequested(
                call_id=call.call_id,
                name=call.name,
                arguments_json=call.arguments_json,
                digest=digest(call),
                title=description.title,
                diffs=diffs,
                deadline_ms=deadline,
                grant=grant,
            ),
        )
        return await self._answer(call.call_id)

    async def _answer(self, call_id: str) -> ApprovalDecided:
        try:
            return await self._port.question(call_id)
        except asyncio.CancelledError:
            if not self._port.is_aborted:
                self._session.withdraw(self._port.run_id, call_id, "The call is no longer wanted.")
            raise
        finally:
            self._port.forget(call_id)


def digest(call: ToolCalled) -> str:
    """Binds a decision to exactly these arguments of exactly this tool."""
    return hashlib.sha256(f"{call.name}\0{call.arguments_json}".encode()).hexdigest()
