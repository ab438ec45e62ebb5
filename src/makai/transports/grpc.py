"""Frames over gRPC, both sides: one bidirectional call is one channel (`makai.proto`). The library (extra `grpc`) is
imported when a listener or a connection is asked for. There is no generated code: the only message has one string
field, and its codec is `encode_frame` and `decode_frame`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from makai.aio.cancellation import RunOnce
from makai.core.access import Caller
from makai.core.errors import ChannelClosed, NotSupported, ParseError, TransportError
from makai.core.secret import Secret
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized, ServeCaller
from makai.transports.connection import serve_to_the_end
from makai.transports.connection_table import HEADER_DEADLINE_S, share_of_descriptors
from makai.transports.guard import Guard

SERVICE: Final = "makai.v1.Makai"
METHOD: Final = "Connect"
ACCEPTED: Final = ("makai-protocol", "1")
"""Metadata with which the server tells that it serves the call: a refusal looks like an accepted call until it ends."""
CONNECT_DEADLINE_S: Final = 10.0
CLOSE_DEADLINE_S: Final = 5.0

_DESCRIPTOR_PARTS: Final = 8
_JSON_FIELD: Final = 0x0A  # field 1, length-delimited
_MESSAGE_OVERHEAD: Final = 16
_GONE: Final = "The gRPC peer is gone."
_FIXED_SIZES: Final = {1: 8, 5: 4}


def encode_frame(frame: bytes) -> bytes:
    length = len(frame)
    head = bytearray((_JSON_FIELD,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + frame


def decode_frame(message: bytes) -> bytes:
    """The JSON text of a `Frame` message. Unknown fields are skipped and the last value wins, as protobuf asks."""
    frame = b""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            _, position = _varint(message, position)
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise ParseError("not a Frame message: unknown wire type")
        if position + size > len(message):
            raise ParseError("not a Frame message: it is cut off")
        if tag == _JSON_FIELD:
            frame = message[position : position + size]
        position += size
    return frame


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ParseError("not a Frame message: bad number")


class GrpcServer:
    """A listener; `port` is the one it was given by the system if it asked for 0."""

    def __init__(self, server: Any, port: int) -> None:
        self._server = server
        self.port = port

    async def close(self, grace_s: float = CLOSE_DEADLINE_S) -> None:
        """Accept nothing more, let open calls end for `grace_s`, then end them."""
        await self._server.stop(grace_s)


async def serve_grpc(
    host: str, port: int, guard: Guard, serve: ServeCaller, *, max_frame_bytes: int = MAX_FRAME_BYTES
) -> GrpcServer:
    """Listen, and serve every call that `guard` authorises. The library closes connections that do not begin with
    HTTP/2 in time, and refuses those above the cap."""
    grpc = _library()

    async def connect(_requests: Any, context: Any) -> None:
        caller = await _caller(guard, context)
        if not isinstance(caller, Caller):
            await context.abort(getattr(grpc.StatusCode, caller[0]), caller[1])
            return
        await context.send_initial_metadata((ACCEPTED,))
        channel = _GrpcChannel(context.read, context.write, grpc.aio.EOF, max_frame_bytes)
        with contextlib.nullcontext() if guard.tokens is None else guard.tokens.hold(caller, channel.lose):
            await serve_to_the_end(lambda opened: serve(opened, caller), channel)

    limits = [
        ("grpc.server_handshake_timeout_ms", round(HEADER_DEADLINE_S * 1000)),
        (
            "grpc.max_allowed_incoming_connections",
            share_of_descriptors(guard.config.max_connections, _DESCRIPTOR_PARTS),
        ),
    ]
    server = grpc.aio.server(
        options=_options(max_frame_bytes) + limits, maximum_concurrent_rpcs=guard.config.max_connections
    )
    handler = grpc.stream_stream_rpc_method_handler(connect, decode_frame, encode_frame)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:
        raise TransportError(f"Cannot listen on {host}:{port}.", hint="Is the port taken?") from None
    await server.start()
    return GrpcServer(server, bound)


async def _caller(guard: Guard, context: Any) -> Caller | tuple[str, str]:
    """Who calls, or status and message for a call that may not connect. Host names are not checked here: no browser
    speaks HTTP/2 without TLS, so no page can reach this listener. One that sends an `origin` came through some bridge,
    and that is refused."""
    headers = [
        (key.encode(), value if isinstance(value, bytes) else value.encode())
        for key, value in context.invocation_metadata() or ()
    ]
    if any(key == b"origin" for key, _ in headers):
        return "PERMISSION_DENIED", "This server does not answer to that Origin."
    if guard.tokens is not None and (presented := guard.presented(headers)) is not None:
        await guard.tokens.refresh(presented)
    if (caller := guard.caller(headers)) is not None:
        return caller
    peer = str(context.peer()).rpartition(":")[0]
    refusal = guard.refuse_token(peer, asyncio.get_running_loop().time())
    return ("UNAUTHENTICATED" if refusal.status == 401 else "RESOURCE_EXHAUSTED"), refusal.message


async def connect_grpc(
    url: str,
    token: Secret | None = None,
    *,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    deadline_s: float = CONNECT_DEADLINE_S,
) -> Channel:
    grpc = _library()
    connection = grpc.aio.insecure_channel(url.removeprefix("grpc://"), options=_options(max_frame_bytes))
    metadata = (("authorization", f"Bearer {token.reveal()}"),) if token else ()
    method = connection.stream_stream(f"/{SERVICE}/{METHOD}", encode_frame, decode_frame)
    call = method(metadata=metadata)
    try:
        async with asyncio.timeout(deadline_s):
            if ACCEPTED not in tuple(await call.initial_metadata()):
                await call.read()  # raises what ended the call
                raise TransportError(f"{url} speaks gRPC, but not {SERVICE}.")
    except BaseException as error:
        call.cancel()
        await connection.close()
        if isinstance(error, TimeoutError):
            raise TransportError(f"{url} did not answer within {deadline_s:g} s.") from None
        if isinstance(error, grpc.aio.AioRpcError):
            hint = "Check the token." if error.code() is grpc.StatusCode.UNAUTHENTICATED else None
            raise TransportError(f"{url} refused the connection: {error.details()}", hint=hint) from None
        raise

    async def half_close() -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await call.done_writing()

    async def hang_up() -> None:
        call.cancel()
        await connection.close()

    return _GrpcChannel(call.read, call.write, grpc.aio.EOF, max_frame_bytes, half_close, hang_up)


class _GrpcChannel:
    """One call, either side. The library cancels the whole call when a read or write is cancelled, so both run in tasks
    of their own."""

    def __init__(
        self,
        read: Callable[[], Coroutine[Any, Any, Any]],
        write: Callable[[bytes], Coroutine[Any, Any, None]],
        end_of_stream: object,
        max_frame_bytes: int,
        half_close: Callable[[], Awaitable[None]] | None = None,
        hang_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._read = read
        self._write = write
        self._end_of_stream = end_of_stream
        self._half_close = half_close
        self._hang_up = hang_up
        self._turn = asyncio.Lock()
        self._reading: asyncio.Task[Any] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._finish_once = RunOnce(self._finish, "makai-grpc-close")

    async def receive(self) -> bytes | Oversized | None:
        return None if self._ended.done() else await self._next(self._ended)

    async def send(self, frames: Sequence[bytes]) -> None:
        async with self._turn:
            if self._writing is not None:  # of a sender that was cancelled
                await asyncio.wait({self._writing})
            if self._ended.done():
                raise ChannelClosed(_GONE)
            self._writing = asyncio.create_task(self._write_all(frames))
            await asyncio.wait({self._writing})
            if self._writing.cancelled() or self._writing.exception():
                self.lose()
                raise ChannelClosed(_GONE)

    async def close(self, reason: str = "") -> None:
        self.lose()
        await self._finish_once()

    def lose(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def _write_all(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            await self._write(frame)

    async def _next(self, *until: asyncio.Future[None]) -> bytes | None:
        """The next frame; None at the end of the call, or when one of `until` is done before there is one."""
        reading = self._reading = self._reading or asyncio.create_task(self._read())
        await asyncio.wait({reading, *until}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            return None
        self._reading = None
        if reading.cancelled() or reading.exception() or reading.result() is self._end_of_stream:
            self.lose()
            return None
        frame: bytes = reading.result()
        return frame

    async def _finish(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=CLOSE_DEADLINE_S)
        if self._half_close is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    await self._half_close()
                    while await self._next() is not None:
                        pass  # the library reports the end of a call only to a reader that reads up to it
        if self._hang_up is not None:
            await self._hang_up()
        for task in (self._reading, self._writing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def _options(max_frame_bytes: int) -> list[tuple[str, int]]:
    largest = max_frame_bytes + _MESSAGE_OVERHEAD
    return [
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_send_message_length", largest),
        ("grpc.so_reuseport", 0),  # two servers on one port would share the calls between them
    ]


def _library() -> Any:
    try:
        importlib.import_module("grpc.aio")
        return importlib.import_module("grpc")
    except ImportError:
        raise NotSupported("gRPC needs an extra package.", hint="Install makai[grpc].") from None
