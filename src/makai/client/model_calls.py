"""One attempt to get an answer from a model: the port of `client.provider`, and its two implementations. `RemoteCalls`
asks a server over the protocol. `DirectCalls` asks the models of this process: it validates a request and reports
failures by the same functions as the protocol does, but passes values instead of JSON. Both give the same events,
exceptions and responses. Stop reasons that this version does not know are passed through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final, Protocol

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.catalog.models import ModelDescriptor
from makai.client import failures
from makai.client import types as sdk
from makai.client.connection import Exchange, MakaiConnection, client_closed
from makai.client.failures import broken_protocol, failure_of
from makai.client.requests import chat_message, payload_of
from makai.core import stream_events as ev
from makai.core.content import ContentPart
from makai.core.errors import MakaiAuthError, MakaiError, MakaiStreamError, ParseError
from makai.core.messages import AssistantMessage
from makai.core.usage import Usage
from makai.protocols.makai.client import Reply, encoded_request
from makai.protocols.makai.messages import context_of, options_of
from makai.protocols.makai.payloads import Ack, ChatMessage, Nack, StartEvent, StreamError, StreamRequest
from makai.protocols.makai.projection import failed, nack_of, stream_error
from makai.protocols.makai.reconstruct import Reconstructor
from makai.server.backend import Backend

log = logging.getLogger(__name__)

_CLOSE_DEADLINE_S: Final = 5.0


class ModelCall(Protocol):
    """One attempt. For one reader at a time."""

    response: sdk.CompletionResponse | None
    """The whole answer, once its last event was given out."""

    def next(self) -> Awaitable[sdk.ProviderStreamEvent]:
        """The next event; the last one is `message_end` or `error`, then `StopAsyncIteration`. Raises refusals, a
        needed login and lost connections. A call that was begun as `whole` gives its last event only."""

    def leave(self) -> None:
        """Abort what still runs; may be repeated."""


class ModelCalls(Protocol):
    """Where answers come from."""

    @property
    def call_soon(self) -> Callable[[Callable[[], None]], None]:
        """Runs a function in the client's thread: now if this is it. For finalizers, which run anywhere."""

    async def begin(
        self, request: sdk.ProviderCompleteRequest, known: ModelDescriptor | None, *, whole: bool
    ) -> ModelCall:
        """Ask a model. `known` is the model if this client has listed it."""

    async def close(self) -> None:
        """Fail what is pending."""


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """The terminal `result`: whole for `complete_request`, without content in proxy encoding."""

    content: tuple[ContentPart, ...] | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    api: str = ""
    provider: str = ""
    timestamp: int = 0
    warnings: tuple[str, ...] = ()


_REPEATED_BY_THE_TERMINAL: Final = frozenset({"done", "error"})

_ack = msgspec.json.Decoder(Ack).decode
_start = msgspec.json.Decoder(StartEvent).decode
_result = msgspec.json.Decoder(_Result).decode
_stream_error = msgspec.json.Decoder(StreamError).decode


class RemoteCalls:
    """Answers of a server."""

    def __init__(self, connection: MakaiConnection) -> None:
        self.call_soon = connection.call_soon
        self._connection = connection

    async def begin(
        self, request: sdk.ProviderCompleteRequest, known: ModelDescriptor | None, *, whole: bool
    ) -> ModelCall:
        exchange = await self._connection.open()
        if whole:
            exchange.send("complete_request", payload_of(request))
        else:
            exchange.send("stream_request", payload_of(request), "proxy")
        return _RemoteCall(exchange, known)

    async def close(self) -> None:
        pass  # the connection fails what is pending


