"""Receives the answer of a login in the browser: a listener on 127.0.0.1 that serves one answer, then closes its port.

RFC 8252 section 7.3 (loopback redirect) and 8.3: the literal address, so that nothing but this machine can connect.
Other programs on the machine and pages in the browser can: hence only GET, only the redirect URI's own path and Host
(a foreign Host is DNS rebinding), only with the login's state, and small. Other requests get a page that says so and
change nothing.
"""

from __future__ import annotations

import asyncio
import errno
import html
import re
import socket
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import msgspec

from makai.auth.oauth import Callback, try_again
from makai.core.errors import InvalidRequest, MakaiError, ParseError
from makai.core.secret import Secret

WAIT_S: Final = 300.0
MAX_QUERY: Final = 8 * 1024
MAX_HEAD: Final = 256 * 1024
"""Request line and headers, read whole even when it will be refused: a browser that is cut off shows no page."""
MAX_CONNECTIONS: Final = 32
REQUEST_S: Final = 10.0
CLOSE_S: Final = 0.5

_TRIES: Final = 8
"""For a port that is free on 127.0.0.1 and on ::1."""
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.[01]")


class Page(msgspec.Struct, frozen=True):
    status: HTTPStatus
    text: str


class CallbackListener:
    """An open port and what has arrived there. Made by `listen`."""

    def __init__(self, callback: Callback, authority: str) -> None:
        self._callback = callback
        self._authority = authority
        self._answer: asyncio.Future[Secret] = asyncio.get_running_loop().create_future()
        self._connections: dict[asyncio.Task[None], None] = {}  # the oldest first

    @property
    def redirect_uri(self) -> str:
        return f"http://{self._authority}{self._callback.redirect_path}"

    async def code(self) -> Secret:
        """The code of the one valid answer; `AuthRequired` when the server refused or none comes in time."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            late = f"The browser brought no answer within {WAIT_S / 60:g} minutes."
            raise try_again(late, self._callback.provider_id) from None

    def respond(self, head: bytes) -> Page:
        """Judge one request by its head (up to the empty line); the first valid one settles the login."""
        line, _, rest = head.partition(b"\r\n")
        request = _REQUEST_LINE.fullmatch(line)
        if request is None:
            return Page(HTTPStatus.BAD_REQUEST, "That is not a request of a browser.")
        path, _, query = request[2].decode("ascii").partition("?")
        if len(query) > MAX_QUERY:
            return Page(HTTPStatus.REQUEST_URI_TOO_LONG, "The answer of the login page is too long.")
        if _hosts(rest) != [self._authority]:
            return Page(HTTPStatus.FORBIDDEN, "This address only serves logins of makai on this machine.")
        if not self._callback.is_addressed(urllib.parse.unquote(path)):
            return Page(HTTPStatus.NOT_FOUND, "There is nothing here.")
        if request[1] != b"GET":
            return Page(HTTPStatus.METHOD_NOT_ALLOWED, "Only the redirect of a login page is answered here.")
        if self._answer.done():
            return Page(HTTPStatus.GONE, "This login already has its answer. You can close this page.")
        return self._settle(query)

    def _settle(self, query: str) -> Page:
        try:
            self._answer.set_result(self._callback.read(query))
        except ParseError as error:
            hint = "Use the newest link, or start the login again."
            return Page(HTTPStatus.BAD_REQUEST, f"{error.message} {hint}")
        except MakaiError as error:
            self._answer.set_exception(error)
            return Page(HTTPStatus.BAD_REQUEST, error.message)
        return Page(HTTPStatus.OK, "makai has received the answer. You can close this page and go back.")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        if len(self._connections) > MAX_CONNECTIONS:  # silent ones must not keep the browser out
            next(iter(self._connections)).cancel()
        try:
            async with asyncio.timeout(REQUEST_S):
                writer.write(_encoded(await self._page(reader)))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the other side is gone, or never said what it wants
        finally:
            self._connections.pop(task, None)
            writer.close()

    async def _page(self, reader: asyncio.StreamReader) -> Page:
        try:
            return self.respond(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return Page(HTTPStatus.REQUEST_URI_TOO_LONG, "The answer of the login page is too long.")

    async def finish(self) -> None:
        """Let the last page go out, then end every connection."""
        if not self._answer.done():
            self._answer.cancel()
        elif not self._answer.cancelled():
            self._answer.exception()  # marks it as seen: the login may have ended another way
        if self._connections:
            _, late = await asyncio.wait(set(self._connections), timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


@asynccontextmanager
async def listen(
    callback: Callback, *, host: str = "127.0.0.1", ports: Sequence[int] = (0,)
) -> AsyncIterator[CallbackListener]:
    """Open the first free port of `ports` (0 is any) on 127.0.0.1 for the length of the block. `host` is how the
    redirect URI spells it: some servers have registered "localhost", which a browser may resolve to ::1, so the port is
    then opened there too. `InvalidRequest` when another program has all of the ports, on either address."""
    servers, listener = await _open(callback, host, ports)
    try:
        yield listener
    finally:
        for server in servers:
            server.close()
        await listener.finish()


async def _open(callback: Callback, host: str, ports: Sequence[int]) -> tuple[list[asyncio.Server], CallbackListener]:
    current: list[CallbackListener] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # the login is over
            await current[0].serve(reader, writer)

    for port in ports:
        for _ in range(_TRIES if port == 0 else 1):
            with suppress(OSError), ExitStack() as opened:
                sockets = _bound(port, both=host == "localhost")
                for each in sockets:
                    opened.enter_context(each)
                current[:] = [CallbackListener(callback, f"{host}:{sockets[0].getsockname()[1]}")]
                servers = [await asyncio.start_server(accept, sock=each, limit=MAX_HEAD) for each in sockets]
                opened.pop_all()
                return servers, current[0]
    named = " and ".join(str(port) for port in ports if port)
    message = f"The browser cannot hand over its answer: port {named or '0'} on this machine is in use."
    raise InvalidRequest(message, hint="End the program that uses it, perhaps another login that is still open.")


def _bound(port: int, *, both: bool) -> list[socket.socket]:
    """Listening sockets of this process alone. SO_REUSEADDR does not share a port with another listener on Linux; it
    only lets the next login have the port at once. `OSError` when one of the addresses is taken."""
    first = socket.create_server(("127.0.0.1", port))
    try:
        return (
            [first, socket.create_server(("::1", first.getsockname()[1]), family=socket.AF_INET6)] if both else [first]
        )
    except OSError as error:
        if error.errno in _NO_IPV6:
            return [first]
        first.close()
        raise


def _hosts(headers: bytes) -> list[str]:
    lines = (line.partition(b":") for line in headers.split(b"\r\n"))
    return [value.strip().decode("latin-1").lower() for name, _, value in lines if name.lower() == b"host"]


def _encoded(page: Page) -> bytes:
    title = "Logged in" if page.status == HTTPStatus.OK else "Not logged in"
    body = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>makai: {title}</title><style>body{{font:1.1rem/1.6 system-ui,sans-serif;max-width:34rem;"
        "margin:20vh auto;padding:0 1.5rem;color:CanvasText;background:Canvas}:root{color-scheme:light dark}</style>"
        f"<h1>makai</h1><p>{html.escape(page.text)}</p></html>"
    ).encode()
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
