"""The MiniCodex protocol on a WebSocket: its sans-IO connection, which alone decides the order of frames, joined to
tasks, time and sessions. A client that does not read costs what its socket buffers hold: the writer waits for it, the
log keeps the rest, and past a bound it is closed with its cursor still good for a resume. It never slows the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, assert_never
from uuid import uuid4

from makai.core.access import LOCAL, Caller
from makai.core.errors import ChannelClosed, MakaiError
from makai.protocols.minicodex.commands import Ask, Open, Request, TakeSnapshot
from makai.protocols.minicodex.server import DEFAULT_LIMITS, CloseCode, Limits, MinicodexConnection
from makai.server.metrics import Metrics
from makai.server.scopes import scoped
from makai.server.session_names import session_id_of
from makai.server.session_views import SessionViews, SharedView, is_gone, look_up_run
from makai.sessions.log import encoding
from makai.sessions.requests import CreateSession, GetState, ReadEvents, RunCommand
from makai.sessions.service import Sessions
from makai.transports.websocket import WebSocketChannel

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 15.0
REPLAY_EVENTS: Final = 1_000

MakeNew: TypeAlias = Callable[[Caller], Awaitable[CreateSession]]
"""The session a client gets who names none."""


class MinicodexServer:
    def __init__(
        self,
        sessions: Callable[[], Awaitable[Sessions]],
        make_new: MakeNew,
        *,
        limits: Limits = DEFAULT_LIMITS,
        heartbeat_s: float = HEARTBEAT_S,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.views = SessionViews(sessions)
        self.sessions = sessions
        self.make_new = make_new
        self.limits = limits
        self.heartbeat_s = heartbeat_s
        self._clients: set[_Client] = set()

    async def serve(
        self, channel: WebSocketChannel, session_id: str | None, name: str = "minicodex", caller: Caller = LOCAL
    ) -> None:
        """Serve one client until it is gone. `name` is who decides approvals there, as the log says it."""
        client = _Client(self, channel, session_id, name, caller)
        self._clients.add(client)
        try:
            with self.metrics.connected("minicodex", client.protocol):
                await client.run()
        finally:
            self._clients.discard(client)

    def close(self) -> None:
        """The server ends: hang up on everyone, whose cursors are good for the next one."""
        for client in self._clients:
            client.end(CloseCode.GOING_AWAY)


class _Client:
    def __init__(
        self, server: MinicodexServer, channel: WebSocketChannel, session_id: str | None, name: str, caller: Caller
    ) -> None:
        self._server = server
        self._sessions = scoped(server.sessions, caller)
        self._caller = caller
        self._channel = channel
        self.protocol = MinicodexConnection(
            session_id=session_id, new_id=lambda: str(uuid4()), client_name=name, limits=server.limits
        )
        self._shared: SharedView | None = None
        self._something_to_write = asyncio.Event()
        self._is_writer_idle = False
        self._written = asyncio.Event()
        self._is_over = asyncio.Event()
        self._close_code: int | None = None

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._read(), name="minicodex-reader"),
                    group.create_task(self._write(), name="minicodex-writer"),
                    group.create_task(self._beat(), name="minicodex-heartbeat"),
                ]
                await self._is_over.wait()
                for task in tasks:
                    task.cancel()
        finally:
            if self._shared is not None:
                await self._server.views.leave(self._shared, self._wake)
            if self._close_code is not None:
                await self._channel.close_with(self._close_code, CloseCode(self._close_code).name.lower())

    def end(self, code: CloseCode | None = None) -> None:
        """Be over, for the first reason that is given."""
        if not self._is_over.is_set():
            self._close_code = code
            self._is_over.set()

    def _wake(self) -> None:
        """Called by the view: something happened in the session."""
        if self.protocol.is_too_slow:
            self.end(CloseCode.TOO_SLOW)
        if not (self._is_writer_idle and self._is_told_at_once()):
            self._something_to_write.set()

    def _is_told_at_once(self) -> bool:
        """Tell a client that keeps up, without its writer: to wake a task is half of what an event costs per client."""
        if self.protocol.is_behind or self._is_over.is_set():
            return False
        frames = self.protocol.take()
        self._written.set()
        try:
            if frames and not self._channel.send_at_once(frames):
                self.protocol.give_back(frames)
        except ChannelClosed:
            self.end()
        return self.protocol.is_current and self._shared is not None and self._shared.gone is None

    async def _read(self) -> None:
        while isinstance(frame := await self._channel.receive(), bytes):
            resyncs = self.protocol.resyncs
            for request in self.protocol.receive(frame):
                await self._carry_out(request)
            self._server.metrics.resyncs.add(by=self.protocol.resyncs - resyncs)
            self._something_to_write.set()
            while self.protocol.is_full:
                self._written.clear()
                await self._written.wait()
        self.end()

    async def _carry_out(self, request: Request) -> None:
        try:
            match request:
                case Open():
                    await self._open(request)
                case Ask():
                    sessions = await self._sessions()
                    receipt = await sessions.dispatch(RunCommand(request.session_id, request.command))
                    self.protocol.answered(request, receipt)
                case TakeSnapshot():
                    assert self._shared is not None, "the protocol asks for snapshots of open sessions only"
                    await self._shared.until(request.at_least)
                    self.protocol.show(request)
                case _:
                    assert_never(request)
        except MakaiError as error:
            self.protocol.refused(request, error)
        except TimeoutError:
            self.protocol.refused(request, MakaiError("The session does not answer.", hint="Try again."))

    async def _open(self, request: Open) -> None:
        session_id = request.session_id
        sessions = await self._sessions()
        if session_id is None:
            session_id = await sessions.dispatch(await self._server.make_new(self._caller))
        else:
            session_id = await session_id_of(sessions, session_id)
        await sessions.dispatch(GetState(session_id))  # whether this caller may see it: views are shared
        former = self._shared
        self._shared = await self._server.views.enter(session_id, self._wake)
        if former is not None and former is not self._shared:
            await self._server.views.leave(former, self._wake)
        self.protocol.opened(request, self._shared.view)

    async def _write(self) -> None:
        try:
            while True:
                self._is_writer_idle = not self._something_to_write.is_set()
                await self._something_to_write.wait()
                self._is_writer_idle = False
                self._something_to_write.clear()
                await self._write_all()
                if self._shared is not None and self._shared.gone is not None:
                    await self._say_goodbye(self._shared.gone)
                    return
        except ChannelClosed:
            self.end()
        except MakaiError as error:
            log.warning("a client cannot be told what happened in its session: %s", error)
            self.end(CloseCode.GOING_AWAY)

    async def _write_all(self) -> None:
        while True:
            if self.protocol.is_behind:
                await self._replay()
            frames = self.protocol.take()
            self._written.set()
            if frames:
                await self._channel.send(frames)
                if self.protocol.is_current:
                    return
            elif not self.protocol.is_behind:  # what was replayed may have led to no frame for this client
                return

    async def _replay(self) -> None:
        """The next part of what the view no longer remembers, from the log."""
        session_id, cursor = self.protocol.session_id, self.protocol.cursor
        assert session_id is not None
        assert cursor is not None
        sessions = await self._sessions()
        if (lookup := self.protocol.lookup()) is not None:
            await look_up_run(sessions, session_id, lookup)
            self.protocol.begin_replay(lookup)
        records = await sessions.dispatch(ReadEvents(session_id, cursor, REPLAY_EVENTS))
        self._server.metrics.replayed.add(by=len(records))
        self.protocol.replay(encoding.decoded(records))

    async def _say_goodbye(self, why: MakaiError) -> None:
        if is_gone(why):
            self.protocol.session_gone()
            await self._channel.send(self.protocol.take())
            self.end(CloseCode.SESSION_GONE)
        else:
            self.end(CloseCode.GOING_AWAY)

    async def _beat(self) -> None:
        interval_s = self._server.heartbeat_s
        while True:
            await asyncio.sleep(interval_s)
            self.protocol.beat(int(interval_s * 1000))
            self._something_to_write.set()
