"""What a log of sessions is. Every store keeps these promises; the contract tests of the log check them:

- Numbers run from 1 without gaps, per session, and are never given twice. Time never runs backwards in a session.
- `append` returns after its events are durable. An append that failed was never seen by a reader of this process; one
  whose caller was cancelled may or may not be stored, like one whose process died.
- An append stays together and in order. Consecutive deltas of one block in one append become one event. (Joining before
  numbering, and only inside an append, keeps both simple: an append of n events gets at most n numbers.)
- Only the holder of the newest lease appends: the generation is compared in the transaction that writes.
- A type that this version does not know is kept, numbered, verified and passed on.

Beside the events a log keeps one checkpoint per session, of the state that its events lead to; permissions that people
saved, which are folded from events as they are appended and outlive their sessions; which folders are trusted; and the
tokens of callers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from makai.core.access import TokenScope
from makai.core.session_events import ApprovalRequested, DecodedMode, HasPermissionMode, Logged, RunStatus, SessionEvent
from makai.core.usage import Usage

BATCH_EVENTS = 1000
"""Events in a batch of reading, unless the reader wants fewer."""
BATCH_BYTES = 4 * 1024 * 1024
"""A batch ends with the event that exceeds this, however many were asked for."""

_PAGE = 500
"""Sessions in a page of reading."""

SessionStatus: TypeAlias = RunStatus | Literal["idle", "closed"]
"""The status of the newest run; "idle" before the first one, "closed" after the last."""


ArchivedFilter: TypeAlias = Literal["without", "only", "with"]


class Pending(msgspec.Struct, frozen=True, gc=False):
    """An event that wants a place in the log."""

    ts: int
    run_id: str | None
    event: SessionEvent


class Record(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An event as it is stored: encoded once, for every reader."""

    event_id: int
    line: bytes
    """A JSON `Logged`, without a line break in it."""
    logged: Logged | None = None
    """What the line says, when this process encoded it itself: its readers need not decode it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (self.event_id, self.line) == (other.event_id, other.line)

    def __hash__(self) -> int:
        return hash((self.event_id, self.line))


class UnknownLogged(msgspec.Struct, frozen=True, kw_only=True):
    """A logged event of a type that this version does not know."""

    event_id: int
    ts: int
    type: str
    line: bytes
    run_id: str | None = None


LoggedEvent: TypeAlias = Logged | UnknownLogged


class SessionSummary(HasPermissionMode, frozen=True, kw_only=True, omit_defaults=True):
    session_id: str
    title: str = ""
    model_ref: str = ""
    mode: DecodedMode = "ask"
    harness: str = "native"
    cwd: str | None = None
    status: SessionStatus = "idle"
    created_ms: int = 0
    updated_ms: int = 0
    events: int = 0
    """How many there are, which is also the number of the last one."""
    usage: Usage = Usage()
    pending_approvals: int = 0
    archived: bool = False
    made_by: str = ""
    """"run" for a session that `makai run` began; empty for any other."""
    damaged: bool = False
    """What the store says about this session is not what was written; only `session_id` can be relied upon."""


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a list shows; the newest come first."""

    limit: int = 100
    updated_before_ms: int | None = None
    cwd: str | None = None
    awaiting_approval: bool = False
    archived: ArchivedFilter = "with"

    def shows(self, archived: bool) -> bool:
        """Whether a session is listed that is archived, or is not."""
        return self.archived == "with" or archived == (self.archived == "only")


NEWEST = SessionFilter()


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    event_id: int
    ts: int
    run_id: str | None
    request: ApprovalRequested


class Checkpoint(msgspec.Struct, frozen=True):
    """Data derived from the events of a session up to `event_id`. The log does not interpret it."""

    event_id: int
    format: int
    """Tells the code that saved it whether it can still read it."""
    data: bytes


class StoredGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A person's decision for always about a rule in a folder."""

    folder: str
    """The working folder of the session that asked; empty when it had none."""
    rule: str
    allow: bool
    session_id: str
    """The session that asked; it may be gone. `event_id` is the decision in it."""
    event_id: int
    ts: int
    by: str


class TrustedFolder(msgspec.Struct, frozen=True):
    """A person's decision about a folder and everything beneath it."""

    folder: str
    trusted: bool


class TrustedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A project file whose content a person trusted with its folder."""

    path: str
    """Relative to the folder."""
    digest: str
    text: str = ""
    """To show what has changed since; empty when it is no text."""


class StoredToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is stored: everything but its secret."""

    token_id: str
    name: str
    scope: TokenScope
    digest: str
    created_ms: int
    expires_ms: int
    session_id: str | None = None
    used_ms: int | None = None
    """Coarse: about a minute."""
    revoked_ms: int | None = None

    def is_live(self, now_ms: float) -> bool:
        return self.revoked_ms is None and now_ms < self.expires_ms


class LogProblem(msgspec.Struct, frozen=True):
    """A part of the store that is not what was written."""

    session_id: str
    """Empty when it concerns the whole store."""
    event_id: int | None
    what: str


