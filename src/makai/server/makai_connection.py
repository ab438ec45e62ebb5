"""The Makai protocol on a channel: its sans-IO server joined to tasks, time and a transport. Every stream is a task of
the connection's task group, so nothing outlives it: the upstream requests of a client end with its connection
(MK-TRANS-005). A slow reader fills the outbox; past its bound the streams of that connection wait, and so do their
upstreams."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from makai.core.access import LOCAL, Caller
from makai.core.errors import ChannelClosed, Forbidden, MakaiError, Overloaded, TransportError
from makai.core.stream_events import TERMINAL, Done, Failed, Start, StreamEvent
from makai.protocols.makai import commands as cmd
from makai.protocols.makai.auth import AuthCommand
from makai.protocols.makai.envelope import Scope
from makai.protocols.makai.projection import failed
from makai.protocols.makai.server import ConnectionLimits, ServerConnection
from makai.server.backend import Backend
from makai.server.makai_login import ConnectionLogins
from makai.server.metrics import Metrics
from makai.server.session_source import default_settings
from makai.transports.channel import Channel, Oversized
from makai.transports.connection import MAX_PENDING_BYTES, FrameWriter

if TYPE_CHECKING:
    from makai.core.messages import AssistantMessage
    from makai.core.observation import Observer, StreamReport
    from makai.core.settings import Settings
    from makai.server.makai_session import ConnectionAgents
    from makai.server.makai_tools import ConnectionTools
    from makai.server.session_source import SettingsOf
    from makai.sessions.service import Sessions

log = logging.getLogger(__name__)

OpenSessions: TypeAlias = "Callable[[], Awaitable[Sessions]]"
"""Gives the one service of this server's sessions; opened when it is first wanted."""

_FLUSH_DEADLINE_S = 5.0
"""What was answered before a goodbye still leaves, but a reader that takes nothing is not waited for."""


