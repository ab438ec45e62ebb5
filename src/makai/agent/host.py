"""What surrounds the agent loop: the host that logs its facts, and the models that answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from makai.core import session_events as ev
from makai.core.content import SessionPart, Text
from makai.core.durations import duration
from makai.core.messages import StopReason
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Retry, StreamEvent
from makai.core.usage import Usage
from makai.tools.base import CallDescription, Tool


class AgentHost(Protocol):
    """The surroundings of one run. What they raise ends the run; let it pass through unchanged."""

    async def emit(self, event: ev.SessionEvent) -> None:
        """Log a fact. The order of calls is the order of facts; a cancelled wait does not take the fact back.
        `tool_started` and `user_message` are durable on return, everything else soon after."""

    def emit_delta(self, event: ev.Delta) -> bool:
        """Log a delta now, if that needs no waiting; False when it was not taken and has to be emitted instead."""

    def steering(self) -> Sequence[ev.UserInput]:
        """The inputs since the last call that are meant for this run. Emit each of them when the agent has read it."""

    def call_id(self, vendor_call_id: str) -> str:
        """An id for a call that its model named so, unique in the session and never given out before."""

    def position(self) -> int:
        """The number of the last committed fact; later facts get higher ones."""

    def now(self) -> float:
        """Seconds of a monotonic clock."""


Decide: TypeAlias = Callable[[ev.ToolCalled, CallDescription, tuple[ev.FileDiff, ...]], Awaitable[ev.ApprovalDecided]]
"""Asks rules, mode and people about a call, and logs question and decision. A cancelled wait withdraws its question."""

Toolbox: TypeAlias = Callable[[], Awaitable[Mapping[str, Tool]]]
"""The tools that can be called now, by name. The loop asks before every turn: a slow server joins a later one."""


class Models(Protocol):
    """Answers as a model; `providers.runtime.ModelRuntime` does."""

    def resolve(self, model: str | Model | None) -> Model: ...
    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Asks the model, by the law of `providers.base.Provider`."""


@runtime_checkable
class CallerModels(Models, Protocol):
    """Models that can be asked with the keys and addresses of another caller."""

    def for_caller(self, environ: Mapping[str, str]) -> Models:
        """The same models with these variables over those of this process. It needs no closing."""


@runtime_checkable
class InputModels(Models, Protocol):
    """Models that know which content they take."""

    def check_input(self, model: str | Model | None, content: str | tuple[SessionPart, ...]) -> None:
        """Raise `InvalidRequest` for a message with a part that the model is known not to take."""


class Recorder:
    """Emits facts and remembers what is open, so that no turn and no call stays open, however a run ends."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self.emit_delta = host.emit_delta
        self._open_turn: int | None = None
        self._open_calls: dict[str, bool] = {}
        """Call id -> whether the tool has started."""
        self._warnings: set[ev.Notice] = set()
        self._wait: _Wait | None = None

    async def emit(self, event: ev.SessionEvent) -> None:
        if type(event) in _TRACKED:
            self._note(event)
        await self._host.emit(event)

    async def emit_once(self, notice: ev.Notice) -> None:
        """A warning about the request is the same for every turn of the run, and one is enough."""
        if notice in self._warnings:
            return
        if notice.level == "warning":
            self._warnings.add(notice)
        await self.emit(notice)

    @property
    def is_waiting(self) -> bool:
        return self._wait is not None

    async def wait(self, code: str, retry: Retry) -> None:
        """A request waits to be sent again. All waits until `end_wait` are one notice that changes."""
        if self._wait is None:
            self._wait = _Wait(f"wait-{self._host.position() + 1}", code, self._host.now())
        self._wait.retry = retry
        await self.emit(self._wait.notice(f"Attempt {retry.attempt} follows.", retry.wait_ms))

    async def end_wait(self, end: Literal["answered", "given_up"] | str) -> None:
        """Nothing is waited for any more; `end` is otherwise why."""
        if (wait := self._wait) is None or wait.retry is None:
            return
        self._wait = None
        seconds, attempt = duration(self._host.now() - wait.began_at), wait.retry.attempt
        match end:
            case "answered":
                how = f"Attempt {attempt} was answered, after {seconds}."
            case "given_up":
                how = f"Given up after {attempt} attempts in {seconds}."
            case _:
                how = f"Not asked again: {end}."
        await self.emit(wait.notice(how))

    def reopen(self, call: ev.ToolCalled) -> None:
        """A call that an earlier part of the run logged."""
        self._open_calls[call.call_id] = False

    async def close(
        self, turn_reason: StopReason, why: str, usage: Usage | None = None, *, is_final: bool = False
    ) -> None:
        """End the open turn, then every open call; `why` completes "Not run: " and "Interrupted: ". The wait for
        another attempt ends with a run that is aborted. `is_final` is that of `TurnEnded`."""
        if turn_reason == "aborted":
            await self.end_wait(why)
        if self._open_turn is not None:
            used = usage or Usage()
            await self.emit(ev.TurnEnded(turn=self._open_turn, stop_reason=turn_reason, usage=used, is_final=is_final))
        for call_id, started in tuple(self._open_calls.items()):
            said = f"Interrupted: {why}; what the tool did so far is unknown." if started else f"Not run: {why}."
            await self.emit(
                ev.ToolFinished(call_id=call_id, content=(Text(text=said),), is_error=True, interrupted=started)
            )

    def _note(self, event: ev.SessionEvent) -> None:
        match event:
            case ev.TurnStarted(turn=turn):
                self._open_turn = turn
            case ev.TurnEnded():
                self._open_turn = None
            case ev.ToolCalled():
                self.reopen(event)
            case ev.ToolStarted(call_id=call_id):
                self._open_calls[call_id] = True
            case ev.ToolFinished(call_id=call_id):
                self._open_calls.pop(call_id, None)


class _Wait:
    """A wait that is reported as one notice."""

    def __init__(self, notice_id: str, code: str, began_at: float) -> None:
        self._notice_id = notice_id
        self._code = code
        self.began_at = began_at
        self.retry: Retry | None = None

    def notice(self, how: str, wait_ms: int | None = None) -> ev.Notice:
        reason = self.retry.reason if self.retry is not None else ""
        message = f"{reason} {how}"
        return ev.Notice(level="info", code=self._code, message=message, notice_id=self._notice_id, wait_ms=wait_ms)


_TRACKED = frozenset({ev.TurnStarted, ev.TurnEnded, ev.ToolCalled, ev.ToolStarted, ev.ToolFinished})