class LogReport(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    events: int
    problems: tuple[LogProblem, ...]
    kept_as: str | None = None
    """Path of the damaged file that a repair replaced."""


class Lease(msgspec.Struct, frozen=True):
    """The right to append to a store. Each holder's generation is higher than those before it."""

    holder: str
    """Unique per start of a process: process ids are used again."""
    generation: int
    expires_ms: int | None = None
    """By the clock of the store; None when the lease ends with its holder's process."""


class Claim(msgspec.Struct, frozen=True):
    """The right of this process to append to one session."""

    generation: int
    is_here: bool = True
    """Whether this machine has the session's folder. Elsewhere the session can be read, and no run can work in it."""
    place: str = ""
    """The label of the machines that have the folder, if there is one; empty where there is no cluster."""


class EventLog(Protocol):
    @property
    def lease(self) -> Lease:
        """The lease under which this log was opened."""

    async def claim(self, session_id: str) -> Claim:
        """Own a session, or one that does not exist yet. What was appended under former claims of other processes is
        there when it returns, and nothing more is appended under them. Raises `SessionElsewhere` while another live
        node owns it; in a store with one owner, that owner has every claim."""

    async def append(
        self, session_id: str, events: Sequence[Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        """Store events and return the numbers of the first and the last, once they are durable.

        `expected_last` is the last number the caller knows, 0 for a session that does not exist yet. `generation` is
        that of the lease under which the caller read the session; None means the log's own. Raises `OwnershipLost`
        when it is not the store's newest, `LogConflict` when `expected_last` is not the last number, `InvalidRequest`
        for events no store can hold, and `StorageUnavailable` when they could not be made durable.
        """

    async def import_records(self, session_id: str, records: Sequence[Record], expected_last: int) -> None:
        """Store events of another log as they are, durably: same numbers, same times, same bytes, also of types that
        this version does not know. Permissions that they granted for always are not among what is imported. Raises as
        `append` does, and `InvalidRequest` for records that do not continue the session."""

    def watch(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each append to a session, its deletion and the end of the log, until the result is called.
        It is called in the event loop of the log, after the caller of `append` got its answer, also when that is a
        refusal, and must not raise. It is a reason to read, and says nothing about what is there."""

    def watch_all(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """As `watch`, for every session: `changed` is called with its id."""

    async def read(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[LoggedEvent]:
        """The next events above `after`; fewer than `limit` when they are large, none at the end of the log.
        `deltas=False` leaves out the text and thinking deltas, whose whole texts follow them."""

    async def read_raw(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[Record]:
        """The same as they are stored, for callers that only pass events on."""

    async def last(self, session_id: str) -> int:
        """The number of the last event; 0 when there is no such session."""

    async def session(self, session_id: str) -> SessionSummary | None: ...

    async def sessions(self, wanted: SessionFilter = NEWEST) -> list[SessionSummary]:
        """Sessions, the newest first."""

    async def pending_approvals(self) -> list[PendingApproval]:
        """Questions without an answer, of all sessions."""

    async def delete(self, session_id: str) -> bool:
        """Forget a session; False when there was none."""

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The newest that was saved of this session; None when there is none or it is not what was saved."""

    async def save_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        """Replace the session's checkpoint. No append waits for it or fails because of it. It need not survive a power
        cut, and one that cannot be kept (no space, no such session, not so many events) is dropped without an error."""

    async def grants(self, folder: str | None) -> list[StoredGrant]:
        """Decisions for always in sessions of this folder, of all folders for None; by folder and rule. Those of an
        append are there when it returns. A later one about the same folder and rule replaces the former."""

    async def revoke(self, folder: str, rule: str) -> bool:
        """Remove a decision for always, durably; False when there was none."""

    async def import_grants(self, grants: Sequence[StoredGrant]) -> None:
        """Store decisions for always of another log, durably. One about the same folder and rule stays unless it is
        older."""

    async def trust(self, folder: str, trusted: bool, files: Sequence[TrustedFile] = ()) -> None:
        """Store a decision about a folder and everything beneath it, durably. The path is absolute and resolved.
        `files` replace those that were trusted in this very folder before."""

    async def trusted_files(self, folder: str) -> list[TrustedFile]:
        """The files that were trusted with this very folder, by path. One that is not what was stored is left out."""

    async def is_trusted(self, folder: str) -> bool:
        """The decision about the folder, or about the nearest one above it that has one; False without any."""

    async def trusted_folders(self) -> list[TrustedFolder]:
        """Every folder about which a person decided, by path."""

    async def tokens(self) -> list[StoredToken]:
        """Every token, by the time it was made. One that is not what was stored is left out."""

    async def put_token(self, token: StoredToken) -> None:
        """Store a token durably, and remove those that ended long before it was made. Raises `InvalidRequest` when
        another live one has its name, or there are too many."""

    async def revoke_token(self, token_id: str, now_ms: int) -> bool:
        """Mark a token as revoked, durably; False when there is none of this id."""

    async def note_token_use(self, token_ids: Sequence[str], now_ms: int) -> None:
        """Store when tokens were used last."""

    async def check(self) -> LogReport:
        """Read and verify everything that is stored; changes nothing."""

    async def close(self) -> None:
        """Finish what was appended, then release the store."""


async def replay(log: EventLog, session_id: str, after: int = 0, *, deltas: bool = True) -> AsyncIterator[LoggedEvent]:
    """Every event above `after`, batch by batch."""
    while batch := await log.read(session_id, after, deltas=deltas):
        for logged in batch:
            yield logged
        after = batch[-1].event_id


async def every_session(log: EventLog) -> AsyncIterator[SessionSummary]:
    """All sessions, the newest first, page by page. One that changes meanwhile may be left out."""
    before: int | None = None
    seen: set[str] = set()
    while True:
        page = await log.sessions(SessionFilter(limit=_PAGE, updated_before_ms=before))
        new = [summary for summary in page if summary.session_id not in seen]
        if not new:
            return
        for summary in new:
            seen.add(summary.session_id)
            yield summary
        before = page[-1].updated_ms + 1  # others may be of the same millisecond
