"""The transports to an MCP server: a child process, streamable HTTP, SSE.

No message is larger than `MAX_MESSAGE_BYTES`, whatever a server sends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, TypeAlias

import anyio
import httpx2
import mcp_types as types
import msgspec
from anyio.abc import ObjectReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from makai.aio.child_process import ChildProcess, OversizedLine
from makai.auth.credentials import proxy_for
from makai.core.errors import TransportError
from makai.tools.file_errors import printable
from makai.tools.launching import launcher
from makai.tools.mcp.config import HttpServer, Launch, McpServer, StdioServer, Timing
from makai.tools.mcp.mending import mend
from makai.wire import strict_json
from makai.wire.json_repair import JSONRepair, repaired

_Inbound: TypeAlias = SessionMessage | Exception
_Streams: TypeAlias = tuple[Any, Any]
"""What the SDK calls TransportStreams, which it does not export."""

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
_MAX_OTHER_LINES: Final = 1_000
"""So many lines in a row that are not MCP, and it is not a server."""
_WAITING_MESSAGES: Final = 64
_CONNECT_S: Final = 10.0
_FAREWELL_S: Final = 1.0
_MAX_REFUSAL_BYTES: Final = 64 * 1024
_MAX_REFUSAL_SHOWN: Final = 500
_REFUSAL_S: Final = 5.0
"""How long the text of a refusal is waited for."""
SESSION_GONE: Final = -32_099
"""Stands, towards the SDK, for the refusal of a request whose session the server does not know."""
_EXIT_GRACE_S: Final = 1.0
"""How long a server may take to end by itself when its input has ended, as the MCP specification asks it to."""
_TIMEOUTS: Final = ("connect", "read", "write", "pool")
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')

# Without a handler the SDK's warnings, with tracebacks, would be printed over the user's terminal.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
# It logs whole URLs, which may hold secrets, at INFO.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class Life:
    def __init__(self) -> None:
        self.news = asyncio.Event()
        """Its tools may have changed, or it is over."""
        self.end: str | None = None
        self.has_started = True
        """False for a program that does not run yet."""
        self.forgotten = False
        """Over because the server does not know the session any more."""
        self.refused = ""
        """What an HTTP server last answered instead of success, or why it cannot be reached; the SDK does not tell."""
        self.log: Callable[[], str] = lambda: ""
        """The end of what its process wrote to standard error; empty for a server that runs elsewhere."""

    def last_words(self) -> str:
        """The log as the end of a sentence about it."""
        return _as_last_words(self.log())

    def over(self, why: str) -> None:
        """The first reason stays."""
        if self.end is None:
            self.end = why
        self.news.set()


def transport_to(
    server: McpServer, launch: Launch, timing: Timing, life: Life
) -> AbstractAsyncContextManager[_Streams]:
    return _stdio(server, launch, life) if isinstance(server, StdioServer) else _http(server, timing, life)


@asynccontextmanager
async def _stdio(server: StdioServer, launch: Launch, life: Life) -> AsyncGenerator[_Streams]:
    life.has_started = False
    given = {name: value.reveal() for name, value in server.env.items()}
    environment = launch.environment(given)
    folder = os.path.join(launch.cwd, server.cwd or "")
    if (problem := _missing(server, folder, environment.get("PATH", os.defpath))) is not None:
        raise TransportError(problem)
    with _confining(launch, server) as argv:
        try:
            with anyio.CancelScope(shield=True):
                # The SDK's cancellation comes again with every turn of the event loop: here it has to wait a moment.
                child = await ChildProcess.start(argv, cwd=folder, env=environment, launcher=launcher())
        except OSError as error:
            raise TransportError(f"It could not be started in {printable(folder)}: {error.strerror}.") from None
        life.has_started = True
        life.log = lambda: _log_of(child)
        async with _speaking(child, life) as streams:
            yield streams


def _missing(server: StdioServer, folder: str, path: str) -> str | None:
    """What is not there that the server needs to start, and what to do about it."""
    if not os.path.isdir(folder):
        return f'There is no folder {printable(folder)} to start it in. Create it, or correct "cwd" in its entry.'
    shown = printable(server.command)
    if os.sep not in server.command:
        if shutil.which(server.command, path=path) is None:
            return f'The program {shown} is not on your PATH. Install it, or correct "command" in its entry.'
        return None
    program = os.path.join(folder, server.command)
    if not os.path.isfile(program):
        return f'There is no program {shown}. Install it, or correct "command" in its entry.'
    if not os.access(program, os.X_OK):
        return f'{shown} may not be executed. Make it executable, or correct "command" in its entry.'
    return None


async def _how_it_ended(child: ChildProcess) -> str:
    """For a message about a server that went away: its exit code and the last it said on standard error."""
    await child.wait_for_errors(_EXIT_GRACE_S)
    code = child.exit_code
    return ("closed its output" if code is None else f"ended with exit code {code}") + _as_last_words(_log_of(child))


def _log_of(child: ChildProcess) -> str:
    return "\n".join(printable(line) for line in child.stderr_tail.splitlines() if line.strip())


def _as_last_words(said: str) -> str:
    return f". Its last words:\n{said}" if said else "."


@contextmanager
def _confining(launch: Launch, server: StdioServer) -> Iterator[Sequence[str]]:
    """The command line in its sandbox. `TransportError` when a place that the sandbox needs cannot be made."""
    with ExitStack() as held:
        try:
            wrapped = held.enter_context(launch.confined([server.command, *server.args], server.opened))
            if launch.guard is not None:
                held.enter_context(launch.guard.running_beside())
        except OSError as error:
            raise TransportError(f"Its sandbox cannot be made: {error}.") from None
        yield wrapped


@asynccontextmanager
async def _speaking(child: ChildProcess, life: Life) -> AsyncGenerator[_Streams]:
    try:
        inbound, messages = anyio.create_memory_object_stream[_Inbound](0)
        outbound, to_send = anyio.create_memory_object_stream[SessionMessage](_WAITING_MESSAGES)
        # Closed here too: what waits in them would be called leaked when it is collected.
        async with inbound, messages, outbound, to_send, anyio.create_task_group() as group:
            group.start_soon(_read, child, inbound, life)
            group.start_soon(_write, child, to_send, life)
            yield messages, outbound
            group.cancel_scope.cancel()
    finally:
        # Nothing of the SDK's cancellation may come between: the process must be gone when this returns.
        with anyio.CancelScope(shield=True):
            await child.stop(grace_s=_EXIT_GRACE_S)


async def _read(child: ChildProcess, inbound: MemoryObjectSendStream[_Inbound], life: Life) -> None:
    """Give the SDK every message. What is not one is kept among the server's last words."""
    others = 0
    async with inbound:
        try:
            async for line in child.lines(MAX_MESSAGE_BYTES):
                if (message := _message(line)) is None:
                    others += 1
                    child.note(line.head if isinstance(line, OversizedLine) else line)
                else:
                    others = 0
                    await inbound.send(message)
                if others > _MAX_OTHER_LINES:
                    life.over(f"It writes other things than MCP to its output{life.last_words()}")
                    return
            life.over(f"It {await _how_it_ended(child)}")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            life.over("It was closed.")


