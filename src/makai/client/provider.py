"""`client.provider`: one model call, whole or as a stream.

A failure after a stream was accepted arrives as its terminal `error` event; refusals, a needed login and a lost
connection are raised: one failure surfaces once. Where answers come from is the business of `model_calls`.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from makai.client.auth import AuthApi
from makai.client.failures import event_failure
from makai.client.model_calls import ModelCall, ModelCalls
from makai.client.models import ModelsApi
from makai.client.requests import Messages, Options, Tools, request_of
from makai.client.types import (
    CompletionResponse,
    ErrorEvent,
    MessageStartEvent,
    ProviderCompleteRequest,
    ProviderStreamEvent,
    TextDeltaEvent,
)
from makai.core.errors import MakaiAuthError, MakaiStreamError


class ProviderApi:
    """Models, asked directly: no agent loop, and tool calls are only reported."""

    def __init__(self, calls: ModelCalls, auth: AuthApi, models: ModelsApi) -> None:
        self._calls = calls
        self._auth = auth
        self._models = models

    async def complete(
        self,
        request: ProviderCompleteRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> CompletionResponse:
        """Ask a model and wait for the whole answer. Every failure is raised."""
        asked = request_of(ProviderCompleteRequest, request, model_ref, messages, tools, options)
        logins_before = self._auth.logins
        try:
            return await self._complete(asked)
        except MakaiAuthError as error:
            await self._auth.login_for_retry(error, asked.options.auth_retry_policy, logins_before)
        return await self._complete(asked)

    def stream(
        self,
        request: ProviderCompleteRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> ProviderStream:
        """Ask a model and get the answer as it arrives: `async for event in client.provider.stream(...)`."""
        asked = request_of(ProviderCompleteRequest, request, model_ref, messages, tools, options)
        return ProviderStream(self._calls, self._auth, self._models, asked)

    async def _complete(self, request: ProviderCompleteRequest) -> CompletionResponse:
        call = await self._calls.begin(request, None, whole=True)
        try:
            while call.response is None:
                event = await call.next()
                if isinstance(event, ErrorEvent):
                    raise event_failure(event)
            return call.response
        finally:
            call.leave()  # a caller who is cancelled takes the request with it


class ProviderStream:
    """The events of one answer. It can be iterated once; the request is sent when iteration begins.

    Leaving the loop early, by `break`, an exception or cancellation, aborts the request on the server.
    """

    def __init__(self, calls: ModelCalls, auth: AuthApi, models: ModelsApi, request: ProviderCompleteRequest) -> None:
        self.response: CompletionResponse | None = None
        """The whole answer, once `message_end` was delivered. Unlike the events it holds the vendor's signatures, so
        `response.message` is what to append to `messages` for the next turn."""
        self.calls = calls
        self.auth = auth
        self.models = models
        self.request = request
        self._iterator: weakref.ref[ProviderStreamIterator] | None = None

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
        self._call: ModelCall | None = None
        self._stream = stream
        self._logins_before = stream.auth.logins
        self._may_retry = True
        self._started = False
        self._over = False

    def __aiter__(self) -> ProviderStreamIterator:
        return self

    async def __anext__(self) -> ProviderStreamEvent:
        if self._over:
            raise StopAsyncIteration
        try:
            while True:
                try:
                    event = await (self._call or await self._begin()).next()
                except MakaiAuthError as error:
                    await self._log_in(error)
                    continue
                if type(event) is TextDeltaEvent:
                    self._may_retry = False
                    return event
                if not isinstance(event, MessageStartEvent):
                    self._may_retry = False
                    self._end_with(event)
                    return event
                if not self._started:
                    self._started = True
                    return event
        except BaseException:
            self._leave()
            raise

    async def aclose(self) -> None:
        """Abort the request if it still runs."""
        self._leave()

    async def _begin(self) -> ModelCall:
        """Begin an attempt."""
        stream = self._stream
        self._logins_before = stream.auth.logins
        known = stream.models.known(stream.request.model_ref)
        self._call = call = await stream.calls.begin(stream.request, known, whole=False)
        return call

    def _end_with(self, event: ProviderStreamEvent) -> None:
        assert self._call is not None
        if self._call.response is not None:
            self._stream.response = self._call.response
            self._over = True
        elif isinstance(event, ErrorEvent):
            self._over = True

    async def _log_in(self, error: MakaiAuthError) -> None:
        """Once, and only while a second attempt would not repeat what the caller already has."""
        self._call = None
        if not self._may_retry:
            raise error
        self._may_retry = False
        stream = self._stream
        await stream.auth.login_for_retry(error, stream.request.options.auth_retry_policy, self._logins_before)

    def _leave(self) -> None:
        self._over = True
        if self._call is not None:
            self._call.leave()

    def __del__(self) -> None:
        if not self._over and self._call is not None:
            self._stream.calls.call_soon(self._call.leave)
