"""Logins for the page: `/api/auth/…`, plain HTTP around the auth runtime. A browser's `EventSource` may lose its
connection: events are kept until the login is over and read from where the reader was (`Last-Event-ID`). A login
without a reader is cancelled."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from makai.core.errors import Overloaded
from makai.server.http_json import answer, answering, read_body
from makai.transports.sse import encode_frames

if TYPE_CHECKING:
    from makai.auth.login import RunningLogin
    from makai.server.backend import Backend

MAX_LOGINS: Final = 16
MAX_BODY: Final = 64 * 1024
UNREAD_S: Final = 60.0
"""How long a login stays active without a reader: a page that is reloaded is back by then."""
KEEPALIVE_S: Final = 15.0

_STREAM: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class LoginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider_id: str
    account: str | None = None


class AnswerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt_id: str
    answer: str


class PageLogin:
    """One login, its events so far, and whether they are being read."""

    def __init__(self, flow: RunningLogin, unread_s: float = UNREAD_S) -> None:
        self.flow = flow
        self.events: list[bytes] = []
        self.over = False
        self._unread_s = unread_s
        self._readers = 0
        self._news = asyncio.Condition()
        self._deadline: asyncio.TimerHandle | None = None
        self._following = asyncio.create_task(self._follow(), name=f"makai-page-login-{flow.flow_id}")
        self._wait_for_a_reader()

    async def read(self, seen: int, deadline_s: float) -> list[bytes]:
        """Events after the first `seen` ones; none when nothing happened in that time, or nothing will."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s), self._news:
                await self._news.wait_for(lambda: len(self.events) > seen or self.over)
        return self.events[seen:]

    def reader_comes(self) -> None:
        self._readers += 1
        if self._deadline is not None:
            self._deadline.cancel()

    def reader_goes(self) -> None:
        """The last one to go starts the clock."""
        self._readers -= 1
        if not self._readers:
            self._wait_for_a_reader()

    async def close(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.flow.cancel()
        await self._following

    def _wait_for_a_reader(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self._unread_s, self.flow.cancel)

    async def _follow(self) -> None:
        async for event in self.flow:
            await self._add(event)
        await self._add({"type": "result", "status": self.flow.result}, last=True)

    async def _add(self, event: object, *, last: bool = False) -> None:
        async with self._news:
            self.events.append(msgspec.json.encode(event))
            self.over = last
            self._news.notify_all()


class PageLogins:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._logins: dict[str, PageLogin] = {}

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/auth/providers", answering(self.providers))
        app.router.add_post("/api/auth/login", answering(self.login))
        app.router.add_get("/api/auth/flows/{flow_id}/events", self.events)
        app.router.add_post("/api/auth/flows/{flow_id}/answer", answering(self.answer))
        app.router.add_post("/api/auth/flows/{flow_id}/cancel", self.cancel)
        app.router.add_post("/api/auth/logout", answering(self.logout))
        app.on_shutdown.append(self.close)

    async def providers(self, request: web.Request) -> web.Response:
        """Every provider, with its accounts."""
        return answer({"providers": self._backend.auth().list_providers()})

    async def login(self, request: web.Request) -> web.Response:
        """Start a login; its events are read at `/api/auth/flows/{flow_id}/events`."""
        wanted = await read_body(request, LoginBody, MAX_BODY)
        if not self._has_room():
            raise Overloaded(f"{MAX_LOGINS} logins are already running.")
        flow = self._backend.auth().start_login(wanted.provider_id, str(uuid.uuid4()), wanted.account)
        self._logins[flow.flow_id] = PageLogin(flow)
        return answer({"flow_id": flow.flow_id})

    async def events(self, request: web.Request) -> web.StreamResponse:
        """The login's events, each as it happens; `result` is the last. 204 where that has been read."""
        login = self._login(request)
        seen = _last_event_id(request)
        if login.over and seen >= len(login.events):
            return web.Response(status=204)  # what tells an `EventSource` not to come back
        response = web.StreamResponse(headers=_STREAM)
        login.reader_comes()
        try:
            await response.prepare(request)
            await response.write(b": the login's events\n\n")
            while not (login.over and seen >= len(login.events)):
                news = await login.read(seen, KEEPALIVE_S)
                for event in news:
                    seen += 1
                    await response.write(f"id: {seen}\n".encode() + encode_frames([event]))
                if not news:
                    await response.write(b": keep-alive\n\n")
        finally:
            login.reader_goes()
        return response

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a prompt. `accepted` is false where it is not being asked (any more)."""
        login = self._login(request)
        given = await read_body(request, AnswerBody, MAX_BODY)
        return answer({"accepted": login.flow.answer(given.prompt_id, given.answer)})

    async def cancel(self, request: web.Request) -> web.Response:
        """End a login. `cancelled` is false where it has ended by itself."""
        return answer({"cancelled": self._login(request).flow.cancel()})

    async def logout(self, request: web.Request) -> web.Response:
        """Forget a login. `logged_out` is false where there was none."""
        wanted = await read_body(request, LoginBody, MAX_BODY)
        return answer({"logged_out": await self._backend.auth().logout(wanted.provider_id, wanted.account)})

    async def close(self, app: web.Application) -> None:
        await asyncio.gather(*(login.close() for login in self._logins.values()))

    def _login(self, request: web.Request) -> PageLogin:
        login = self._logins.get(request.match_info["flow_id"])
        if login is None:
            error = {"code": "stream_not_found", "message": "There is no such login; it has ended, or it never was."}
            raise web.HTTPNotFound(text=msgspec.json.encode({"error": error}).decode(), content_type="application/json")
        return login

    def _has_room(self) -> bool:
        """Whether one more fits in. What is over is kept for its reader until the place is needed."""
        for flow_id in [flow_id for flow_id, login in self._logins.items() if login.over]:
            if len(self._logins) < MAX_LOGINS:
                break
            del self._logins[flow_id]
        return len(self._logins) < MAX_LOGINS


def _last_event_id(request: web.Request) -> int:
    given = request.headers.get("Last-Event-ID", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