async def _write(child: ChildProcess, to_send: MemoryObjectReceiveStream[SessionMessage], life: Life) -> None:
    async with to_send:
        try:
            async for message in to_send:
                await child.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        except TransportError:
            # It does not read any more. If that is its end, reading its output says more about it.
            life.over(f"It {await _how_it_ended(child)}")


def _message(line: bytes | OversizedLine) -> SessionMessage | None:
    if isinstance(line, OversizedLine):
        return _too_long(line)
    document = repaired(line)
    try:
        message = types.jsonrpc_message_adapter.validate_json(document, by_name=False)
    except ValidationError as error:
        return _unreadable(document, error)
    mend(message)
    return SessionMessage(message)


def _unreadable(document: bytes, error: ValidationError) -> SessionMessage | None:
    """An error in place of an answer that the SDK cannot parse, such as one that is nested too deeply: without it the
    caller would wait until its time is over. None for what is no answer."""
    members = strict_json.readable_members(document)
    number = members.get("id")
    if members.get("jsonrpc") != "2.0" or "method" in members or type(number) is not int:
        return None
    why = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
    said = _words_of(document) or f"Its answer cannot be read: {why}."
    data = types.ErrorData(code=types.PARSE_ERROR, message=said)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=number, error=data))


def _words_of(document: bytes) -> str:
    """What an error says that is not of JSON-RPC's shape: some servers send its text, or leave out the code."""
    try:
        error = msgspec.json.decode(document)["error"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return ""
    words = error.get("message") if isinstance(error, dict) else error
    return words if isinstance(words, str) else ""


def _too_long(line: OversizedLine) -> SessionMessage | None:
    """An error in place of the answer that was dropped, if its id can be read."""
    found = _ID_FIRST.match(line.head) or _ID_LAST.search(line.tail)
    if found is None:
        return None
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=_too_much(line.size))
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))


def _too_much(size: int | None = None) -> str:
    what = "more" if size is None else f"{size:,} bytes, more"
    return f"The answer has {what} than the {MAX_MESSAGE_BYTES:,} bytes that are read."


@asynccontextmanager
async def _http(server: HttpServer, timing: Timing, life: Life) -> AsyncGenerator[_Streams]:
    def client(*_: object, **__: object) -> httpx2.AsyncClient:
        return _http_client(server, timing, life)

    if server.transport == "sse":
        async with sse_client(server.url, httpx_client_factory=client) as (messages, outbound):
            yield _Watched(messages, life), outbound
    else:
        async with client() as http:
            streams = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            async with streams as (messages, outbound):
                yield _Watched(messages, life), outbound


