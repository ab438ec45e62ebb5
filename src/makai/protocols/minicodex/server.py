"""One client of one session, sans-IO.

The owner (a WebSocket shell) does three things: it hands every text frame to `receive` and carries out the requests one
after the other before it reads on; it writes what `take` gives, and asks again when the view took an event or a request
was answered; and it reads the log for a client that `is_behind`. It never writes a frame of its own, so that order is
decided here alone:

- every command is answered by exactly one `accepted` or `error`, and nothing it caused comes before (MC-CMD-006):
  while the session decides, no event is handed out;
- events come above the cursor, each once, in order; a snapshot comes after everything it contains;
- a client that fell behind gets `drain`, and `ok` when it has everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, cast

import msgspec

from makai.core.errors import Forbidden, MakaiError, SessionRefused, StorageUnavailable
from makai.protocols.makai.envelope import log_id_of
from makai.protocols.minicodex import commands, frames
from makai.protocols.minicodex.commands import Ask, Open, Refusal, Request, TakeSnapshot, read, refusal
from makai.protocols.minicodex.pages import RunLookup
from makai.protocols.minicodex.projection import NamedCapabilities, Projector
from makai.protocols.minicodex.states import present
from makai.protocols.minicodex.view import SessionView
from makai.protocols.minicodex.vocabulary import ErrorCode
from makai.sessions.log.base import LoggedEvent
from makai.sessions.requests import Receipt

_encode: Final = msgspec.json.Encoder().encode
_UNBOUNDED: Final = 1 << 62


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    replay_events: int = 100_000
    """A client whose cursor is further behind than this has to take a snapshot."""
    drain_events: int = 500
    """A client that is further behind, or further than the view remembers, gets `drain`."""
    max_behind: int = 50_000
    """A client that is further behind is closed; it can resume from its cursor."""
    batch_bytes: int = 256 * 1024
    """`take` gives about this much at a time."""
    unread_replies: int = 1_000
    """Above this number of unwritten replies, no more commands are read."""


class CloseCode(IntEnum):
    """Why a server hangs up, besides RFC 6455's own reasons."""

    GOING_AWAY = 1001
    TOO_SLOW = 1013
    SESSION_GONE = 4404


DEFAULT_LIMITS: Final = Limits()