class MakaiServer:
    """Serves the protocol on any number of channels over one backend. Without `sessions` it runs no agents."""

    def __init__(
        self,
        backend: Backend,
        limits: ConnectionLimits | None = None,
        metrics: Metrics | None = None,
        sessions: OpenSessions | None = None,
        settings: SettingsOf = default_settings,
        observer: Observer | None = None,
    ) -> None:
        """`settings` are asked for sessions whose creator does not name them all."""
        self.backend = backend
        self.settings = settings
        self.observer = observer
        self.sessions = sessions
        self.metrics = metrics or Metrics()
        self.draining = False
        self.limits = limits or ConnectionLimits()
        self._running = 0
        self._quiet = asyncio.Event()

    async def serve(self, channel: Channel, caller: Caller = LOCAL) -> None:
        await self._serve(_Connection(self, channel, caller, close_when_idle=False))

    async def serve_until_idle(self, channel: Channel, caller: Caller = LOCAL) -> None:
        """The same, but close the channel when no request is running: what a POST answered by SSE wants."""
        await self._serve(_Connection(self, channel, caller, close_when_idle=True))

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and give the running ones so long to end."""
        self.draining = True
        if self._running:
            self._quiet.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._quiet.wait()

    def count_streams(self, change: Literal[1, -1]) -> None:
        self._running += change
        self.metrics.streams_open = self._running
        if not self._running:
            self._quiet.set()

    async def _serve(self, connection: _Connection) -> None:
        with self.metrics.connected("makai", connection):
            await connection.run()


class _Connection:
    def __init__(self, server: MakaiServer, channel: Channel, caller: Caller, *, close_when_idle: bool) -> None:
        self._server = server
        self._caller = caller
        self._channel = channel
        self._protocol = ServerConnection(server.limits, agents=server.sessions is not None)
        self._close_when_idle = close_when_idle
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hanging_up: asyncio.Task[None] | None = None
        self._writer = FrameWriter(channel, self._protocol, self._hang_up, on_written=self._hang_up_when_idle)
        self._logins = ConnectionLogins(self._protocol.auth, server.backend, self._writer.wake)
        self._agents: ConnectionAgents | None = None
        self._tools: ConnectionTools | None = None

    async def run(self) -> None:
        """Read, answer, write, until one side is done."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._read(group)
                for task in list(self._tasks.values()):
                    task.cancel()
                self._logins.cancel()
                for part in (self._agents, self._tools):
                    if part is not None:
                        part.cancel()
                self._writer.wake()
                await self._writer.close(_FLUSH_DEADLINE_S)
        finally:
            await self._writer.close(0)
            await self._channel.close()
            if self._hanging_up is not None:
                await self._hanging_up

    @property
    def pending_bytes(self) -> int:
        return self._protocol.pending_bytes

    def _hang_up(self, error: TransportError | None = None) -> None:
        """Close the channel; the reader sees its end and ends everything."""
        if self._hanging_up is None:
            self._hanging_up = asyncio.create_task(self._channel.close(), name="makai-hang-up")

    def _hang_up_when_idle(self) -> None:
        if self._close_when_idle and not self._protocol.busy:
            self._hang_up()

    async def _read(self, group: asyncio.TaskGroup) -> None:
        while (frame := await self._channel.receive()) is not None:
            commands: list[cmd.Command] = []
            if isinstance(frame, Oversized):
                self._protocol.receive_oversized(frame.limit, frame.start)
            else:
                commands = self._protocol.receive(frame, time.monotonic())
            for command in commands:
                if isinstance(command, cmd.EndConnection):
                    return
                if not self._is_refused(command):
                    self._carry_out(command, group)
            self._writer.wake()
            with suppress(ChannelClosed):  # then the channel ends too
                await self._writer.room()

    def _is_refused(self, command: cmd.Command) -> bool:
        """Whether the caller's token does not allow the command, which was then answered."""
        if self._caller is LOCAL:
            return False
        from makai.server.scopes import check_makai  # not for `makai stdio`, whose callers are local

        try:
            check_makai(self._caller, command)
        except Forbidden as error:
            match command:
                case cmd.OpenStream(stream_id=stream_id):
                    self._protocol.refuse(Scope("stream_id", stream_id), error)
                case cmd.ListModels(scope=scope):
                    self._protocol.refuse(scope, error)
                case cmd.AskSession(session_id=session_id, message_id=message_id):
                    self._protocol.agents.refuse(session_id, message_id, error)
                case cmd.RegisterTools(server_id=server_id) | cmd.UnregisterTools(server_id=server_id):
                    self._protocol.tools.refuse(server_id, error)
                case _:
                    self._logins.refuse(command, error)
            return True
        return False

    def _carry_out(
        self,
        command: cmd.StreamCommand | AuthCommand | cmd.AgentCommand | cmd.ToolServerCommand,
        group: asyncio.TaskGroup,
    ) -> None:
        match command:
            case cmd.OpenStream() if self._server.draining:
                error = Overloaded("the server is shutting down", hint="Try again in a moment.")
                self._protocol.refuse(Scope("stream_id", command.stream_id), error)
            case cmd.OpenStream():
                task = group.create_task(self._stream(command), name=f"makai-stream-{command.stream_id}")
                self._tasks[command.stream_id] = task
            case cmd.CancelStream():
                if running := self._tasks.pop(command.stream_id, None):
                    running.cancel()
            case cmd.ListModels():
                group.create_task(self._list_models(command), name="makai-models")
            case cmd.AskSession() | cmd.AnswerTool():
                self._session_agents().carry_out(command, group, draining=self._server.draining)
            case cmd.RegisterTools() | cmd.UnregisterTools() | cmd.TakeExecution():
                self._tool_servers().carry_out(command, group, draining=self._server.draining)
            case _:
                self._logins.carry_out(command, group)

    def _session_agents(self) -> ConnectionAgents:
        """Loaded with the first request about a session: `makai stdio` answers a ping without them."""
        if self._agents is None:
            from makai.server.makai_session import ConnectionAgents, ConnectionParts

            server, writer, sessions = self._server, self._writer, self._scoped_sessions()
            parts = ConnectionParts(
                self._protocol.agents, server.backend, sessions, writer.wake, writer.room, self._settings
            )
            self._agents = ConnectionAgents(parts)
        return self._agents

    async def _settings(self, folder: str | None) -> Settings:
        return await self._server.settings(folder, self._caller)

    def _tool_servers(self) -> ConnectionTools:
        if self._tools is None:
            from makai.server.makai_tools import ConnectionTools

            self._tools = ConnectionTools(self._protocol.tools, self._scoped_sessions(), self._writer.wake)
        return self._tools

    def _scoped_sessions(self) -> OpenSessions:
        from makai.server.scopes import scoped

        assert self._server.sessions is not None, "the protocol refuses agents where there are no sessions"
        return scoped(self._server.sessions, self._caller, self._server.settings)

    async def _stream(self, command: cmd.OpenStream) -> None:
        """Run one model request. Whatever happens, the client hears of exactly one end."""
        metrics = self._server.metrics
        self._server.count_streams(1)
        accepted = False
        sent = 0
        last: StreamEvent | None = None
        began = time.time_ns()
        try:
            events = self._server.backend.stream(command.model, command.context, command.options)
            async with aclosing(events):
                async for event in events:
                    if not accepted:
                        accepted = True
                        metrics.streams.add()
                        self._protocol.accept(command.stream_id, event.partial if isinstance(event, Start) else None)
                    last = event
                    sent += 1
                    self._protocol.event(command.stream_id, event)
                    self._writer.wake()
                    if self._protocol.pending_bytes > MAX_PENDING_BYTES:
                        await self._writer.room()
            if not isinstance(last, TERMINAL):
                raise MakaiError("the provider ended without an answer")
        except MakaiError as error:
            self._end_in_error(command.stream_id, error, accepted=accepted)
        except Exception:
            log.exception("a stream failed unexpectedly")
            self._end_in_error(command.stream_id, MakaiError("internal error"), accepted=accepted)
        finally:
            self._server.count_streams(-1)
            metrics.streams_failed.add(by=isinstance(last, Failed))
            metrics.stream_events.add(by=sent)
            if self._server.observer is not None and isinstance(last, Done | Failed):
                code = last.error_code if isinstance(last, Failed) else ""
                self._server.observer.streamed(_report(last.message, code, began, self._caller.trace_parent))
            self._tasks.pop(command.stream_id, None)
            self._writer.wake()

    def _end_in_error(self, stream_id: str, error: MakaiError, *, accepted: bool) -> None:
        if accepted:
            self._protocol.event(stream_id, failed(error))
        else:
            self._server.metrics.streams_refused.add()
            self._protocol.refuse(Scope("stream_id", stream_id), error)

    async def _list_models(self, command: cmd.ListModels) -> None:
        try:
            self._protocol.models(command.scope, await self._server.backend.models(command.request))
        except MakaiError as error:
            self._protocol.refuse(command.scope, error)
        except Exception:
            log.exception("listing models failed unexpectedly")
            self._protocol.refuse(command.scope, MakaiError("internal error"))
        self._writer.wake()


def _report(message: AssistantMessage, error_code: str, began_ns: int, trace_parent: str) -> StreamReport:
    from makai.core.observation import StreamReport  # not for `makai stdio`, which reports nothing

    return StreamReport(
        provider=message.provider,
        model=message.model,
        began_ms=began_ns // 1_000_000,
        ended_ms=time.time_ns() // 1_000_000,
        usage=message.usage,
        stop_reason=message.stop_reason or "",
        error_code=error_code,
        trace_parent=trace_parent,
    )
