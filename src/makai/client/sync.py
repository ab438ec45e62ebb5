"""The client for scripts and notebooks: the same methods without `await`, from any thread. The async client runs on an
event loop in a background thread (`portal`). Handlers of a login run in worker threads, so that `input()` in one does
not stop the connection; tools and permission handlers do so in both clients."""

from __future__ import annotations

import asyncio
import functools
import inspect
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import msgspec

from makai.client import types as sdk
from makai.client.agent import AgentApi, AgentFollower, AgentStream
from makai.client.auth import AuthApi
from makai.client.connect import Connecting, MakaiClient, connect
from makai.client.models import ModelsApi
from makai.client.portal import Portal, events_of, read_ahead
from makai.client.provider import ProviderApi, ProviderStream
from makai.client.requests import AgentRunFields, AgentTools, UntypedRunFields
from makai.client.tools import MAX_PARALLEL, ExecuteCall, ToolsApi, ToolServer
from makai.core.secret import Secret
from makai.server.backend import Backend

_Api = TypeVar("_Api")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Made = TypeVar("_Made")


class _SyncApi(Generic[_Api]):
    def __init__(self, portal: Portal, api: _Api) -> None:
        self._portal = portal
        self._api = api


def _waiting(
    method: Callable[Concatenate[_Api, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_SyncApi[_Api], _P], _T]:
    """The method for callers who wait. Ctrl-C while waiting cancels it."""

    @functools.wraps(method)
    def call(self: _SyncApi[_Api], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._portal.run(method(self._api, *args, **kwargs))

    return call


def _making(
    method: Callable[Concatenate[_Api, _P], _T], make: Callable[[Portal, _T], _Made]
) -> Callable[Concatenate[_SyncApi[_Api], _P], _Made]:
    """The method with its stream for a plain `for` loop."""

    @functools.wraps(method)
    def call(self: _SyncApi[_Api], /, *args: _P.args, **kwargs: _P.kwargs) -> _Made:
        return make(self._portal, method(self._api, *args, **kwargs))

    return call


class SyncProviderStream:
    """The events of one answer, for a plain `for` loop. Leaving it early aborts the request on the server."""

    def __init__(self, portal: Portal, stream: ProviderStream) -> None:
        self._portal = portal
        self._stream = stream

    @property
    def response(self) -> sdk.CompletionResponse | None:
        return self._stream.response

    def __iter__(self) -> Iterator[sdk.ProviderStreamEvent]:
        return read_ahead(self._portal, aiter(self._stream))


class SyncAgentFollower:
    """What happens in a session, for a plain `for` loop. Leaving it leaves the session as it is."""

    def __init__(self, portal: Portal, events: AgentFollower | AgentStream) -> None:
        self._portal = portal
        self._events = events
        self.session_id = events.session_id

    @property
    def event_id(self) -> int | None:
        return self._events.event_id

    def __iter__(self) -> Iterator[sdk.AgentStreamEvent]:
        # Only the generator holds the iterator: leaving the loop drops it, and that leaves the session or the run.
        return events_of(self._portal, aiter(self._events))


class SyncAgentStream(SyncAgentFollower):
    """The events of one run, for a plain `for` loop. Leaving it early stops the run."""

    _events: AgentStream

    @property
    def response(self) -> sdk.AgentRunResponse | None:
        """The newest answer with the usage of all turns, once `agent_end` was delivered."""
        return self._events.response


class SyncAuth(_SyncApi[AuthApi]):
    list_providers = _waiting(AuthApi.list_providers)

    def login(
        self, provider_id: str, handlers: sdk.AuthFlowHandlers | None = None, *, account: str | None = None
    ) -> sdk.LoginResult:
        own = _in_threads(handlers or sdk.AuthFlowHandlers())
        return self._portal.run(self._api.login(provider_id, own, account=account))


class SyncModels(_SyncApi[ModelsApi]):
    list = _waiting(ModelsApi.list)
    resolve = _waiting(ModelsApi.resolve)


class SyncProvider(_SyncApi[ProviderApi]):
    complete = _waiting(ProviderApi.complete)
    call_tools = _waiting(ProviderApi.call_tools)
    stream = _making(ProviderApi.stream, SyncProviderStream)


class SyncAgent(_SyncApi[AgentApi]):
    @overload
    def run(
        self, request: None = None, *, output: type[_T], **fields: Unpack[UntypedRunFields]
    ) -> sdk.AgentRunResponse[_T]: ...
    @overload
    def run(
        self, request: sdk.AgentRunRequest | Mapping[str, Any] | None = None, **fields: Unpack[AgentRunFields]
    ) -> sdk.AgentRunResponse: ...
    def run(
        self, request: sdk.AgentRunRequest | Mapping[str, Any] | None = None, **fields: Any
    ) -> sdk.AgentRunResponse:
        """Run an agent to its end. Every failure is raised. Ctrl-C stops the run."""
        return self._portal.run(self._api.run(request, **fields))

    stream = _making(AgentApi.stream, SyncAgentStream)
    attach = _making(AgentApi.attach, SyncAgentFollower)
    stop = _waiting(AgentApi.stop)
    status = _waiting(AgentApi.status)
    undo = _waiting(AgentApi.undo)
    redo = _waiting(AgentApi.redo)
    diff = _waiting(AgentApi.diff)


class SyncToolServer:
    """Tools that this client serves, until `close`. Plain functions run in worker threads."""

    def __init__(self, portal: Portal, server: ToolServer) -> None:
        self._portal = portal
        self._server = server
        self.server_id = server.server_id
        self.tool_names = server.tool_names

    def wait(self) -> None:
        """Return when the server was closed; raise when its connection is lost."""
        self._portal.run(self._server.wait())

    def close(self) -> None:
        self._portal.run(self._server.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncTools(_SyncApi[ToolsApi]):
    def serve(
        self,
        server_id: str,
        *,
        tools: AgentTools,
        execute: ExecuteCall | None = None,
        timeout_s: float = 300.0,
        max_parallel: int = MAX_PARALLEL,
    ) -> SyncToolServer:
        """Register the tools at once: `with client.tools.serve(...) as server:`."""

        async def opened() -> ToolServer:
            return await self._api.serve(
                server_id, tools=tools, execute=execute, timeout_s=timeout_s, max_parallel=max_parallel
            )

        return SyncToolServer(self._portal, self._portal.run(opened()))


class SyncMakaiClient:
    """A connected client without `await`. Use it as `with`, or `close` it; it may be used from any thread."""

    def __init__(self, portal: Portal, client: MakaiClient) -> None:
        self.auth = SyncAuth(portal, client.auth)
        self.models = SyncModels(portal, client.models)
        self.agent = SyncAgent(portal, client.agent)
        self.tools = SyncTools(portal, client.tools)
        self.provider = SyncProvider(portal, client.provider)
        # A script that just ends must not leave a server process behind.
        self._finalizer = weakref.finalize(self, _end, portal, client)

    def close(self) -> None:
        """End the connection, and a server that was started for it; may be repeated."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def connect_sync(
    url: str | None = None,
    *,
    token: str | Secret | None = None,
    stdio: bool = False,
    command: tuple[str, ...] | None = None,
    environ: Mapping[str, str] | None = None,
    backend: Backend | None = None,
    auth: sdk.AuthOptions | None = None,
) -> SyncMakaiClient:
    """`connect` for scripts and notebooks: `with makai.connect_sync() as client:`."""
    own = auth or sdk.AuthOptions()
    in_threads = msgspec.structs.replace(own, handlers=_in_threads(own.handlers))
    connecting = connect(
        url, token=token, stdio=stdio, command=command, environ=environ, backend=backend, auth=in_threads
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


def _in_threads(handlers: sdk.AuthFlowHandlers) -> sdk.AuthFlowHandlers:
    """The same handlers, plain functions among them called in a worker thread."""
    return sdk.AuthFlowHandlers(on_event=_in_thread(handlers.on_event), on_prompt=_in_thread(handlers.on_prompt))


def _in_thread(handler: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if handler is None or inspect.iscoroutinefunction(handler):
        return handler
    plain = handler

    async def call(event: object) -> Any:
        return await asyncio.to_thread(plain, event)

    return call