class MinicodexConnection:
    def __init__(
        self,
        *,
        session_id: str | None,
        new_id: Callable[[], str],
        client_name: str = "minicodex",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """`session_id` is the one the address names, if any; `new_id` makes ids of inputs; `client_name` is who
        decides approvals here."""
        self.session_id = session_id
        self.capabilities = NamedCapabilities()
        self._new_id = new_id
        self._client_name = client_name
        self._limits = limits
        self._outbox: list[bytes] = []
        self._view: SessionView | None = None
        self.cursor: int | None = None
        """The last event that `take` accounted for; None before the session is open."""
        self._deciding = 0
        self._known = 0
        self._replay: Projector | None = None
        self.resyncs = 0
        """How often the client was too far behind to continue from its cursor."""
        self._caught_up = False
        self._draining = False

    def receive(self, data: str | bytes) -> list[Request]:
        """One text frame; at most one request comes of it. Carry it out before the next frame is received."""
        command = read(data, self.capabilities)
        if isinstance(command, Refusal):
            self._refuse(command)
            return []
        match command:
            case commands.HelloCommand():
                return self._open(command, None, tuple(command.client_capabilities or ()))
            case commands.ResumeCommand():
                return self._resume(command)
            case commands.PingCommand():
                self._accept(command.req_id)
                return []
            case commands.GetSnapshotCommand():
                return self._get_snapshot(command)
            case _:
                return self._ask(command)

    def _open(
        self,
        command: commands.HelloCommand | commands.ResumeCommand,
        cursor: int | None,
        capabilities: tuple[str, ...] | None,
    ) -> list[Request]:
        wanted = command.session_id if self.session_id is None else self.session_id
        if not self._is_meant(command):
            self._refuse_field(command, "session_id", "This connection belongs to another session.")
            return []
        opening = Open(session_id=wanted, cursor=cursor, client_capabilities=capabilities, req_id=command.req_id)
        return [self._begin(opening)]

    def _resume(self, command: commands.ResumeCommand) -> list[Request]:
        cursor, named = command.last_seen_event_id, command.client_capabilities
        if cursor is not None and not self._is_meant(command):
            self._refuse_cursor(command.req_id, "The cursor is one of another session.")
            return []
        if cursor is not None and self.session_id is None and command.session_id is None:
            self._refuse(refusal(command.req_id, "MISSING_FIELD", "A cursor belongs to a session.", "session_id"))
            return []
        return self._open(command, cursor, None if named is None else tuple(named))

    def _get_snapshot(self, command: commands.GetSnapshotCommand) -> list[Request]:
        with_window, req_id = command.include_transcript_window or False, command.req_id
        if self._view is None and self.session_id is not None:  # the address names the session: a fresh load
            return [self._begin(Open(session_id=self.session_id, with_window=with_window, req_id=req_id))]
        if not self._is_greeted(command):
            return []
        return [self._begin(TakeSnapshot(at_least=self._known, with_window=with_window, req_id=req_id))]

    def _ask(self, command: commands.SessionCommand) -> list[Request]:
        if not self._is_greeted(command) or self.session_id is None:
            return []
        try:
            asked = commands.engine_command(command, by=self._client_name, input_id=self._new_id())
        except commands.WrongField as error:
            self._refuse_field(command, error.field, str(error))
            return []
        return [self._begin(Ask(session_id=self.session_id, command=asked, req_id=command.req_id))]

    def _is_greeted(self, command: commands.Command) -> bool:
        """Whether there is a session to speak of, and it is the one the command means."""
        if self._view is None:
            self._refuse(refusal(command.req_id, "INVALID_COMMAND", "Say hello or resume first."))
            return False
        if not self._is_meant(command):
            self._refuse_field(command, "session_id", "This connection belongs to another session.")
            return False
        return True

    def _is_meant(self, command: commands.Command) -> bool:
        """Whether the command names the session of this connection, by its id or its name, or names none."""
        own, given = self.session_id, command.session_id
        return own is None or given is None or own == given or log_id_of(own) == log_id_of(given)

    def _begin(self, request: Request) -> Request:
        self._deciding += 1
        return request

    def answered(self, request: Ask, receipt: Receipt) -> None:
        """The session took the command, and what it led to is durable."""
        self._deciding -= 1
        self._known = max(self._known, receipt.last)
        self._accept(request.req_id)

    def refused(self, request: Request, error: Exception) -> None:
        """The session, or the code that looked for it, refused. Nothing is said about errors outside `core.errors`."""
        self._deciding -= 1
        code: ErrorCode = "INTERNAL_ERROR"
        message, hint = "The server failed.", None
        if isinstance(error, MakaiError):
            message, hint = error.message, error.hint
        if isinstance(error, SessionRefused):
            code = cast(ErrorCode, error.code)
        elif isinstance(error, StorageUnavailable):
            code = "STORAGE_UNAVAILABLE"
        elif isinstance(error, Forbidden):
            code = "FORBIDDEN"
        self._refuse(refusal(request.req_id, code, message, **({} if hint is None else {"hint": hint})))

    def opened(self, request: Open, view: SessionView) -> None:
        """Here is the session. The view must have taken everything that was durable when it was asked for."""
        self._deciding -= 1
        if request.client_capabilities is not None:
            self.capabilities = NamedCapabilities.named(request.client_capabilities)
        self.session_id = view.session_id
        is_another_view = self._view is not view
        self._view = view
        self._replay = None
        last = view.last_event_id
        if request.cursor is None:
            self._accept(request.req_id)
            if not is_another_view:
                self._hand_out_all()
            self._outbox.append(view.welcome())
            self._show_now(with_window=request.with_window)
        elif not 0 <= request.cursor <= last:
            self._refuse_cursor(request.req_id, "The session has no such event.")
        elif last - request.cursor > self._limits.replay_events:
            self._refuse_cursor(request.req_id, "Too much has happened since.")
        else:
            self._accept(request.req_id)
            self._outbox.append(view.welcome())
            self._add_details()
            self._follow_from(request.cursor)

    def show(self, request: TakeSnapshot) -> None:
        self._deciding -= 1
        self._accept(request.req_id)
        self._hand_out_all()
        self._show_now(with_window=request.with_window)

    def _show_now(self, *, with_window: bool) -> None:
        assert self._view is not None
        self._outbox.append(self._view.snapshot(self.capabilities, with_window=with_window))
        self._add_details()
        self._follow_from(self._view.last_event_id)

    def _add_details(self) -> None:
        if self.capabilities.makai and self._view is not None:
            self._outbox.append(self._view.details())

    def _follow_from(self, cursor: int) -> None:
        self.cursor = cursor
        self._known = max(self._known, cursor)
        self._caught_up = False
        self._replay = None

    def take(self) -> list[bytes]:
        """The next frames to write, in order; none: nothing to do until something happens."""
        view = self._view
        if view is not None and self.cursor is not None and not self._deciding and not self._is_forgotten:
            self._ask_to_drain()
            found, self.cursor = view.frames(self.cursor, self.capabilities, self._limits.batch_bytes)
            self._outbox += found
            self._replay = None
            if self.behind == 0:
                self._caught_up = True
                if self._draining:
                    self._draining = False
                    self._outbox.append(_encode(frames.Backpressure(state="ok")))
        taken, self._outbox = self._outbox, []
        return taken

    def _ask_to_drain(self) -> None:
        """MC-EVT-011, before the first frame that comes late: the client had everything and is now behind by many
        events, or by more bytes than the view remembers."""
        is_late = self._is_forgotten or self.behind > self._limits.drain_events
        if is_late and self._caught_up and not self._draining:
            self._draining = True
            self._outbox.append(_encode(frames.Backpressure(state="drain")))

    def give_back(self, taken: list[bytes]) -> None:
        """What was taken last and could not be written after all: it is the first to be taken again."""
        self._outbox[:0] = taken

    def _hand_out_all(self) -> None:
        """Everything up to now, before a snapshot that contains it; what is not remembered is in the snapshot too."""
        if self._view is not None and self.cursor is not None and not self._is_forgotten:
            found, self.cursor = self._view.frames(self.cursor, self.capabilities, _UNBOUNDED)
            self._outbox += found

    def beat(self, interval_ms: int) -> None:
        """Say that the connection is alive; the owner keeps the time."""
        self._outbox.append(_encode(frames.Heartbeat(interval_ms=interval_ms)))

    def session_gone(self) -> None:
        """The session was deleted: say so, then close with `CloseCode.SESSION_GONE`."""
        self.cursor = None
        self._view = None
        self._refuse(refusal(None, "UNKNOWN_SESSION", "The session was deleted."))

    @property
    def behind(self) -> int:
        if self._view is None or self.cursor is None:
            return 0
        return self._view.last_event_id - self.cursor

    @property
    def is_current(self) -> bool:
        """Everything was handed out: `take` has nothing to give until something happens."""
        return not self._outbox and self.behind == 0

    @property
    def is_too_slow(self) -> bool:
        """Close it with `CloseCode.TOO_SLOW`; it resumes when it can."""
        return self._caught_up and self.behind > self._limits.max_behind

    @property
    def pending_bytes(self) -> int:
        return sum(map(len, self._outbox))

    @property
    def is_full(self) -> bool:
        """Read no more commands until something was written."""
        return len(self._outbox) >= self._limits.unread_replies

    @property
    def is_behind(self) -> bool:
        """The view no longer remembers what comes next: look up the run (`lookup`), then `replay` the log. A replay may
        lead to no frame for this client: go on until it is no longer behind."""
        return self._is_forgotten and not self._deciding

    @property
    def _is_forgotten(self) -> bool:
        return self._view is not None and self.cursor is not None and self.cursor < self._view.floor

    def lookup(self) -> RunLookup | None:
        """What has to be read before the replay can begin; None when it has begun already."""
        if self._replay is not None or self.cursor is None:
            return None
        return RunLookup(self.cursor)

    def begin_replay(self, found: RunLookup) -> None:
        """The lookup is done; it is of no use when the client went somewhere else in the meantime."""
        if found.cursor == self.cursor:
            self._replay = Projector(found.state())

    def replay(self, events: Iterable[LoggedEvent]) -> None:
        """The next events above `cursor`, deltas included, as the log has them; others are left alone."""
        newest = self._view.last_event_id if self._view is not None else 0
        self._ask_to_drain()
        for logged in events:
            # What a command leads to waits for its answer here as well, and a client may resume while the log is read.
            if self._replay is None or self._deciding or self.cursor is None or logged.event_id != self.cursor + 1:
                return
            if logged.event_id > newest:  # the log may be ahead of the view, which would hand this out again
                return
            shared = self._replay.project(logged)
            self.cursor = logged.event_id
            if shared is not None and (encoded := shared.form(self.capabilities)) is not None:
                self._outbox.append(encoded)

    def _accept(self, req_id: str | None) -> None:
        self._outbox.append(_encode(frames.Accepted(req_id=present(req_id))))

    def _refuse(self, refused: Refusal) -> None:
        details, req_id = present(refused.details), present(refused.req_id)
        error = frames.ErrorFrame(code=refused.code, message=refused.message, details=details, req_id=req_id)
        self._outbox.append(_encode(error))

    def _refuse_field(self, command: commands.Command, field: str, message: str) -> None:
        self._refuse(refusal(command.req_id, "BAD_ARGUMENT", message, field))

    def _refuse_cursor(self, req_id: str | None, message: str) -> None:
        """ "If the gap exceeds server window, server instructs client to fetch full snapshot via get_snapshot"."""
        self.resyncs += 1
        advice = f"{message} Ask for get_snapshot."
        self._refuse(refusal(req_id, "RESYNC_REQUIRED", advice, command="get_snapshot"))
