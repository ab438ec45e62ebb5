"""`client.provider`: one model call, whole or as a stream.

In: the caller's request. Out: a `CompletionResponse`, or events of which exactly one, the last, is terminal. A failure
after the server accepted a stream arrives as its terminal `error` event; refusals, a needed login and a lost connection
are raised: one failure surfaces once (document 000 §3.4). It must not know how frames travel.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from makai.client.answer import Answer, failure_in
from makai.client.auth import AuthApi
from makai.client.connection import Exchange, MakaiConnection
from makai.client.models import ModelsApi
from makai.client.requests import Messages, Options, Tools, payload_of, request_of
from makai.client.types import CompletionResponse, MessageStartEvent, ProviderCompleteRequest, ProviderStreamEvent
from makai.core.errors import MakaiAuthError, MakaiError, MakaiStreamError


class ProviderApi:
    """Models, asked directly: no agent loop, and tool calls are only reported."""

    def __init__(self, connection: MakaiConnection, auth: AuthApi, models: ModelsApi) -> None:
        self._connection = connection
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
        return ProviderStream(self._connection, self._auth, self._models, asked)

    async def _complete(self, request: ProviderCompleteRequest) -> CompletionResponse:
        exchange = await self._connection.open()
        answer = Answer()
        try:
            exchange.send("complete_request", payload_of(request))
            while answer.response is None:
                reply = await exchange.next()
                if reply.type == "stream_error":
                    exchange.end()
                    raise failure_in(reply)
                answer.read(reply)
            exchange.end()
            return answer.response
        finally:
            exchange.leave()  # a caller who is cancelled takes the request with him


class ProviderStream:
    """The events of one answer. It can be iterated once; the request is sent when iteration begins.

    Leaving the loop early, by `break`, an exception or cancellation, aborts the request on the server.
    """

    def __init__(
        self, connection: MakaiConnection, auth: AuthApi, models: ModelsApi, request: ProviderCompleteRequest
    ) -> None:
        self.response: CompletionResponse | None = None
        """The whole answer, once `message_end` was delivered. Unlike the events it holds the vendor's signatures, so
        `response.message` is what to append to `messages` for the next turn."""
        self._connection = connection
        self._auth = auth
        self._models = models
        self._request = request
        self._iterator: weakref.ref[ProviderStreamIterator] | None = None

    def __aiter__(self) -> ProviderStreamIterator:
        if self._iterator is not None:
            raise MakaiStreamError("a stream can be iterated once; ask again for another answer", kind="unknown")
        # The loop alone holds the iterator, so `break` drops it, and with it the request, whoever holds the stream.
        iterator = ProviderStreamIterator(self, self._connection, self._auth, self._models, self._request)
        self._iterator = weakref.ref(iterator)
        return iterator

    async def aclose(self) -> None:
        """Abort the request if it still runs; for `contextlib.aclosing`."""
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None:
            await iterator.aclose()


class ProviderStreamIterator:
    """The one iteration of a `ProviderStream`."""

    def __init__(
        self,
        stream: ProviderStream,
        connection: MakaiConnection,
        auth: AuthApi,
        models: ModelsApi,
        request: ProviderCompleteRequest,
    ) -> None:
        self._exchange: Exchange | None = None
        self._answer = Answer()
        self._stream = stream
        self._connection = connection
        self._auth = auth
        self._models = models
        self._request = request
        self._logins_before = auth.logins
        self._may_retry = True
        self._started = False
        self._over = False
        self._failure: MakaiError | None = None

    def __aiter__(self) -> ProviderStreamIterator:
        return self

    async def __anext__(self) -> ProviderStreamEvent:
        if self._over:
            raise StopAsyncIteration
        try:
            while True:
                try:
                    event = await self._next()
                except MakaiAuthError as error:
                    await self._log_in(error)
                    continue
                if not isinstance(event, MessageStartEvent):
                    self._may_retry = False
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

    async def batch(self) -> list[ProviderStreamEvent]:
        """At least one event and all that need no waiting, or none at the end: fewer hops for another thread."""
        if self._failure is not None:
            raise self._failure
        events: list[ProviderStreamEvent] = []
        try:
            async for event in self:
                events.append(event)
                if self._exchange is None or not self._exchange.waiting:
                    break
        except MakaiError as error:
            if not events:
                raise
            self._failure = error  # the caller gets what came before it first
        return events

    async def _next(self) -> ProviderStreamEvent:
        """The next event of this attempt; begins it if there is none."""
        exchange = self._exchange
        if exchange is None:
            self._answer = Answer(self._models.known(self._request.model_ref))
            self._logins_before = self._auth.logins
            self._exchange = exchange = await self._connection.open()
            exchange.send("stream_request", payload_of(self._request), "proxy")
        while True:
            event = self._answer.read(await exchange.next())
            if event is None:
                continue
            if self._answer.ended:
                exchange.end()
                self._stream.response = self._answer.response
                self._over = True
            return event

    async def _log_in(self, error: MakaiAuthError) -> None:
        """Once, and only while a second attempt would not repeat what the caller already has."""
        if self._exchange is not None:
            self._exchange.end()
            self._exchange = None
        if not self._may_retry:
            raise error
        self._may_retry = False
        await self._auth.login_for_retry(error, self._request.options.auth_retry_policy, self._logins_before)

    def _leave(self) -> None:
        self._over = True
        if self._exchange is not None:
            self._exchange.leave()

    def __del__(self) -> None:
        exchange = self._exchange
        if exchange is not None and not exchange.ended:
            self._connection.call_soon(exchange.leave)
