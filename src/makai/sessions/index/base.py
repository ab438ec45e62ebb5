"""What an index of sessions is: it is fed with pages of entries in the order of each session's log, and remembers per
session how far it got. Everything in it follows from the log, so an index that is lost or damaged is built again.

The promises of every implementation; its contract tests check them:

- A page is stored whole or not at all, with the cursor that it leads to. One that does not follow the stored cursor is
  left out, so feeding a page twice, or from two processes, changes nothing.
- A forgotten session is not found any more when `forget` returns. Its text is erased from the store, also from parts
  that are not in use as far as the store allows that, at the latest when `erase` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from makai.core.usage import Usage
from makai.sessions.index.search_text import SearchQuery
from makai.sessions.log.base import ArchivedFilter

EntryKind: TypeAlias = Literal["user", "assistant", "tool", "title"]
MAX_HITS: Final = 100
MAX_MATCHES: Final = 3
"""Matches that a hit shows."""
MAX_DAYS: Final = 3_660


class SearchMatch(msgspec.Struct, frozen=True, kw_only=True):
    event_id: int
    kind: EntryKind
    text: str
    """The words around what was found, at most `search_text.SNIPPET_LENGTH`."""
    marks: tuple[tuple[int, int], ...]
    """Where the words of the query are in `text`: start and end in UTF-16 code units, as JavaScript counts."""


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A session in which something was found."""

    session_id: str
    title: str
    cwd: str | None
    harness: str
    model_ref: str
    updated_ms: int
    archived: bool
    matches: tuple[SearchMatch, ...]


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    hits: tuple[SearchHit, ...] = ()
    complete: bool
    """False while the index catches up with the log: there may be more."""


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of one day, model, agent and folder consumed."""

    day: str
    """As `2026-11-17`, in the caller's time zone."""
    model_ref: str
    harness: str
    cwd: str | None
    runs: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_usd: float | None
    """The sum of the known costs; None when none is known."""


class UsageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[UsageRow, ...] = ()
    complete: bool


class SearchEntry(msgspec.Struct, frozen=True):
    """A text that can be found."""

    event_id: int
    kind: EntryKind
    text: str


class UsageEntry(msgspec.Struct, frozen=True):
    """What one run consumed."""

    ts: int
    model_ref: str
    harness: str
    cwd: str | None
    usage: Usage


class SessionFold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the next entries of a session depend on, after the events so far."""

    created_ts: int = 0
    is_fork: bool = False
    harness: str = "native"
    cwd: str | None = None
    run_model_ref: str = ""
    run_is_copied: bool = False
    """The newest run was copied from the session that this one was forked from, where it counts already."""
    archived: bool = False


class IndexCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far the index knows a session."""

    created_ms: int
    """Tells a session from a later one of the same id."""
    last: int = 0
    """The last event that was read."""
    fold: SessionFold = SessionFold()


class IndexPage(msgspec.Struct, frozen=True, kw_only=True):
    """The next entries of one session, and where they lead."""

    session_id: str
    after: int
    """`last` of the cursor that the page follows; 0 begins the session, in place of what was known of it."""
    cursor: IndexCursor
    updated_ms: int
    entries: tuple[SearchEntry, ...] = ()
    """At most one title, which replaces the former one."""
    usage: tuple[UsageEntry, ...] = ()


class SearchScope(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are searched, and how many are returned."""

    limit: int
    now_ms: int
    archived: ArchivedFilter = "without"
    cwd: str | None = None
    session_id: str | None = None


class FoundSession(msgspec.Struct, frozen=True):
    session_id: str
    matches: tuple[SearchMatch, ...]


class SessionIndex(Protocol):
    """Implementations raise `StorageUnavailable` when they cannot be read or written now, and `IndexDamaged` when only
    a new index helps; the caller then calls `reset`."""

    async def cursors(self, session_ids: Sequence[str] | None = None) -> Mapping[str, IndexCursor]:
        """How far these sessions are known, or all of them; unknown ones are left out."""

    async def add(self, pages: Sequence[IndexPage], *, is_backlog: bool) -> None:
        """Store pages. Those of a backlog come from the newest session to the oldest; others are newer than all."""

    async def forget(self, session_ids: Sequence[str]) -> None:
        """Remove sessions; unknown ones are left out."""

    async def erase(self) -> None:
        """Erase what forgotten sessions left in the store; returns at once when there is nothing."""

    async def find(self, query: SearchQuery, scope: SearchScope) -> list[FoundSession]:
        """Sessions that have an entry with all terms of the query, the newest and best first."""

    async def usage(self, since_ms: int, tz_minutes: int, session_id: str | None) -> list[UsageRow]:
        """Sums of the runs that ended since then, the newest day first."""

    async def reset(self) -> None:
        """Begin again with an empty index."""

    async def close(self) -> None: ...


@runtime_checkable
class SharedIndex(SessionIndex, Protocol):
    """An index that several nodes feed and search. Each feeds the sessions that it writes to. One node at a time
    compares the index with the log, for what nodes left behind that are gone."""

    async def begin_compare(self, seconds: float) -> int | None:
        """Become the node that compares, or remain it, for this long; None while another one is. Returns the time up
        to which all sessions were compared: what was updated before is in the index. 0 when nothing was."""

    async def end_compare(self, compared_ms: int | None) -> None:
        """Let another node compare. `compared_ms` is the time for the next `begin_compare`; None leaves it."""

    async def compared_ms(self) -> int:
        """The time that `begin_compare` would return."""


class IndexDamaged(Exception):
    """The store of the index is not what was written, or of another version."""