class _RemoteCall:
    def __init__(self, exchange: Exchange, known: ModelDescriptor | None) -> None:
        self.response: sdk.CompletionResponse | None = None
        self.leave = exchange.leave
        self._exchange = exchange
        self._known = known
        self._reconstructor = Reconstructor("", 0)

    async def next(self) -> sdk.ProviderStreamEvent:
        if self._exchange.ended:
            raise StopAsyncIteration
        try:
            while (event := self._read(await self._exchange.next())) is None:
                pass
            return event
        except BaseException:
            self.leave()
            raise

    def _read(self, reply: Reply) -> sdk.ProviderStreamEvent | None:
        kind = reply.type
        if kind in _REPEATED_BY_THE_TERMINAL:
            return None
        try:
            if kind == "result":
                return self._end(_result(reply.payload))
            if kind == "stream_error":
                self._exchange.end()
                return error_event(_stream_error(reply.payload))
            event = self._reconstructor.apply(kind, reply.payload)
            if type(event) is ev.Start:
                ack = None if self._exchange.ack is None else _ack(self._exchange.ack.payload)
                return start_event(_start(reply.payload).partial, ack, self._known)
            return sdk_event(event)
        except ParseError as error:
            raise broken_protocol(error.message) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise broken_protocol(f"a malformed {kind}: {error}") from error

    def _end(self, result: _Result) -> sdk.MessageEndEvent:
        self._exchange.end()
        fields = msgspec.structs.asdict(result)
        warnings = fields.pop("warnings")
        if result.content is None:
            fields["content"] = self._reconstructor.message.content
        self.response = response_of(ChatMessage(role="assistant", **fields), warnings)
        return sdk.MessageEndEvent(usage=result.usage, stop_reason=result.stop_reason)


