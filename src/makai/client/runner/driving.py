"""Drives one session of a harness to its end: records every event, then shows it to the observer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from makai.aio.cancellation import wait_uncancelled
from makai.client.runner.markers import MarkerScanner
from makai.core.errors import NO_RESULT, MakaiError, SpawnFailed
from makai.harness.contract.events import (
    AgentErrorEvent,
    CostData,
    Event,
    InitEvent,
    ResultEvent,
    SystemEvent,
    TerminalEvent,
    is_terminal,
)
from makai.harness.contract.interfaces import STOP_GRACE_S, Handle
from makai.harness.contract.result import Result
from makai.harness.manifests import provider_name_of

STOP_DEADLINE_S: Final = 2 * STOP_GRACE_S

FailureMode: TypeAlias = Literal[
    "worktree-provision",
    "spawn-failed",
    "provider-error",
    "silent-exit",
    "timeout",
    "budget-exceeded",
    "operator-cancelled",
    "backstop-failed",
]
Ending: TypeAlias = Literal["terminal", "silent", "timeout", "stopped", "spawn-failed", "broken"]
Notices: TypeAlias = Callable[[], Sequence[SystemEvent]]
_MODES: Final[dict[Ending, FailureMode]] = {
    "silent": "silent-exit",
    "timeout": "timeout",
    "stopped": "operator-cancelled",
    "spawn-failed": "spawn-failed",
    "broken": "provider-error",
}


class Driven(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended, and what its events said."""

    ending: Ending
    markers: MarkerScanner
    session_id: str = ""
    terminal: TerminalEvent | None = None
    error: str = ""

    @property
    def cost(self) -> CostData | None:
        return None if self.terminal is None else self.terminal.cost


class SessionDriver:
    """Reads one session. `record` is called with every event before `observe` is."""

    def __init__(self, record: Callable[[Event], None], observe: Callable[[Event], None], notices: Notices) -> None:
        """`notices` are added to the stream after `init`."""
        self._record, self._observe, self._notices = record, observe, notices
        self._markers = MarkerScanner()
        self._handle: Handle | None = None
        self._session_id = ""
        self._terminal: TerminalEvent | None = None

    async def drive(self, begin: Callable[[], Awaitable[Handle]], *, timeout_s: float, stop: asyncio.Event) -> Driven:
        """Start the session with `begin` and read it until it ends, `stop` is set or the time is up. The session is
        stopped on every path, also when the caller is cancelled (DM-PROV-012)."""
        reading = asyncio.create_task(self._read(begin), name="events of a harness")
        stopping = asyncio.create_task(stop.wait(), name="stop of a harness run")
        ending: Ending | None = None
        try:
            done, _ = await asyncio.wait({reading, stopping}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if reading not in done:
                ending = "stopped" if stopping in done else "timeout"
                if self._handle is not None:
                    await self._handle.stop()
                    await asyncio.wait({reading}, timeout=STOP_DEADLINE_S)
        finally:
            await wait_uncancelled(asyncio.create_task(self._end(reading, stopping), name="end of a harness run"))
        return self._driven(reading, ending)

    async def _read(self, begin: Callable[[], Awaitable[Handle]]) -> None:
        try:
            self._handle = await begin()
        except MakaiError as error:
            raise SpawnFailed(error.message, hint=error.hint) from error
        async for event in self._handle:
            self._show(event)
            if isinstance(event, InitEvent) and not self._session_id:
                self._session_id = event.session_id
                for notice in self._notices():
                    self._show(notice)
            if is_terminal(event):
                assert isinstance(event, ResultEvent | AgentErrorEvent)
                self._terminal = event
                return

    def _show(self, event: Event) -> None:
        self._record(event)
        self._markers.feed(event)
        self._observe(event)

    async def _end(self, *tasks: asyncio.Task[object]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._handle is not None:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await self._handle.stop()

    def _driven(self, reading: asyncio.Task[None], ending: Ending | None) -> Driven:
        error = None if reading.cancelled() else reading.exception()
        match error:
            case None:
                ending = ending or ("silent" if self._terminal is None else "terminal")
            case SpawnFailed():
                ending = ending or "spawn-failed"
            case MakaiError():
                ending = ending or "broken"
            case _:
                raise error
        return Driven(
            ending=ending,
            markers=self._markers,
            session_id=self._session_id,
            terminal=self._terminal,
            error=str(error) if error is not None else "",
        )


def result_of(driven: Driven, harness: str, *, max_usd: float | None = None, spent_usd: float = 0.0) -> Result:
    """The result of a session, without what the worktree tells about it (DM-RES-004)."""
    result = Result(
        status="completed",
        provider_name=provider_name_of(harness),
        provider_session_id=driven.session_id,
        pull_request_url=driven.markers.pull_request_url,
        summary=driven.markers.summary,
        work_result=driven.markers.work_result,
        cost=driven.cost,
    )
    failed: Literal["failed", "stopped"] = "stopped" if driven.ending == "stopped" else "failed"
    if (mode := _failure_mode(driven)) is not None:
        return msgspec.structs.replace(result, status=failed, failure_mode=mode, error=_error(driven))
    total = spent_usd + (driven.cost.total_cost_usd if driven.cost is not None else 0.0)
    if max_usd is not None and total > max_usd:
        error = f"The run cost ${total:.2f}, more than the ${max_usd:.2f} that were allowed."
        return msgspec.structs.replace(result, status="failed", failure_mode="budget-exceeded", error=error)
    return result


def _failure_mode(driven: Driven) -> FailureMode | None:
    if driven.ending != "terminal":
        return _MODES[driven.ending]
    match driven.terminal:
        case ResultEvent(success=True):
            return None
        case ResultEvent(error_subtype=subtype) if "budget" in subtype or "max_usd" in subtype:
            return "budget-exceeded"
        case AgentErrorEvent(code=code) if code == NO_RESULT:
            return "silent-exit"
        case _:
            return "provider-error"


def _error(driven: Driven) -> str:
    match driven.ending, driven.terminal:
        case "stopped", _:
            return "You stopped the run."
        case "timeout", _:
            return "The run took too long and was stopped."
        case "terminal", ResultEvent() as event:
            return "; ".join(event.errors) or event.message or event.error_subtype or "The agent reports a failure."
        case "terminal", AgentErrorEvent(message=message):
            return message
        case "silent", _:
            return "The agent ended without a result."
        case _:
            return driven.error
