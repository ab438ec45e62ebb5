"""Tool servers: programs that register tools under a name, for every session whose terms name them.

`ToolServers` are the registrations in the process that owns the sessions, `ServedTools` the tools of one run. A model
sees `server__tool`, so that two servers may have tools of one name, and the server gets `tool`. Registrations of one id
by one token stack: the newest gets the calls, and the one before it when the newest ends. While an id is registered, no
other token can register it.

A call fails with `tool_unavailable` when the server is not connected or disconnects, and with `tool_timeout` when it
does not answer. The tools of a server that disconnected stay known, so that a model which calls them learns the reason.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from makai.core.errors import Forbidden, InvalidRequest, MakaiError, Overloaded, ToolTimeout, ToolUnavailable
from makai.core.request import ToolDefinition
from makai.core.session_events import Notice, SessionTerms
from makai.core.tool_server_ids import check_server_ids
from makai.harness.base import ExecuteServed, Report, RunPort, ToolAnswer, ToolRequest, ToolServerOffer
from makai.harness.client_tools import ToolExecutor, described, outcome_of
from makai.tools.base import CallDescription, ToolContext, ToolOutcome, text_outcome

MAX_SERVERS: Final = 256
MAX_TOOLS: Final = 128
MAX_CALLS: Final = 256
"""Calls of one registration that may be under way at the same time."""
MAX_TIMEOUT_S: Final = 86_400.0
ARRIVAL_S: Final = 2.0
"""How long after the start of an owner a run waits for the servers that it names."""
SEPARATOR: Final = "__"
_SLACK_S: Final = 5.0
"""How much later a wait here ends than that of the connection, whose message is better."""
_FULL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every model API takes as the name of a tool."""


def prefix_of(server_id: str) -> str:
    return f"{server_id}{SEPARATOR}"


def full_names(offer: ToolServerOffer) -> tuple[str, ...]:
    """The names that models see. Raises `InvalidRequest` for an offer that cannot be registered."""
    check_server_ids((offer.server_id,))
    names = tuple(prefix_of(offer.server_id) + tool.name for tool in offer.tools)
    if not 1 <= len(names) <= MAX_TOOLS or len(set(names)) < len(names):
        raise InvalidRequest(f"A tool server has 1 to {MAX_TOOLS} tools, each with a name of its own.")
    for tool, name in zip(offer.tools, names, strict=True):
        if not tool.name or not _FULL_NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} cannot be the name of a tool.",
                hint="With its server's id it has at most 64 letters, digits, dashes and underscores.",
            )
    if not 0 < offer.timeout_s <= MAX_TIMEOUT_S:
        raise InvalidRequest(f"The timeout of a tool server is more than 0 s and at most {MAX_TIMEOUT_S:g} s.")
    return names


class _Registration(ToolExecutor):
    def __init__(self, registrations: list[Self], offer: ToolServerOffer, execute: ExecuteServed) -> None:
        super().__init__(registrations)
        self.offer = offer
        self.execute = execute


class _Server:
    """One id: its registrations, the newest last, and what the newest of all offered."""

    def __init__(self, offer: ToolServerOffer) -> None:
        self.last_offer = offer
        self.registrations: list[_Registration] = []

    @property
    def offer(self) -> ToolServerOffer:
        return self.registrations[-1].offer if self.registrations else self.last_offer


