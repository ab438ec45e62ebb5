"""Tool servers on a server connection, sans-IO. The scope of a tool server is live from `tool_register` to
`tool_unregistered`, or to the nack of the former; then it may begin with 1 again. An execution is open from its
`tool_request` to the client's `tool_response` or the server's `tool_cancel`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from makai.core.errors import InvalidRequest, MakaiError, RateLimited, SessionRefused
from makai.protocols.makai import tool_payloads as wire
from makai.protocols.makai.agent import check_tools
from makai.protocols.makai.commands import RegisterTools, TakeExecution, ToolServerCommand, UnregisterTools
from makai.protocols.makai.envelope import Envelope, Scope
from makai.protocols.makai.framing import EnvelopeSender, Inbound
from makai.protocols.makai.payloads import Ack
from makai.protocols.makai.projection import nack_of


class _ToolServer:
    def __init__(self, scope: Scope, message_id: str) -> None:
        self.scope = scope
        self.unanswered: str | None = message_id
        """The `tool_register` or `tool_unregister` that has no answer yet."""
        self.is_registered = False
        self.executions: set[str] = set()


class ToolServerScopes:
    """The tool servers of one connection. `forget` gets the scopes that have ended."""

    def __init__(
        self, sender: EnvelopeSender, inbound: Inbound, max_servers: int, forget: Callable[[Scope], None]
    ) -> None:
        self._sender = sender
        self._inbound = inbound
        self._max_servers = max_servers
        self._forget = forget
        self._servers: dict[str, _ToolServer] = {}

    @property
    def running(self) -> int:
        return len(self._servers)

    def is_live(self, scope: Scope) -> bool:
        return scope.kind == "server_id" and scope.id in self._servers

    def receive(self, envelope: Envelope, payload: msgspec.Struct, numbers_used: int) -> ToolServerCommand:
        """A request in the scope of a tool server. Raises what it is nacked for. In a live scope its numbers are taken
        already."""
        scope, message_id = envelope.scope, envelope.message_id
        if scope.kind != "server_id":
            raise InvalidRequest(f"{envelope.type} belongs to a server_id")
        server = self._servers.get(scope.id)
        match payload:
            case wire.ToolRegister():
                if server is not None:
                    raise InvalidRequest("this connection has registered the tool server already")
                check_tools(payload.tools)
                if len(self._servers) >= self._max_servers:
                    raise RateLimited(f"at most {self._max_servers} tool servers may be registered on one connection")
                self._inbound.take(scope, numbers_used)
                self._sender.sequences.begin(scope)
                self._servers[scope.id] = _ToolServer(scope, message_id)
                return RegisterTools(server_id=scope.id, message_id=message_id, request=payload)
            case wire.ToolUnregister():
                if server is None or server.unanswered is not None:
                    raise InvalidRequest("this connection has not registered the tool server")
                server.unanswered = message_id
                return UnregisterTools(server_id=scope.id, message_id=message_id)
            case wire.ToolExecutionStart() | wire.ToolExecutionUpdate() | wire.ToolResponse():
                return self._take(server, message_id, payload)
            case _:
                raise AssertionError("TOOL_CLIENT_PAYLOADS has no others")

    def _take(self, server: _ToolServer | None, message_id: str, said: wire.ExecutionMessage) -> TakeExecution:
        if server is None or said.execution_id not in server.executions:
            raise SessionRefused("UNKNOWN_CALL_ID", f"No execution {said.execution_id!r} waits for this client.")
        if isinstance(said, wire.ToolResponse):
            server.executions.discard(said.execution_id)
        self._reply(server, "ack", Ack(message_id), message_id)
        return TakeExecution(server_id=server.scope.id, said=said)

    def registered(self, server_id: str, tools: tuple[str, ...]) -> None:
        if (server := self._servers.get(server_id)) is not None and (message_id := server.unanswered) is not None:
            server.unanswered, server.is_registered = None, True
            self._reply(server, "ack", Ack(message_id), message_id)
            self._reply(server, "tool_registered", wire.ToolRegistered(server_id=server_id, tools=tools), message_id)

    def unregistered(self, server_id: str) -> None:
        """The last envelopes of the scope."""
        if (server := self._servers.pop(server_id, None)) is not None and (message_id := server.unanswered) is not None:
            self._reply(server, "ack", Ack(message_id), message_id)
            self._reply(server, "tool_unregistered", wire.ToolUnregistered(server_id), message_id)
            self._forget(server.scope)

    def refuse(self, server_id: str, error: MakaiError) -> None:
        """The request that has no answer yet cannot be carried out."""
        server = self._servers.get(server_id)
        if server is None or (message_id := server.unanswered) is None:
            return
        server.unanswered = None
        self._reply(server, "nack", nack_of(message_id, error), message_id)
        if not server.is_registered:
            del self._servers[server_id]
            self._forget(server.scope)

    def request(self, server_id: str, request: wire.ToolRequestMessage) -> None:
        if (server := self._servers.get(server_id)) is not None:
            server.executions.add(request.execution_id)
            self._sender.send(server.scope, "tool_request", request, exact=True)

    def cancel(self, server_id: str, cancelled: wire.ToolCancel) -> None:
        """The answer is no longer wanted; nothing happens when it came."""
        server = self._servers.get(server_id)
        if server is not None and cancelled.execution_id in server.executions:
            server.executions.discard(cancelled.execution_id)
            self._sender.send(server.scope, "tool_cancel", cancelled)

    def _reply(self, server: _ToolServer, kind: str, payload: Any, message_id: str) -> None:
        self._sender.send(server.scope, kind, payload, in_reply_to=message_id)
