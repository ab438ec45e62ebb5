"""The Makai protocol on a channel: where its sans-IO server meets tasks, time and a transport.

In: a `Channel` and a `Backend`. Out: nothing; returns when the connection is over. Every stream is a task of the
connection's task group, so nothing outlives it: a client that goes takes its upstream requests with it (MK-TRANS-005).

One writer task empties the outbox, so frames leave in the order they were numbered. A slow reader fills the outbox;
past its bound the streams of that connection wait, and so do their upstreams.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, TypeAlias

from makai.core.errors import ChannelClosed, MakaiError, Overloaded
from makai.core.messages import AssistantMessage
from makai.core.stream_events import TERMINAL, Failed, StreamEvent
from makai.protocols.makai.agent_commands import AgentCommand, AnswerTool, AskSession
from makai.protocols.makai.auth import AuthCommand
from makai.protocols.makai.envelope import Scope
from makai.protocols.makai.server import (
    CancelStream,
    Command,
    EndConnection,
    Limits,
    ListModels,
    OpenStream,
    ServerConnection,
)
from makai.server.backend import Backend
from makai.server.makai_login import ConnectionLogins
from makai.server.metrics import Metrics
from makai.transports.channel import Channel, Oversized

if TYPE_CHECKING:
    from makai.server.makai_agents import ConnectionAgents
    from makai.sessions.service import Sessions

log = logging.getLogger(__name__)

OpenSessions: TypeAlias = "Callable[[], Awaitable[Sessions]]"
"""Gives the one service of this server's sessions; opened when it is first wanted."""

OUTBOX_BYTES = 1024 * 1024
"""How much may wait for a slow reader before the streams of its connection wait too."""


