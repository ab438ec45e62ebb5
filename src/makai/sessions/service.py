"""The contract of sessions: `owner.OwnedSessions` implements it in the process that owns the log,
`server.session_router` in every other process. Callers do not know which of the two they talk to."""

from __future__ import annotations

from typing import Protocol

from makai.harness.base import Execute, ExecuteServed, ToolServerOffer
from makai.sessions.log.base import Record
from makai.sessions.requests import AnswerT, Request


class ToolRegistration(Protocol):
    """A client's offer to execute the tools of a session."""

    def unregister(self) -> None:
        """Withdraw the offer. Calls that wait for this client fail with `tool_unavailable`. May be repeated."""


class Follower(Protocol):
    """Reads one session: the events above its cursor, then those that are added, without gap or duplicate. It holds a
    cursor and no events, so a slow reader costs no memory and delays no other reader."""

    @property
    def cursor(self) -> int:
        """The last event that `next` returned, or skipped because it was a delta."""

    async def next(self) -> list[Record]:
        """Wait for the next events, at least one. Raises `SessionRefused` UNKNOWN_SESSION when it is deleted."""

    def close(self) -> None:
        """End: `next` returns an empty list from now on. May be repeated."""


class Sessions(Protocol):
    """All sessions of a MAKAI_HOME."""

    async def dispatch(self, request: Request[AnswerT]) -> AnswerT:
        """Carry out one of the operations in `requests`."""

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> Follower:
        """Read a session from a cursor on."""

    async def register_executor(self, session_id: str, execute: Execute) -> ToolRegistration:
        """Offer to execute the tools that the session's terms declare. The newest registration gets the calls."""

    async def register_tool_server(self, offer: ToolServerOffer, execute: ExecuteServed) -> ToolRegistration:
        """Offer tools to every session whose terms name the server. The newest registration of a token gets the calls;
        `Forbidden` while another token has registered the id."""

    async def close(self) -> None:
        """Release the log, or the connection to its owner."""
