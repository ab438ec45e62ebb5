"""Judges what a driven agent has makai do, as calls of makai's own tools `read`, `write` and `shell`.

The session's mode, rules, grants and protected files hold as for makai's own agent. The agent reports its calls itself,
so one that is simply allowed is not logged a second time; one that a person is asked about, or that a rule decides, is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.sanitize import sanitize
from makai.harness.base import Question, RunPort
from makai.harness.deciding import decider
from makai.tools.base import CallDescription, Tool, ToolOutcome, text_outcome
from makai.tools.file_errors import FileMissing
from makai.tools.permissions.judging import judge_call
from makai.tools.permissions.looking import LookingCalls
from makai.tools.permissions.rules import PermissionRules
from makai.wire import json_rpc, strict_json
from makai.wire.json_rpc_errors import RpcError

_NOT_NOW: Final = "Not allowed between two prompts. Ask again while a prompt runs."


class ServedCall:
    """One call that may run. Its block sets `outcome`, which is logged if the call is."""

    def __init__(self, fact: ev.ToolCalled, port: RunPort | None) -> None:
        self.fact = fact
        self.outcome = text_outcome("Done.")
        self._port = port
        self._is_logged = False

    async def log(self) -> None:
        """Log the call, before anything else is logged about it. `InvalidRequest` when it is too large for the log."""
        if self._port is not None and not self._is_logged:
            self._port.check_storable(self.fact)
            self._is_logged = True
            await self._port.emit(self.fact)

    async def start(self) -> None:
        if self._port is not None and self._is_logged:
            await self._port.emit(ev.ToolStarted(call_id=self.fact.call_id))

    async def finish(self, outcome: ToolOutcome) -> None:
        if self._port is None or not self._is_logged:
            return
        outcome = sanitize(outcome)
        call_id, is_error = self.fact.call_id, outcome.is_error
        await self._port.emit(
            ev.ToolFinished(call_id=call_id, content=outcome.content, is_error=is_error, diffs=outcome.diffs)
        )


class ServedCalls:
    """The calls of one driven agent. Between two runs only what needs no question is allowed."""

    def __init__(self, rules: PermissionRules, looking: LookingCalls) -> None:
        self.rules = rules
        self._looking = looking
        self._port: RunPort | None = None
        self._count = 0

    def begin(self, port: RunPort, rules: PermissionRules) -> None:
        """A run starts: questions go through its port, and its rules hold."""
        self._port, self.rules = port, rules

    def end(self) -> None:
        self._port = None

    async def notify(self, notice: ev.Notice) -> None:
        """Log what people must know, if a run is active."""
        if self._port is not None:
            with suppress(MakaiError):  # it may be ending
                await self._port.emit(notice)

    @asynccontextmanager
    async def allowed(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        is_approved: Callable[[CallDescription], bool] = lambda description: False,
    ) -> AsyncIterator[ServedCall]:
        """Run the block as this call of `tool`; `RpcError` when it is denied or fails.

        `is_approved` says whether a person approved exactly this before, so that no second question is asked.
        """
        port = self._port
        try:
            description = await tool.describe(arguments)
            self._count += 1
            call_id = f"unlogged-{self._count}" if port is None else port.call_id(tool.definition.name)
            call = ServedCall(_fact(call_id, tool, arguments, description), port)
            decided = await self._decided(call, description, is_approved)
        except MakaiError as error:
            raise rpc_error(error) from None
        if decided.decision != "approve":
            why = f"Denied: {decided.reason}" if decided.reason else "Denied."
            await call.finish(text_outcome(why, is_error=True))
            raise RpcError(json_rpc.INTERNAL_ERROR, why, {"denied": True})
        if description.problem:
            raise RpcError(json_rpc.INVALID_PARAMS, description.problem)
        await call.start()
        try:
            yield call
        except MakaiError as error:
            await call.finish(text_outcome(str(error), is_error=True))
            raise rpc_error(error) from None
        await call.finish(call.outcome)

    async def _decided(
        self, call: ServedCall, description: CallDescription, is_approved: Callable[[CallDescription], bool]
    ) -> ev.ApprovalDecided:
        port, fact = self._port, call.fact
        if port is None:
            verdict = await judge_call("ask", self.rules, (), fact.name, description, is_clients_own=False)
            decision: ev.Decision = "approve" if verdict.decision == "allow" else "deny_continue"
            if verdict.looks_at is not None:
                self._looking.add(fact.call_id, verdict.looks_at)
            return ev.ApprovalDecided(call_id=fact.call_id, decision=decision, reason=_NOT_NOW)

        async def ask(question: Question) -> ev.ApprovalDecided:
            if is_approved(description):
                return ev.ApprovalDecided(call_id=fact.call_id, decision="approve", by="agent")
            asked = ev.ApprovalRequested(
                call_id=fact.call_id,
                name=fact.name,
                arguments_json=fact.arguments_json,
                digest="",
                diffs=question.diffs,
            )
            port.check_storable(asked)  # what the log cannot hold would end the run
            await call.log()
            return await port.decide(question)

        async def report(decided: ev.ApprovalDecided) -> None:
            await call.log()
            await port.emit(decided)

        decide = decider(port, self.rules, self._looking, ask=ask, report=report)
        return await decide(fact, description, sanitize(description.diffs))


def rpc_error(error: MakaiError) -> RpcError:
    """How a failure is answered: -32002 for what is not there, -32602 for what cannot be asked for."""
    if isinstance(error, RpcError):
        return error
    text = " ".join(str(error).split())
    if isinstance(error, FileMissing):
        return RpcError(json_rpc.RESOURCE_NOT_FOUND, text)
    return RpcError(json_rpc.INVALID_PARAMS if isinstance(error, InvalidRequest) else json_rpc.INTERNAL_ERROR, text)


def _fact(call_id: str, tool: Tool, arguments: Mapping[str, Any], description: CallDescription) -> ev.ToolCalled:
    return ev.ToolCalled(
        call_id=call_id,
        name=tool.definition.name,
        arguments_json=strict_json.encode(arguments).decode(),
        kind=description.kind,
        title=description.title,
        locations=description.locations,
    )