def _http_client(server: HttpServer, timing: Timing, life: Life) -> httpx2.AsyncClient:
    async def hurry(request: httpx2.Request) -> None:
        if request.method == "DELETE":  # the SDK's farewell; `close` waits for it
            request.extensions = {**request.extensions, "timeout": dict.fromkeys(_TIMEOUTS, _FAREWELL_S)}

    async def check(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.StreamError("It compresses its answers though it was asked not to.")
        if response.request.method == "POST" or server.transport == "sse":
            life.refused = await _refusal(response) if response.status_code >= 400 else ""
        # The SDK bounds single events, but not answers in one piece.
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        response.stream = _Readable(response.stream, None if is_stream else MAX_MESSAGE_BYTES)

    return httpx2.AsyncClient(
        headers={name: value.reveal() for name, value in server.headers.items()} | {"Accept-Encoding": "identity"},
        # A server may be silent as long as a call may be; every call has its own deadline.
        timeout=httpx2.Timeout(_CONNECT_S, read=timing.call_s + _CONNECT_S),
        # Neither proxies nor a .netrc that the user did not configure for makai.
        trust_env=False,
        proxy=proxy_for(server.url),
        verify=ssl.create_default_context(),
        event_hooks={"request": [hurry], "response": [check]},
    )


async def _refusal(response: httpx2.Response) -> str:
    """Status and text of an HTTP error. The SDK gets both as the error of the request: it drops what is no JSON-RPC."""
    stream, body = response.stream, b""
    assert isinstance(stream, httpx2.AsyncByteStream)
    try:
        async with asyncio.timeout(_REFUSAL_S):
            async for chunk in stream:
                body += chunk
                if len(body) > _MAX_REFUSAL_BYTES:
                    break
    except (TimeoutError, httpx2.HTTPError, httpx2.StreamError):
        pass  # the status is enough
    finally:
        await stream.aclose()
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = _RefusalError(message=body.decode("utf-8", "replace"))
    text = printable(" ".join(error.message.split()))[:_MAX_REFUSAL_SHOWN].rstrip(".")
    said = f"It answered {response.status_code} {response.reason_phrase}".rstrip() + (f": {text}" if text else "")
    said += "" if said.endswith(("?", "!")) else "."
    code = SESSION_GONE if _forgets_session(response, error) else error.code
    answer = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=said))
    response.stream = _Whole(answer.model_dump_json(by_alias=True).encode())
    response.headers["content-type"] = "application/json"
    return said


class _RefusalError(msgspec.Struct, frozen=True, kw_only=True):
    message: str = ""
    code: int = types.INTERNAL_ERROR


class _Refusal(msgspec.Struct, frozen=True):
    error: _RefusalError


def _forgets_session(response: httpx2.Response, error: _RefusalError) -> bool:
    """Whether it refuses a request because it does not know its session, as after a restart. It then has not carried
    the request out. "The client MUST start a new session" (MCP 2025-11-25, transports, about 404); many servers answer
    400 with a text such as "No valid session ID provided" instead."""
    if "mcp-session-id" not in response.request.headers or error.code == types.METHOD_NOT_FOUND:
        return False
    return response.status_code == 404 or (response.status_code == 400 and "session" in error.message.lower())


def unreachable(server: HttpServer, error: httpx2.HTTPError) -> str:
    """For an HTTP error before any answer: which address, why, and what to do."""
    why = printable(str(error)).rstrip(".") or "no answer in time"
    return f'{server.address} cannot be reached ({why}). Start that server, or correct "url" in its entry.'


class _Whole(httpx2.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


class _Readable(httpx2.AsyncByteStream):
    """A body of at most `max_bytes`, in which what the SDK's parser refuses is repaired: it would drop the message."""

    def __init__(self, body: Any, max_bytes: int | None) -> None:
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        repair = JSONRepair()
        async for chunk in self._body:
            size += len(chunk)
            if self._max_bytes is not None and size > self._max_bytes:
                raise httpx2.StreamError(_too_much())
            yield repair.feed(chunk)
        yield repair.close()

    async def aclose(self) -> None:
        await self._body.aclose()


class _Watched(ObjectReceiveStream[_Inbound]):
    def __init__(self, stream: Any, life: Life) -> None:
        self._stream = stream
        self._life = life

    async def receive(self) -> _Inbound:
        try:
            received: _Inbound = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._life.over(self._life.refused or "It closed the connection.")
            raise
        if isinstance(received, ValidationError):
            document = received.errors(include_url=False, include_context=False)[0]["input"]  # its text, or parsed
            data = document.encode() if isinstance(document, str) else msgspec.json.encode(document)
            return _unreadable(data, received) or received
        if isinstance(received, SessionMessage):
            mend(received.message)
        return received

    async def aclose(self) -> None:
        await self._stream.aclose()
