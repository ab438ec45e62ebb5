"""`client.agent`: runs with tools and turns.

In: the caller's request. Out: the protocol's `agent_start`, and the server's refusal of it. Running agents is not part
of this version; asking is, because "not_implemented" is how a server says so (document 000 §9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from makai.client.connection import Connection
from makai.client.requests import Messages, Options, Tools, payload_of, request_of
from makai.client.types import AgentRunRequest, CompletionResponse, ProviderStreamEvent
from makai.core.errors import MakaiStreamError
from makai.core.request import ToolDefinition
from makai.protocols.makai.payloads import RequestOptions


class AgentStart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of `agent_start`."""

    model_ref: str
    tools: tuple[ToolDefinition, ...] = ()
    options: RequestOptions = RequestOptions()


class AgentApi:
    """Agents of the server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(
        self,
        request: AgentRunRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> CompletionResponse:
        """Run an agent to its end."""
        await _start(self._connection, request_of(AgentRunRequest, request, model_ref, messages, tools, options))

    def stream(
        self,
        request: AgentRunRequest | Mapping[str, Any] | None = None,
        *,
        model_ref: str | None = None,
        messages: Messages | None = None,
        tools: Tools | None = None,
        options: Options | None = None,
    ) -> AgentStream:
        """Run an agent and get what happens as it happens."""
        return AgentStream(self._connection, request_of(AgentRunRequest, request, model_ref, messages, tools, options))


class AgentStream:
    """The events of one run; the request is sent when iteration begins."""

    def __init__(self, connection: Connection, request: AgentRunRequest) -> None:
        self._connection = connection
        self._request = request

    def __aiter__(self) -> AgentStream:
        return self

    async def __anext__(self) -> ProviderStreamEvent:
        await _start(self._connection, self._request)

    async def batch(self) -> list[ProviderStreamEvent]:
        """As many events as need no waiting, as `ProviderStreamIterator.batch`."""
        return [await anext(self)]


async def _start(connection: Connection, request: AgentRunRequest) -> NoReturn:
    payload = payload_of(request)
    exchange = await connection.open("session_id")
    try:
        exchange.send(
            "agent_start", AgentStart(model_ref=request.model_ref, tools=request.tools, options=payload.options)
        )
        await exchange.next()
    finally:
        exchange.end()
    raise MakaiStreamError("this version of the SDK cannot run agents", kind="unknown", code="not_implemented")
