"""The contract between the process that owns the session log and all code that works with sessions.

`owner.OwnedSessions` implements it in the owner; `server.session_router` in every other process, over the owner's
socket. Callers do not know which of the two they talk to.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from makai.core.session_events import PermissionMode, SessionTerms
from makai.harness.base import Execute as Execute
from makai.harness.base import ToolAnswer as ToolAnswer
from makai.harness.base import ToolRequest as ToolRequest
from makai.sessions.commands import (
    Abort,
    Approve,
    Close,
    Compact,
    Deny,
    Send,
    SetMode,
    SetModel,
    SetTerms,
    SetTitle,
)
from makai.sessions.log.base import (
    BATCH_EVENTS,
    NEWEST,
    PendingApproval,
    Record,
    SessionFilter,
    SessionSummary,
)
from makai.sessions.state import SessionState

UserCommand: TypeAlias = Send | Approve | Deny | Abort | SetMode | SetModel | SetTitle | SetTerms | Compact | Close
"""What a client may ask; the owner sets its `now`, whatever the client wrote there."""


class NewSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that somebody wants."""

    model_ref: str
    session_id: str | None = None
    """Made up by the owner when not given; a taken one is refused with SESSION_EXISTS."""
    mode: PermissionMode = "ask"
    harness: str = "native"
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    """Folders the built-in tools may touch; only `cwd` when empty."""
    title: str = ""
    terms: SessionTerms = SessionTerms()
    forked_from: str | None = None
    """Continue the conversation of that session, up to `forked_at` (its end when not given)."""
    forked_at: int | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A command was carried out, and what it led to is durable."""

    last: int
    """The number of the last event that the command, or one committed with it, led to."""
    run_id: str | None = None
    """The run that the command started or changed, else the active one, if any."""


class ToolRegistration(Protocol):
    """A client that stands by to carry out the tools of a session."""

    def unregister(self) -> None:
        """Stop; calls that wait for this client fail as `tool_unavailable`. May be repeated."""


class Follower(Protocol):
    """A reader of one session: what is in the log above its cursor, then what is added, without gap or duplicate.

    It holds a cursor and no events, so a slow one costs nothing and slows nobody.
    """

    @property
    def cursor(self) -> int:
        """The last event that was given out."""

    async def next(self) -> list[Record]:
        """The next events, at least one; waits for them. Raises `SessionRefused` UNKNOWN_SESSION when it is deleted."""

    def close(self) -> None:
        """Wake whoever waits in `next` with an empty list, for good. May be repeated."""


class Sessions(Protocol):
    """All sessions of a MAKAI_HOME."""

    async def create(self, wanted: NewSession) -> str:
        """Begin a session and return its id."""

    async def ask(self, session_id: str, command: UserCommand) -> Receipt:
        """Have a command carried out; returns after its events are durable. Raises `SessionRefused`."""

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> Follower:
        """Read from a cursor on."""

    async def read(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[Record]:
        """A page of the log."""

    async def state(self, session_id: str) -> SessionState:
        """What the engine knows about a session now; `SessionRefused` UNKNOWN_SESSION when there is none."""

    async def summaries(self, wanted: SessionFilter = NEWEST) -> list[SessionSummary]:
        """Sessions, the newest first."""

    async def summary(self, session_id: str) -> SessionSummary | None:
        """One session as lists show it."""

    async def pending_approvals(self) -> list[PendingApproval]:
        """Questions without an answer, of all sessions."""

    async def delete(self, session_id: str) -> bool:
        """Forget a session, stopping what it does; False when there was none."""

    async def register_executor(self, session_id: str, execute: Execute) -> ToolRegistration:
        """Stand by to carry out the tools that the session's terms declare. The newest to attend is asked."""

    async def is_trusted(self, folder: str) -> bool:
        """Whether project files of this folder may configure anything."""

    async def trust(self, folder: str, trusted: bool) -> None:
        """A person's word about a folder and everything beneath it."""

    async def close(self) -> None:
        """Let go: of the log, or of the connection to its owner."""