class MakaiServer:
    """Serves the protocol on any number of channels over one backend. Without `sessions` it runs no agents."""

    def __init__(
        self,
        backend: Backend,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
        sessions: OpenSessions | None = None,
    ) -> None:
        self.backend = backend
        self.sessions = sessions
        self.metrics = metrics or Metrics()
        self.draining = False
        self._limits = limits or Limits()
        self._running = 0
        self._quiet = asyncio.Event()

    async def serve(self, channel: Channel) -> None:
        """Serve one client until it or the channel is gone."""
        await self._serve(_Connection(self, channel, self._limits, close_when_idle=False))

    async def serve_until_idle(self, channel: Channel) -> None:
        """The same, but close the channel when no request is running: what a POST answered by SSE wants."""
        await self._serve(_Connection(self, channel, self._limits, close_when_idle=True))

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and give the running ones so long to end."""
        self.draining = True
        if self._running:
            self._quiet.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._quiet.wait()

    def stream_begins(self) -> None:
        """Count a model request that starts."""
        self._running += 1
        self.metrics.streams_open = self._running

    def stream_ends(self) -> None:
        """Count one that is over."""
        self._running -= 1
        self.metrics.streams_open = self._running
        if not self._running:
            self._quiet.set()

    async def _serve(self, connection: _Connection) -> None:
        self.metrics.connections_open += 1
        self.metrics.connections_total += 1
        try:
            await connection.run()
        finally:
            self.metrics.connections_open -= 1


class _Connection:
    """One client's channel, protocol state and tasks."""

    def __init__(self, server: MakaiServer, channel: Channel, limits: Limits, *, close_when_idle: bool) -> None:
        self._server = server
        self._channel = channel
        self._protocol = ServerConnection(limits, agents=server.sessions is not None)
        self._close_when_idle = close_when_idle
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._something_to_write = asyncio.Event()
        self._room = asyncio.Event()
        self._reading = True
        self._logins = ConnectionLogins(self._protocol.auth, server.backend, self._something_to_write.set)
        self._agents: ConnectionAgents | None = None

    async def run(self) -> None:
        """Read, answer, write, until one side is done."""
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(), name="makai-writer")
                await self._read(group)
                self._reading = False
                for task in list(self._tasks.values()):
                    task.cancel()
                self._logins.cancel()
                if self._agents is not None:
                    self._agents.cancel()
                self._something_to_write.set()
                # What was answered before the goodbye still goes out; a reader that takes nothing is not waited for.
                with suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await asyncio.wait({writer})
                writer.cancel()
        finally:
            await self._channel.close()

    async def _read(self, group: asyncio.TaskGroup) -> None:
        while True:
            frame = await self._channel.receive()
            if frame is None:
                return
            if isinstance(frame, Oversized):
                self._protocol.receive_oversized(frame.limit)
                commands: list[Command] = []
            else:
                commands = self._protocol.receive(frame, time.monotonic())
            for command in commands:
                if isinstance(command, EndConnection):
                    return
                self._carry_out(command, group)
            self._something_to_write.set()
            await self._wait_for_room()

    def _carry_out(
        self, command: OpenStream | CancelStream | ListModels | AuthCommand | AgentCommand, group: asyncio.TaskGroup
    ) -> None:
        match command:
            case OpenStream() if self._server.draining:
                error = Overloaded("the server is shutting down", hint="Try again in a moment.")
                self._protocol.refuse(Scope("stream_id", command.stream_id), error)
            case OpenStream():
                task = group.create_task(self._stream(command), name=f"makai-stream-{command.stream_id}")
                self._tasks[command.stream_id] = task
            case CancelStream():
                task_to_stop = self._tasks.pop(command.stream_id, None)
                if task_to_stop is not None:
                    task_to_stop.cancel()
            case ListModels():
                group.create_task(self._list_models(command), name="makai-models")
            case AskSession() | AnswerTool():
                self._session_agents().carry_out(command, group, draining=self._server.draining)
            case _:
                self._logins.carry_out(command, group)

    def _session_agents(self) -> ConnectionAgents:
        """Loaded with the first request about a session: `makai stdio` answers a ping without them."""
        if self._agents is None:
            from makai.server.makai_agents import ConnectionAgents

            sessions = self._server.sessions
            assert sessions is not None, "the protocol refuses agents where there are no sessions"
            self._agents = ConnectionAgents(
                self._protocol.agents,
                self._server.backend,
                sessions,
                self._something_to_write.set,
                self._wait_for_room,
            )
        return self._agents

    async def _stream(self, command: OpenStream) -> None:
        """Run one model request. Whatever happens, the client hears of exactly one end."""
        metrics = self._server.metrics
        self._server.stream_begins()
        accepted = False
        last: StreamEvent | None = None
        try:
            events = self._server.backend.stream(command.model, command.context, command.options)
            async with aclosing(events):
                async for event in events:
                    if not accepted:
                        accepted = True
                        metrics.streams_total += 1
                        self._protocol.accept(command.stream_id)
                    last = event
                    metrics.events_total += 1
                    self._protocol.event(command.stream_id, event)
                    self._something_to_write.set()
                    if self._protocol.pending_bytes > OUTBOX_BYTES:
                        await self._wait_for_room()
            if not isinstance(last, TERMINAL):
                raise MakaiError("the provider ended without an answer")
        except MakaiError as error:
            self._end_in_error(command.stream_id, error, accepted=accepted)
        except Exception:
            log.exception("a stream failed unexpectedly")
            self._end_in_error(command.stream_id, MakaiError("internal error"), accepted=accepted)
        finally:
            self._server.stream_ends()
            metrics.streams_failed += isinstance(last, Failed)
            self._tasks.pop(command.stream_id, None)
            self._something_to_write.set()

    def _end_in_error(self, stream_id: str, error: MakaiError, *, accepted: bool) -> None:
        if not accepted:
            self._server.metrics.streams_refused += 1
            self._protocol.refuse(Scope("stream_id", stream_id), error)
            return
        failed = Failed(
            reason="error",
            error_code=error.code,
            error_message=error.message,
            message=AssistantMessage(content=()),
            hint=error.hint,
        )
        self._protocol.event(stream_id, failed)

    async def _list_models(self, command: ListModels) -> None:
        try:
            self._protocol.models(command.scope, await self._server.backend.models(command.request))
        except MakaiError as error:
            self._protocol.refuse(command.scope, error)
        except Exception:
            log.exception("listing models failed unexpectedly")
            self._protocol.refuse(command.scope, MakaiError("internal error"))
        self._something_to_write.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._something_to_write.wait()
                self._something_to_write.clear()
                while frames := self._protocol.take():
                    self._room.set()
                    await self._channel.send(frames)
                if not self._reading:
                    return
                if self._close_when_idle and not self._protocol.busy:
                    break
        except ChannelClosed:
            pass
        self._room.set()
        # The reader sees the end of the channel and winds everything up.
        await self._channel.close()

    async def _wait_for_room(self) -> None:
        while self._protocol.pending_bytes > OUTBOX_BYTES and self._reading:
            self._room.clear()
            await self._room.wait()
