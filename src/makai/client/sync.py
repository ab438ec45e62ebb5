"""The client for scripts and notebooks: the same methods without `await`.

In: calls from any thread. Out: the same results, events and exceptions as the async client, which runs on an event loop
of its own in a background thread (`portal`). It must not know the protocol. Handlers of a login run in worker threads,
so that `input()` in one does not stop the connection. `client.agent` is in `sync_agent`.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from makai.catalog.descriptors import ModelsRequest, ModelsResponse
from makai.client.auth import AuthApi
from makai.client.client import MakaiClient
from makai.client.connect import Connecting, connect
from makai.client.models import ModelsApi
from makai.client.portal import Portal, read_ahead
from makai.client.provider import ProviderApi, ProviderStream
from makai.client.requests import Messages, Options, Tools
from makai.client.sync_agent import SyncAgent
from makai.client.types import (
    AuthFlowHandlers,
    AuthOptions,
    CompletionResponse,
    LoginResult,
    ProviderAuthInfo,
    ProviderCompleteRequest,
    ProviderStreamEvent,
    ResolveModelRequest,
    ResolveModelResponse,
)
from makai.core.secret import Secret
from makai.server.backend import Backend


class SyncAuth:
    """`client.auth` without `await`."""

    def __init__(self, portal: Portal, api: AuthApi) -> None:
        self._portal = portal
        self._api = api

    def list_providers(self) -> tuple[ProviderAuthInfo, ...]:
        """Every provider and whether it can be used."""
        return self._portal.run(self._api.list_providers())

    def login(
        self, provider_id: str, handlers: AuthFlowHandlers | None = None, *, account: str | None = None
    ) -> LoginResult:
        """Log in; raises unless it succeeds."""
        own = _in_threads(handlers or AuthFlowHandlers())
        return self._portal.run(self._api.login(provider_id, own, account=account))


class SyncModels:
    """`client.models` without `await`."""

    def __init__(self, portal: Portal, api: ModelsApi) -> None:
        self._portal = portal
        self._api = api

    def list(
        self,
        request: ModelsRequest | Mapping[str, Any] | None = None,
        *,
        provider_id: str | None = None,
        api: str | None = None,
        model_id: str | None = None,
        include_deprecated: bool | None = None,
        include_login_required: bool | None = None,
    ) -> ModelsResponse:
        """Every model that matches the filters."""
        return self._portal.run(
            self._api.list(
                request,
                provider_id=provider_id,
                api=api,
                model_id=model_id,
                include_deprecated=include_deprecated,
                include_login_required=include_login_required,
            )
        )

    def resolve(
        self,
        request: ResolveModelRequest | Mapping[str, Any] | None = None,
        *,
        provider_id: str | None = None,
        model_id: str | None = None,
        api: str | None = None,
    ) -> ResolveModelResponse:
        """The one model of this name."""
        return self._portal.run(self._api.resolve(request, provider_id=provider_id, model_id=model_id, api=api))


class SyncProvider:
    """`client.provider` without `await`."""

    def __init__(self, portal: Portal, api: ProviderApi) -> None:
        self._portal = portal
        self._api = api

    def complete(
        self,
        request: ProviderCompleteRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> CompletionResponse:
        """Ask a model and wait for the whole answer."""
        return self._portal.run(
            self._api.complete(request, model_ref=model_ref, messages=messages, tools=tools, options=options)
        )

    def stream(
        self,
        request: ProviderCompleteRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> SyncProviderStream:
        """Ask a model and get the answer as it arrives: `for event in client.provider.stream(...)`."""
        stream = self._api.stream(request, model_ref=model_ref, messages=messages, tools=tools, options=options)
        return SyncProviderStream(self._portal, stream)


class SyncProviderStream:
    """The events of one answer, for a plain `for` loop. Leaving it early aborts the request on the server."""

    def __init__(self, portal: Portal, stream: ProviderStream) -> None:
        self._portal = portal
        self._stream = stream

    @property
    def response(self) -> CompletionResponse | None:
        """The whole answer, once `message_end` was delivered."""
        return self._stream.response

    def __iter__(self) -> Iterator[ProviderStreamEvent]:
        return read_ahead(self._portal, aiter(self._stream))


class SyncMakaiClient:
    """A connected client without `await`. Use it as `with`, or `close` it; it may be used from any thread."""

    def __init__(self, portal: Portal, client: MakaiClient) -> None:
        self.auth = SyncAuth(portal, client.auth)
        self.models = SyncModels(portal, client.models)
        self.agent = SyncAgent(portal, client.agent)
        self.provider = SyncProvider(portal, client.provider)
        # A script that just ends must not leave a server process behind.
        self._finalizer = weakref.finalize(self, _end, portal, client)

    def close(self) -> None:
        """End the connection, and a server that was started for it; may be repeated."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect_sync(
    url: str | None = None,
    *,
    token: str | Secret | None = None,
    stdio: bool = False,
    command: tuple[str, ...] | None = None,
    environ: Mapping[str, str] | None = None,
    backend: Backend | None = None,
    auth: AuthOptions | None = None,
) -> SyncMakaiClient:
    """`connect` for scripts and notebooks: `with makai.connect_sync() as client:`."""
    own = auth or AuthOptions()
    in_threads = msgspec.structs.replace(own, handlers=_in_threads(own.handlers))
    connecting = connect(
        url,
        token=token,
        stdio=stdio,
        command=command,
        environ=environ,
        backend=backend,
        auth=in_threads,
    )
    portal = Portal()
    try:
        return SyncMakaiClient(portal, portal.run(_connected(connecting)))
    except BaseException:
        portal.stop()
        raise


async def _connected(connecting: Connecting) -> MakaiClient:
    return await connecting


def _end(portal: Portal, client: MakaiClient) -> None:
    try:
        portal.run(client.close())
    finally:
        portal.stop()


def _in_threads(handlers: AuthFlowHandlers) -> AuthFlowHandlers:
    """The same handlers, plain functions among them called in a worker thread."""
    return AuthFlowHandlers(on_event=_in_thread(handlers.on_event), on_prompt=_in_thread(handlers.on_prompt))


def _in_thread(handler: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if handler is None or inspect.iscoroutinefunction(handler):
        return handler
    plain = handler

    async def call(event: object) -> Any:
        return await asyncio.to_thread(plain, event)

    return call
