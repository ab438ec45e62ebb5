"""The client, and connecting it to the place that its options name. Transports are imported when they are chosen."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Mapping, Sequence
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import msgspec

from makai.client.agent import AgentApi
from makai.client.auth import AuthApi
from makai.client.connection import MakaiConnection
from makai.client.failures import transport_failure
from makai.client.model_calls import DirectCalls, ModelCalls, RemoteCalls
from makai.client.models import ModelsApi
from makai.client.provider import ProviderApi
from makai.client.tools import ToolsApi
from makai.client.types import AuthOptions
from makai.core.errors import InvalidRequest, TransportError
from makai.core.secret import Secret
from makai.server.backend import Backend
from makai.transports.channel import Channel

ENDPOINT_PATH = "/v1/makai"


class MakaiClient:
    """A connected client. Use it as `async with`, or `close` it; any number of requests may run at once."""

    def __init__(self, channel: Channel, auth: AuthOptions | None = None, backend: Backend | None = None) -> None:
        """`backend`: the models of a server in this process, which are asked without the protocol."""
        self._closed = False
        self._connection = MakaiConnection(channel)
        self.models = ModelsApi(self._connection)
        self.auth = AuthApi(self._connection, auth or AuthOptions(), on_login=self.models.forget)
        self.agent = AgentApi(self._connection, self.auth)
        self.tools = ToolsApi(self._connection)
        self._calls: ModelCalls = (
            RemoteCalls(self._connection) if backend is None else DirectCalls(backend, self._connection.call_soon)
        )
        self.provider = ProviderApi(self._calls, self.auth, self.models)

    async def close(self) -> None:
        """End the connection, and a server that was started for it. What is pending fails; may be repeated."""
        self._closed = True
        await self._calls.close()
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed {self!r}: use `async with` or close()", ResourceWarning, source=self, stacklevel=2)


class MakaiClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and what holds for every request. Without a place, the server runs in this process."""

    auth: AuthOptions = AuthOptions()
    url: str | None = None
    """ws:// or wss:// (WebSocket), http:// or https:// (SSE), grpc://. A missing path is /v1/makai."""
    token: str | Secret | None = None
    """The server's token, with `url`."""
    stdio: bool = False
    """Start `makai stdio` as a child and talk to that."""
    command: tuple[str, ...] | None = None
    """The same with a command of your own."""
    environ: Mapping[str, str] | None = None
    """The whole environment of a server in this process or of a child; by default ours."""
    backend: Backend | None = None
    """Serves a server in this process, such as a `ModelRuntime`; the caller closes it."""
    channel: Channel | None = None
    """A connection that is already made."""


class Connecting:
    """A client that is being connected: `client = await connect()`, or `async with connect() as client:`."""

    def __init__(self, options: MakaiClientOptions) -> None:
        self._options = options
        self._client: MakaiClient | None = None

    def __await__(self) -> Generator[object, None, MakaiClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> MakaiClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> MakaiClient:
        options = self._options
        if options.url is None and options.channel is None and not options.stdio and options.command is None:
            from makai.client.in_process import InProcessServer

            server = InProcessServer(options.environ, options.backend)
            return MakaiClient(server, options.auth, server.backend)
        return MakaiClient(await open_channel(options), options.auth)


def create_makai_client(options: MakaiClientOptions | None = None) -> Connecting:
    """A connected client; `connect` is the same with keyword arguments."""
    return Connecting(_checked(options or MakaiClientOptions()))


def connect(
    url: str | None = None,
    *,
    token: str | Secret | None = None,
    stdio: bool = False,
    command: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    backend: Backend | None = None,
    channel: Channel | None = None,
    auth: AuthOptions | None = None,
) -> Connecting:
    """A connected client, by `await` or `async with`. See `MakaiClientOptions` for what the arguments mean."""
    return create_makai_client(
        MakaiClientOptions(
            auth=auth or AuthOptions(),
            url=url,
            token=token,
            stdio=stdio,
            command=None if command is None else tuple(command),
            environ=environ,
            backend=backend,
            channel=channel,
        )
    )


async def open_channel(options: MakaiClientOptions) -> Channel:
    if options.channel is not None:
        return options.channel
    try:
        if options.url is not None:
            return await _open_url(options.url, Secret(token) if isinstance(token := options.token, str) else token)
        from makai.transports.stdio_child import spawn_stdio

        return await spawn_stdio(options.command or (sys.executable, "-P", "-m", "makai", "stdio"), options.environ)
    except TransportError as error:
        raise transport_failure(error.message, hint=error.hint) from error


async def _open_url(url: str, token: Secret | None) -> Channel:
    parts = urlsplit(url)
    if parts.scheme == "grpc":
        from makai.transports.grpc import connect_grpc

        return await connect_grpc(url, token)
    full_url = urlunsplit(parts if parts.path.strip("/") else parts._replace(path=ENDPOINT_PATH))
    if parts.scheme in ("ws", "wss"):
        from makai.transports.websocket import connect_websocket

        return await connect_websocket(full_url, token)
    if parts.scheme in ("http", "https"):
        from makai.transports.sse import connect_sse

        return await connect_sse(full_url, token)
    raise InvalidRequest(f"cannot connect to {url!r}", hint="A URL begins with ws, wss, http, https or grpc.")


def _checked(options: MakaiClientOptions) -> MakaiClientOptions:
    """Refuse what contradicts itself, before anything is started."""
    child = options.stdio or options.command is not None
    places = {
        "url": options.url is not None,
        "stdio or command": child,
        "backend": options.backend is not None,
        "channel": options.channel is not None,
    }
    chosen = [name for name, given in places.items() if given]
    if len(chosen) > 1:
        raise InvalidRequest(f"choose one place to connect to: {' or '.join(chosen)}")
    if options.token is not None and options.url is None:
        raise InvalidRequest("token belongs to url")
    if options.environ is not None and chosen and not child:
        raise InvalidRequest(f"environ is for a server in this process or a child, not for {chosen[0]}")
    return options
