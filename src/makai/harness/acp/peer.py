"""What makai needs of an external agent, whatever it speaks: the requests and updates of ACP as values.

An agent that speaks ACP is one already (`connection.AgentConnection`). For an agent with a protocol
of its own a driver translates: it answers the requests of ACP and reports the agent's output as updates of ACP, without
JSON in between. So everything above this port (questions, facts, the pool, choices) exists once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from makai.core import session_events as ev
from makai.core.errors import AgentFailed
from makai.harness.acp.connection import AgentTransport
from makai.wire.acp import client_calls, updates

StartTransport: TypeAlias = Callable[[Sequence[str], dict[str, str], str], Awaitable[AgentTransport]]
"""Starts a process: its command line, its whole environment, its folder."""


class AgentLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's process is started with. When it changes, another process is started for the session, which finds
    the agent's session again. A setting is given only to agents that take it (`AgentSpec.takes`)."""

    cwd: str
    model: str = ""
    effort: str = ""
    sandbox: ev.SandboxLevel = "workspace-write"
    system_append: str = ""
    """Instructions that are added to the agent's own."""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    max_turns: int | None = None
    json_schema: str | None = None
    """The JSON Schema that the last answer has to follow, for agents that can promise it."""
    options_json: str = "{}"
    """Settings that only this agent knows, as a JSON object."""


class AgentPeer(Protocol):
    """The agent, as requests of ACP reach it."""

    @property
    def ended(self) -> asyncio.Event:
        """Set when no further message comes."""

    @property
    def drift(self) -> Mapping[str, int]:
        """What the agent said that its driver does not know, and how often."""

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        """The answer to a request of ACP, as JSON values. `RpcError` when the agent refuses, `AgentFailed` when it has
        ended or gives no valid answer in time."""

    def notify(self, method: str, params: Any) -> None: ...

    def failure(self, why: str) -> AgentFailed:
        """An error about the agent; `why` continues a sentence that begins with its name."""

    async def close(self) -> None:
        """End the process with everything it started. May be repeated."""


class AgentClient(Protocol):
    """makai, as a driver's agent reaches it; `driven_agent.DrivenAgent` is one."""

    def on_process(self, process: AgentTransport) -> None:
        """A process that answers prompts was started: not one that only says its version or the like."""

    def on_session_update(self, session_id: str, update: updates.SessionUpdate) -> None: ...

    async def on_permission(
        self, request: client_calls.RequestPermissionRequest
    ) -> client_calls.RequestPermissionResponse:
        """The answer of a person or of the session's mode. A cancelled wait withdraws the question."""

    async def room(self) -> None:
        """Return when further updates can be taken: a slow log slows the agent."""


class RpcClient(AgentClient, Protocol):
    """A client that can also be reached over JSON-RPC."""

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any: ...
    def on_notification(self, method: str, params: msgspec.Raw | None) -> None: ...
