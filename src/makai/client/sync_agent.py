"""`client.agent` without `await`.

In: calls from any thread. Out: the same results, events and exceptions as `AgentApi`. It need not care about tools and
permission handlers: plain functions among them run in worker threads in both clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from makai.client.agent import AgentApi, AgentFollower, AgentStream
from makai.client.agent_requests import AgentRunFields, AgentTools
from makai.client.agent_types import (
    AgentRunRequest,
    AgentRunResponse,
    AgentSessionInfo,
    AgentStreamEvent,
    PermissionHandler,
)
from makai.client.portal import Portal, events_of


class SyncAgent:
    """`client.agent` without `await`."""

    def __init__(self, portal: Portal, api: AgentApi) -> None:
        self._portal = portal
        self._api = api

    def run(
        self, request: AgentRunRequest | Mapping[str, Any] | None = None, **fields: Unpack[AgentRunFields]
    ) -> AgentRunResponse:
        """Run an agent to its end. Ctrl-C while waiting stops the run."""
        return self._portal.run(self._api.run(request, **fields))

    def stream(
        self, request: AgentRunRequest | Mapping[str, Any] | None = None, **fields: Unpack[AgentRunFields]
    ) -> SyncAgentStream:
        """Run an agent and get what happens as it happens: `for event in client.agent.stream(...)`."""
        return SyncAgentStream(self._portal, self._api.stream(request, **fields))

    def attach(
        self,
        session_id: str,
        *,
        after_event_id: int | None = None,
        tools: AgentTools | None = None,
        on_permission_request: PermissionHandler | None = None,
    ) -> SyncAgentFollower:
        """Follow a session and all its runs, whoever starts them, until the loop is left."""
        follower = self._api.attach(
            session_id, after_event_id=after_event_id, tools=tools, on_permission_request=on_permission_request
        )
        return SyncAgentFollower(self._portal, follower)

    def stop(self, session_id: str, *, reason: str | None = None) -> None:
        """Stop the run that is active in a session, whoever started it; nothing happens when there is none."""
        self._portal.run(self._api.stop(session_id, reason=reason))

    def status(self, session_id: str) -> AgentSessionInfo:
        """How a session is: idle, running, waiting for whom, and what it has used."""
        return self._portal.run(self._api.status(session_id))


class SyncAgentStream:
    """The events of one run, for a plain `for` loop. Leaving it early stops the run."""

    def __init__(self, portal: Portal, stream: AgentStream) -> None:
        self._portal = portal
        self._stream = stream
        self.session_id = stream.session_id

    @property
    def response(self) -> AgentRunResponse | None:
        """The newest answer with the usage of all turns, once `agent_end` was delivered."""
        return self._stream.response

    @property
    def event_id(self) -> int | None:
        """Where `attach` can go on, when the connection is lost."""
        return self._stream.event_id

    def __iter__(self) -> Iterator[AgentStreamEvent]:
        # Only the generator holds the iterator: leaving the loop drops it, and that stops the run.
        return events_of(self._portal, aiter(self._stream))


class SyncAgentFollower:
    """What happens in a session, for a plain `for` loop. Leaving it leaves the session as it is."""

    def __init__(self, portal: Portal, follower: AgentFollower) -> None:
        self._portal = portal
        self._follower = follower
        self.session_id = follower.session_id

    @property
    def event_id(self) -> int | None:
        """Where another `attach` can go on after what was delivered."""
        return self._follower.event_id

    def __iter__(self) -> Iterator[AgentStreamEvent]:
        return events_of(self._portal, aiter(self._follower))