class ToolServers:
    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}
        self._made_at = time.monotonic()
        self._news = asyncio.Event()

    def register(self, offer: ToolServerOffer, execute: ExecuteServed) -> ToolExecutor:
        """Raises `InvalidRequest`, `Forbidden` for an id that another token has registered, and `Overloaded`."""
        full_names(offer)
        server = self._servers.get(offer.server_id)
        if server is not None and server.registrations and server.offer.token != offer.token:
            raise Forbidden(
                f"The tool server {offer.server_id!r} is registered by another token.", hint="Choose another id."
            )
        if server is None:
            self._make_room()
            server = self._servers[offer.server_id] = _Server(offer)
        server.last_offer = offer
        self._news.set()
        return _Registration(server.registrations, offer, execute)

    async def arrival(self, terms: SessionTerms) -> None:
        """Wait for servers that the terms name, but only in the first moments of this owner: programs that were
        registered with the owner before it register again."""
        while any(not self.offer(server_id, terms)[1] for server_id in terms.tool_servers):
            left_s = self._made_at + ARRIVAL_S - time.monotonic()
            if left_s <= 0:
                return
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._news.wait()

    def offer(self, server_id: str, terms: SessionTerms) -> tuple[ToolServerOffer | None, bool]:
        """What a server offers, or offered last, to a session with these terms, and whether it is connected."""
        server = self._servers.get(server_id)
        if server is None or not _may_use(terms, server.offer):
            return None, False
        return server.offer, bool(server.registrations)

    async def execute(self, terms: SessionTerms, request: ToolRequest, report: Report) -> ToolAnswer:
        """Have the newest registration of the request's server execute a call for a session with these terms."""
        server = self._servers.get(request.server_id)
        if server is None or not server.registrations or not _may_use(terms, server.offer):
            raise ToolUnavailable(not_connected(request.server_id))
        chosen = server.registrations[-1]
        if chosen.calls >= MAX_CALLS:
            raise Overloaded(f"The tool server {request.server_id!r} executes {MAX_CALLS} calls already.")
        try:
            # The connection waits for the start of the call, then for its answer.
            async with asyncio.timeout(2 * chosen.offer.timeout_s + _SLACK_S):
                answer = await chosen.answer(chosen.execute(request, report))
        except TimeoutError:
            raise ToolTimeout(f"The tool server {request.server_id!r} did not answer in time.") from None
        if answer is None:
            raise ToolUnavailable(f"The tool server {request.server_id!r} disconnected during the call.")
        return answer

    def _make_room(self) -> None:
        """Forget the servers that are not connected, the oldest first, when there are too many."""
        for server_id, server in list(self._servers.items()):
            if len(self._servers) < MAX_SERVERS:
                return
            if not server.registrations:
                del self._servers[server_id]
        if len(self._servers) >= MAX_SERVERS:
            raise Overloaded(f"{MAX_SERVERS} tool servers are registered already.")


def not_connected(server_id: str) -> str:
    return f"The tool server {server_id!r} is not connected."


def _may_use(terms: SessionTerms, offer: ToolServerOffer) -> bool:
    return offer.token == terms.tool_servers_token if terms.tool_servers_token else offer.is_shared


class ServedTools:
    """The tools of the servers that a session's terms name, for one run."""

    def __init__(self, servers: ToolServers, port: RunPort) -> None:
        self._servers = servers
        self._port = port
        self._tools: dict[ToolServerOffer, dict[str, ServerTool]] = {}
        self._missing: set[str] = set()

    def current(self) -> tuple[dict[str, ServerTool], list[Notice]]:
        """The tools that are known now, and notices about servers that are newly missing."""
        tools: dict[str, ServerTool] = {}
        notices: list[Notice] = []
        terms = self._port.session.terms
        for server_id in terms.tool_servers:
            offer, is_connected = self._servers.offer(server_id, terms)
            if offer is not None:
                # The same objects in every turn: compiled schemas are kept with them.
                if offer not in self._tools:
                    made = (ServerTool(self._servers, self._port, server_id, tool) for tool in offer.tools)
                    self._tools[offer] = {tool.definition.name: tool for tool in made}
                tools |= self._tools[offer]
            if is_connected:
                self._missing.discard(server_id)
            elif server_id not in self._missing:
                self._missing.add(server_id)
                message = f"{not_connected(server_id)} Calls of its tools fail until it is."
                notices.append(Notice(level="warning", code="tool_unavailable", message=message))
        return tools, notices


class ServerTool:
    """One tool of a server, as the agent loop sees it."""

    def __init__(self, servers: ToolServers, port: RunPort, server_id: str, tool: ToolDefinition) -> None:
        self.definition = msgspec.structs.replace(tool, name=prefix_of(server_id) + tool.name)
        self._name = tool.name
        self._server_id = server_id
        self._servers = servers
        self._port = port

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """Only the program that registered the tool knows what a call does."""
        title = f"{self._name} of the tool server {self._server_id}"
        return described(self.definition, title)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        port = self._port
        request = ToolRequest(
            session_id=port.session_id,
            run_id=port.run_id,
            call_id=context.call_id,
            name=self._name,
            arguments=arguments,
            server_id=self._server_id,
        )
        try:
            answer = await self._servers.execute(port.session.terms, request, context.progress)
        except MakaiError as error:
            details = msgspec.json.encode({"error_code": error.code}).decode()
            failed = text_outcome(f"{error.code}: {error}", is_error=True)
            return msgspec.structs.replace(failed, details_json=details)
        return outcome_of(answer, port)