class DirectCalls:
    """Answers of the models of this process."""

    def __init__(self, backend: Backend, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self.call_soon = call_soon
        # A caller's own backend may have `stream` alone.
        batches = getattr(backend, "batches", lambda *request: ev.in_batches(backend.stream(*request)))
        self._batches: Callable[..., AsyncGenerator[Sequence[ev.StreamEvent], None]] = batches
        self._open: set[_DirectCall] = set()
        self._tasks = BackgroundTasks()
        self._closed = False

    async def begin(
        self, request: sdk.ProviderCompleteRequest, known: ModelDescriptor | None, *, whole: bool
    ) -> ModelCall:
        if self._closed:
            raise client_closed()
        try:
            payload = payload_of(request)
            encoded_request(payload)
            asked = msgspec.convert(msgspec.to_builtins(payload), StreamRequest)
            context, options = context_of(asked), options_of(asked.options)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            reason = f"{'complete' if whole else 'stream'}_request: {error}"
            raise failure_of(Nack(rejected_id="", reason=reason, error_code="invalid_request")) from error
        except MakaiError as error:
            raise failure_of(nack_of("", error)) from error
        call = _DirectCall(self, self._batches(request.model_ref, context, options), known, whole=whole)
        self._open.add(call)
        return call

    async def close(self) -> None:
        self._closed = True
        for call in list(self._open):
            call.leave()
        await self._tasks.close(_CLOSE_DEADLINE_S)

    def end(self, call: _DirectCall, events: AsyncGenerator[sdk.ProviderStreamEvent, None]) -> None:
        """End the upstream request of a call that was left."""
        if call in self._open:
            self._open.discard(call)
            self._tasks.start(_end(events), "makai-model-call-end", may_finish=True)

    def ended(self, call: _DirectCall) -> None:
        self._open.discard(call)


class _DirectCall:
    """Its events come from one generator and nothing else runs per delta: that is what the public path costs. `_reader`
    is the task that waits for the next batch; within a batch no task can wait."""

    def __init__(
        self,
        calls: DirectCalls,
        batches: AsyncGenerator[Sequence[ev.StreamEvent], None],
        known: ModelDescriptor | None,
        *,
        whole: bool,
    ) -> None:
        self.response: sdk.CompletionResponse | None = None
        self._calls = calls
        self._known = known
        self._whole = whole
        self._accepted = False
        self._warnings: list[str] = []
        self._interrupted = False
        self._reader: asyncio.Task[object] | None = None
        self._events = self._read(batches)
        self.next = self._events.__anext__

    def leave(self) -> None:
        self._interrupted = True
        # `ag_running`: a task waits for an event; it raises, and that ends the upstream request.
        if getattr(self._events, "ag_running", False) and self._reader is not None:
            self._reader.cancel()
        else:
            self._calls.end(self, self._events)

    async def _read(
        self, batches: AsyncGenerator[Sequence[ev.StreamEvent], None]
    ) -> AsyncGenerator[sdk.ProviderStreamEvent, None]:
        text_delta, sdk_delta, gives_deltas = ev.TextDelta, sdk.TextDeltaEvent, not self._whole
        loop, current_task = asyncio.get_running_loop(), asyncio.current_task  # looking the loop up costs a system call
        self._reader = current_task(loop)
        try:
            async with aclosing(batches):
                async for batch in batches:
                    for event in batch:
                        if type(event) is text_delta and gives_deltas:
                            yield sdk_delta(event.delta)
                        elif (given := self._take(event)) is not None:
                            yield given
                            if isinstance(given, sdk.MessageEndEvent | sdk.ErrorEvent):
                                self._reader = current_task(loop)
                                return
                    self._reader = current_task(loop)
            raise MakaiError("the provider ended without an answer")
        except asyncio.CancelledError:
            if self._interrupted and self._reader is not None and self._reader.uncancel() == 0:
                raise client_closed() from None
            raise
        except (MakaiAuthError, MakaiStreamError):
            raise
        except MakaiError as error:
            failure = error
        except Exception:
            log.exception("a stream failed unexpectedly")
            failure = MakaiError("internal error")
        finally:
            self._calls.ended(self)
        if not self._accepted:
            raise failure_of(nack_of("", failure)) from failure
        yield error_event(stream_error(failed(failure)))

    def _take(self, event: ev.StreamEvent) -> sdk.ProviderStreamEvent | None:
        self._accepted = True
        match event:
            case ev.Done(message=message):
                self.response = response_of(chat_message(message), tuple(self._warnings))
                return sdk.MessageEndEvent(usage=message.usage, stop_reason=message.stop_reason or "end_turn")
            case ev.Failed():
                return error_event(stream_error(event))
            case ev.Keepalive(level="warning", note=note):
                self._warnings.append(note)
                return None
            case _ if self._whole:
                return None
            case ev.Start(partial=partial):
                return start_event(partial, None, self._known)
            case _:
                return sdk_event(event)


async def _end(events: AsyncGenerator[sdk.ProviderStreamEvent, None]) -> None:
    with suppress(RuntimeError):  # its reader was cancelled and is ending it
        await events.aclose()


def start_event(
    partial: AssistantMessage | None, ack: Ack | None, known: ModelDescriptor | None
) -> sdk.MessageStartEvent:
    """Names the model where the answer, its ack or an earlier list says which one it is."""
    if partial is not None and partial.provider:
        return sdk.MessageStartEvent(provider_id=partial.provider, api=partial.api, model_id=partial.model)
    if ack is not None and ack.provider_id:
        return sdk.MessageStartEvent(provider_id=ack.provider_id, api=ack.api, model_id=ack.model_id)
    if known is not None:
        return sdk.MessageStartEvent(provider_id=known.provider_id, api=known.api, model_id=known.model_id)
    return sdk.MessageStartEvent()


def sdk_event(event: ev.StreamEvent | None) -> sdk.ProviderStreamEvent | None:
    """The event for callers; None for block boundaries and keep-alives."""
    match event:
        case ev.TextDelta(delta=delta):
            return sdk.TextDeltaEvent(delta)
        case ev.ThinkingDelta(delta=delta):
            return sdk.ThinkingDeltaEvent(delta)
        case ev.ToolCallEnd(tool_call=call):
            return sdk.ToolCallEvent(name=call.name, arguments_json=call.arguments_json, tool_call_id=call.tool_call_id)
        case _:
            return None


def error_event(error: StreamError) -> sdk.ErrorEvent:
    """The terminal event of an answer that broke off. A needed login is raised instead, for the caller to act."""
    failure = failure_of(error)
    if isinstance(failure, MakaiAuthError):
        raise failure
    return failures.error_event(failure)


def response_of(message: ChatMessage, warnings: tuple[str, ...]) -> sdk.CompletionResponse:
    return sdk.CompletionResponse(
        message=message,
        usage=message.usage,
        provider_id=message.provider,
        api=message.api,
        model_id=message.model,
        stop_reason=message.stop_reason,
        warnings=warnings,
    )
