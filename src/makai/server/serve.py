"""`makai serve`: sockets, signals and an orderly end around the HTTP application. On SIGTERM or Ctrl-C it refuses new
requests, gives the running ones time to end, and closes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from aiohttp import web

from makai.auth.credentials import is_loopback
from makai.auth.opening import open_server_token
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.secret import Secret
from makai.core.session_events import SandboxLevel
from makai.providers.logins import CONFIG_FILE, read_config
from makai.server.announcement import announced, place_of
from makai.server.app import make_app
from makai.server.backend import Backend
from makai.server.log_json import server_log
from makai.server.log_output import LogFormat, LogLevel
from makai.server.makai_connection import MakaiServer
from makai.server.observability import Observability
from makai.server.session_source import SessionSource
from makai.transports.channel import ServeCaller
from makai.transports.connection_table import ListenerLimits
from makai.transports.guard import Guard, GuardConfig, KnownTokens
from makai.transports.http_listener import HttpListener, raise_descriptor_limit

DEFAULT_PORT = 8717
DEFAULT_GRPC_PORT = 8718


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    grpc_port: int | None = None
    acp: bool = False
    """Whether `/acp` is there: the protocol's remote transport is a draft."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names clients may call us by, as `name:port`."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    allow_plain_remote: bool = False
    drain_s: float = 10.0
    sandbox: SandboxLevel | None = None
    """Of sessions whose creator names none; None is what config.toml says."""
    log_format: LogFormat = "text"
    log_level: LogLevel = "warning"


class Addresses(msgspec.Struct, frozen=True):
    http: str
    grpc: str | None


def tune_garbage_collection() -> None:
    """Keep collections of long-lived objects off the path of events: they stop every client for their duration. What
    start-up made is never looked through again. With Python's own thresholds a thousand clients that connect cause full
    collections of 45 to 130 ms of CPU. With these, a full one comes after a million new objects instead of 70,000, and
    a partial one looks at 10,000."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 5, 100)


async def serve(
    options: ServeOptions,
    backend: Backend,
    home: Path,
    on_ready: Callable[[Addresses], None],
    observability: Observability | None = None,
) -> None:
    """`observability` is the one that `backend` reports to."""
    tls = _tls(options)
    _refuse_open_doors(options, tls)
    user = await asyncio.to_thread(read_config, home / CONFIG_FILE)
    token = await asyncio.to_thread(open_server_token, home, user, os.environ)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    observed = observability or Observability(options.log_format)
    source = SessionSource(backend, home, durable=True, sandbox=options.sandbox, observer=observed.observer)
    makai = MakaiServer(
        backend, metrics=observed.metrics, sessions=source.get, settings=source.settings, observer=observed.observer
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(server_log(options.log_format, options.log_level))
        stack.push_async_callback(observed.close)
        stack.push_async_callback(backend.close)
        stack.push_async_callback(source.close)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
            stack.callback(loop.remove_signal_handler, number)
        await source.prepare_logins()
        listener = _listen(options)
        port = listener.getsockname()[1]
        config = _guard_config(options, port, token, tls=tls is not None)
        guard = Guard(msgspec.structs.replace(config, place=place_of(home)))
        # Without handler cancellation aiohttp does not say that the reader of an event stream hung up.
        acp = _acp_server(options, source, makai)
        app = make_app(
            makai, guard, is_tls=tls is not None, acp=acp, agents=source.agents, home=home, is_ready=source.is_ready
        )
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=5)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        limits = ListenerLimits().within(raise_descriptor_limit())
        stack.push_async_callback(HttpListener(runner.server, listener, tls=tls, limits=limits).close)
        await source.get()  # runs that a former server left continue now, not with the first request
        grpc = await _serve_grpc(options, token, makai, guard.tokens, stack)
        scheme = "https" if tls else "http"
        address = f"{scheme}://{_shown(options.host)}:{port}"
        stack.enter_context(announced(home, address))
        tune_garbage_collection()
        on_ready(Addresses(address, grpc))
        await stop.wait()
        await source.drain()
        await makai.drain(options.drain_s)


def _acp_server(options: ServeOptions, source: SessionSource, makai: MakaiServer) -> ServeCaller | None:
    if not options.acp:
        return None
    from makai.server.acp_connection import AcpServer

    return AcpServer(source.get, makai.backend, settings=source.settings, metrics=makai.metrics).serve


async def _serve_grpc(
    options: ServeOptions, token: Secret, makai: MakaiServer, tokens: KnownTokens | None, stack: AsyncExitStack
) -> str | None:
    if options.grpc_port is None:
        return None
    from makai.transports.grpc import serve_grpc

    guard = Guard(_guard_config(options, options.grpc_port, token, tls=False), tokens)
    server = await serve_grpc(options.host, options.grpc_port, guard, makai.serve)
    stack.push_async_callback(server.close)
    return f"grpc://{_shown(options.host)}:{server.port}"


def _listen(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=1024)
    except OSError as error:
        raise MakaiError(
            f"cannot listen on {_shown(options.host)}:{options.port}: {error.strerror}",
            hint="Is another makai running? Choose another port with --port.",
        ) from error


def _guard_config(options: ServeOptions, port: int, token: Secret, *, tls: bool) -> GuardConfig:
    """Further names are allowed as Host, and as Origin of a page that we served under them."""
    origins = {f"{scheme}://{host}" for host in options.allowed_hosts for scheme in ("http", "https")}
    if tls:
        origins |= {f"https://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    return GuardConfig(token=token, port=port, hosts=frozenset(options.allowed_hosts), origins=frozenset(origins))


def _refuse_open_doors(options: ServeOptions, tls: ssl.SSLContext | None) -> None:
    """Refuse a non-loopback bind without TLS or an explicit flag."""
    if is_loopback(options.host) or options.allow_plain_remote:
        return
    if tls is None:
        raise InvalidRequest(
            f"refusing to listen on {options.host} without TLS: anyone on the way could read the token.",
            hint="Give --tls-cert and --tls-key, or say --allow-plain-remote if a proxy in front adds TLS.",
        )
    if options.grpc_port is not None:
        raise InvalidRequest("gRPC has no TLS here: it can only listen on loopback.")


def _tls(options: ServeOptions) -> ssl.SSLContext | None:
    if options.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(f"cannot use the TLS certificate {options.tls_certificate}: {error}") from error
    return context


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
