"""`client.provider`: one model call, whole or as a stream. A failure after a stream was accepted arrives as its
terminal `error` event; refusals, a needed login and a lost connection are raised: one failure surfaces once. Where
answers come from is the business of `model_calls`."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from makai.client import types as sdk
from makai.client.auth import AuthApi
from makai.client.callbacks import tool_result
from makai.client.failures import failure_of
from makai.client.model_calls import ModelCall, ModelCalls
from makai.client.models import ModelsApi
from makai.client.requests import AgentTools, Messages, Options, Tools, request_of, tools_of
from makai.core.errors import MakaiAuthError, MakaiStreamError
from makai.protocols.makai.payloads import ChatMessage


class ProviderApi:
    """Models, asked directly: no agent loop. Tool calls are reported; `call_tools` carries them out."""

    def __init__(self, calls: ModelCalls, auth: AuthApi, models: ModelsApi) -> None:
        self._calls = calls
        self._auth = auth
        self._models = models

    async def complete(
        self,
        request: sdk.ProviderCompleteRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> sdk.CompletionResponse:
        """Ask a model and wait for the whole answer. Every failure is raised."""
        asked = request_of(request, model_ref, messages, tools, options)
        logins_before = self._auth.logins
        try:
            return await self._complete(asked)
        except MakaiAuthError as error:
            await self._auth.login_for_retry(error, asked.options.auth_retry_policy, logins_before)
        return await self._complete(asked)

    def stream(
        self,
        request: sdk.ProviderCompleteRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> ProviderStream:
        """Ask a model and get the answer as it arrives: `async for event in client.provider.stream(...)`."""
        asked = request_of(request, model_ref, messages, tools, options)
        return ProviderStream(self._calls, self._auth, self._models, asked)

    async def call_tools(self, response: sdk.CompletionResponse, tools: AgentTools) -> list[ChatMessage]:
        """Carry out the tool calls of an answer, all at once, and return their results as messages: ask again with
        `[*messages, response.message, *results]`. What fails is a result too. No permission is asked for here."""
        own_tools = {tool.name: tool for tool in tools_of(tools) or ()}
        results = await asyncio.gather(*(tool_result(own_tools.get(call.name), call) for call in response.tool_calls))
        return [ChatMessage(role="tool", content=(result,)) for result in results]

    async def _complete(self, request: sdk.ProviderCompleteRequest) -> sdk.CompletionResponse:
        call = await self._calls.begin(request, None, whole=True)
        try:
            while call.response is None:
                event = await call.next()
                if isinstance(event, sdk.ErrorEvent):
                    raise failure_of(event)
            return call.response
        finally:
            call.leave()  # a caller who is cancelled takes the request with it


class ProviderStream:
    """The events of one answer. It can be iterated once; the request is sent when iteration begins. Leaving the loop
    early, by `break`, an exception or cancellation, aborts the request on the server."""

    def __init__(
        self, calls: ModelCalls, auth: AuthApi, models: ModelsApi, request: sdk.ProviderCompleteRequest
    ) -> None:
        self.calls = calls
        self.auth = auth
        self.models = models
        self.request = request
        self.call: ModelCall | None = None
        self._iterator: weakref.ref[ProviderStreamIterator] | None = None

    @property
    def response(self) -> sdk.CompletionResponse | None:
        """The whole answer, once `message_end` was delivered. Unlike the events it holds the vendor's signatures, so
        `response.message` is what to append to `messages` for the next turn."""
        return self.call.response if self.call is not None else None

    def __aiter__(self) -> ProviderStreamIterator:
        if self._iterator is not None:
            raise MakaiStreamError("a stream can be iterated once; ask again for another answer", kind="unknown")
        # The loop alone holds the iterator: `break` drops it, and with it the request, although the stream lives on.
        iterator = ProviderStreamIterator(self)
        self._iterator = weakref.ref(iterator)
        return iterator

    async def aclose(self) -> None:
        """Abort the request if it still runs; for `contextlib.aclosing`."""
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None:
            await iterator.aclose()


class ProviderStreamIterator:
    """The one iteration of a `ProviderStream`."""

    def __init__(self, stream: ProviderStream) -> None:
        self._stream = stream
        self._call: ModelCall | None = None
        self._next: Callable[[], Awaitable[sdk.ProviderStreamEvent]] | None = None
        self._logins_before = stream.auth.logins
        self._started = False
        self._retried = False

    def __aiter__(self) -> ProviderStreamIterator:
        return self

    def __anext__(self) -> Awaitable[sdk.ProviderStreamEvent]:
        return self._first() if self._next is None else self._next()

    async def aclose(self) -> None:
        self._next = _nothing
        if self._call is not None:
            self._call.leave()

    async def _first(self) -> sdk.ProviderStreamEvent:
        """The events up to the first content. A login may be followed by one more attempt."""
        try:
            while True:
                try:
                    event = await (self._call or await self._begin()).next()
                except MakaiAuthError as error:
                    await self._log_in(error)
                    continue
                if not isinstance(event, sdk.MessageStartEvent):
                    # A second attempt would repeat what the caller has: it gets the call's own events from now on.
                    assert self._call is not None
                    self._next = self._call.next
                    return event
                if not self._started:
                    self._started = True
                    return event
        except BaseException:
            await self.aclose()
            raise

    async def _begin(self) -> ModelCall:
        stream = self._stream
        self._logins_before = stream.auth.logins
        known = stream.models.known(stream.request.model_ref)
        self._call = stream.call = await stream.calls.begin(stream.request, known, whole=False)
        return self._call

    async def _log_in(self, error: MakaiAuthError) -> None:
        self._call = None
        stream = self._stream
        if self._retried:
            raise error
        self._retried = True
        await stream.auth.login_for_retry(error, stream.request.options.auth_retry_policy, self._logins_before)

    def __del__(self) -> None:
        if self._call is not None:
            self._stream.calls.call_soon(self._call.leave)


async def _nothing() -> sdk.ProviderStreamEvent:
    raise StopAsyncIteration
