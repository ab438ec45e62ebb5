"""Agents on a protocol connection: joins its agent scopes to the sessions of this MAKAI_HOME.

When a client disconnects, only its own tools become unavailable; its runs continue and other clients see them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

from makai.core.errors import Overloaded
from makai.protocols.makai.agent import AgentScopes
from makai.protocols.makai.agent_payloads import AgentMessage, AgentStart
from makai.protocols.makai.commands import AgentCommand, AnswerTool, AskSession
from makai.server.backend import Backend
from makai.server.makai_session import ConnectionParts, SessionConnection
from makai.sessions.service import Sessions


class ConnectionAgents:
    """The sessions that one connection uses."""

    def __init__(
        self,
        scopes: AgentScopes,
        backend: Backend,
        sessions: Callable[[], Awaitable[Sessions]],
        on_news: Callable[[], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._parts = ConnectionParts(scopes, backend, sessions, on_news, room)
        self._open: dict[str, SessionConnection] = {}

    def carry_out(self, command: AgentCommand, group: asyncio.TaskGroup, *, draining: bool) -> None:
        """Do what the client asked for. Requests of one session are answered in the order in which they came."""
        match command:
            case AnswerTool():
                if session := self._open.get(command.session_id):
                    session.take_result(command.result)
            case AskSession(request=AgentStart() | AgentMessage()) if draining:
                error = Overloaded("the server is shutting down", hint="Try again in a moment.")
                self._parts.scopes.refuse(command.session_id, command.message_id, error)
            case AskSession():
                known = self._open.get(command.session_id)
                if known is None:
                    known = SessionConnection(command.session_id, self._parts, group, self._forget)
                    self._open[command.session_id] = known
                known.put(command)
            case _:
                assert_never(command)

    def cancel(self) -> None:
        for session in list(self._open.values()):
            session.abandon()

    def _forget(self, session: SessionConnection) -> None:
        if self._open.get(session.session_id) is session:
            del self._open[session.session_id]
