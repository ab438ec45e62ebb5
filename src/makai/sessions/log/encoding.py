"""Events to stored lines and back: joining of deltas, numbers, checksums. No I/O.

A line is the JSON of `Logged`. Its checksum is a CRC-32 of the session's id, the event's number and the line, so an
event that is changed, moved or given to another session does not verify. A CRC finds every single flipped bit and every
burst of up to 32; it is no protection against someone who can write the file, and nothing in that file could be.
Checksums are not chained: one damaged event must not make its successors unreadable, and a missing one shows as a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final
from zlib import crc32

import msgspec

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest, LogConflict, LogDamaged, ParseError
from makai.sessions.log.base import Checkpoint, LoggedEvent, Pending, PendingApproval, Record, UnknownLogged
from makai.wire import strict_json

MAX_EVENTS: Final = 10_000
"""In one append."""
MAX_EVENT_BYTES: Final = strict_json.MAX_BYTES
MAX_ID_LENGTH: Final = 200
REPAIR_HINT: Final = "Run `makai sessions repair`; other sessions are not affected."

_LOGGED: Final = msgspec.json.Decoder(ev.Logged)
_LOGGED_LIST: Final = msgspec.json.Decoder(list[ev.Logged])


class Body(msgspec.Struct, frozen=True, gc=False):
    """An encoded event that has no number yet, or one that another store has numbered."""

    ts: int
    run_id: str | None
    fact: ev.SessionEvent | None
    """None for an imported event of a type that this version does not know."""
    event: bytes
    is_delta: bool
    line: bytes | None = None
    """Of an imported event: what to store, whatever this version would write."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A numbered event with everything the store keeps of it."""

    record: Record
    ts: int
    checksum: int
    is_delta: bool


class _Envelope(msgspec.Struct, frozen=True):
    event_id: int
    ts: int
    event: msgspec.Raw
    run_id: str | None = None


class _Tag(msgspec.Struct, frozen=True):
    type: str = ""


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_TAG: Final = msgspec.json.Decoder(_Tag)


def check_session_id(session_id: str) -> None:
    if not session_id or len(session_id) > MAX_ID_LENGTH or not session_id.isprintable():
        raise InvalidRequest(f"A session id is 1 to {MAX_ID_LENGTH} printable characters.")


def encoded(events: Sequence[Pending]) -> list[Body]:
    """Bodies of an append: deltas joined, everything checked."""
    if not 0 < len(events) <= MAX_EVENTS:
        raise InvalidRequest(f"An append holds 1 to {MAX_EVENTS} events, not {len(events)}.")
    for run_id in {pending.run_id for pending in events}:
        if run_id is not None and not (run_id.isprintable() and len(run_id) <= MAX_ID_LENGTH):
            raise InvalidRequest(f"A run id is at most {MAX_ID_LENGTH} printable characters.")
    return [_body(pending) for pending in joined(events)]


def joined(events: Sequence[Pending]) -> list[Pending]:
    """Consecutive deltas of the same run and block as one event, at the time of the first."""
    result: list[Pending] = []
    for block, group in groupby(events, lambda pending: block_of(pending.run_id, pending.event)):
        pending = list(group)
        if block is not None and len(pending) > 1:
            words = "".join(each.event.delta for each in pending if isinstance(each.event, ev.Delta))
            whole = msgspec.structs.replace(pending[0].event, delta=words)
            pending = [msgspec.structs.replace(pending[0], event=whole)]
        result += pending
    return result


def block_of(run_id: str | None, event: ev.SessionEvent) -> tuple[object, ...] | None:
    """What deltas that can be joined have in common; None for everything that is no delta."""
    if isinstance(event, ev.Delta):
        return type(event), run_id, event.content_index, event.parent_call_id
    return None


def _body(pending: Pending) -> Body:
    try:
        event = strict_json.encode(pending.event)
        if b"\\u0000" in event:
            strict_json.decode(event)  # tells a NUL from a backslash followed by "u0000"
    except ParseError as error:
        raise InvalidRequest(f"The event cannot be stored: {error.message}.") from None
    if len(event) > MAX_EVENT_BYTES:
        raise InvalidRequest(f"An event of {len(event)} bytes exceeds the limit of {MAX_EVENT_BYTES}.")
    return Body(pending.ts, pending.run_id, pending.event, event, isinstance(pending.event, ev.Delta))


def imported(records: Sequence[Record], last: int) -> list[Body]:
    """Bodies of events that another store has numbered, and that follow the event `last`."""
    if not 0 < len(records) <= MAX_EVENTS:
        raise InvalidRequest(f"An import holds 1 to {MAX_EVENTS} events, not {len(records)}.")
    try:
        events = decoded(records)
    except msgspec.DecodeError:
        raise InvalidRequest("What is to be imported holds a line that is no event.") from None
    bodies = []
    for number, (record, logged) in enumerate(zip(records, events, strict=True), last + 1):
        if (record.event_id, logged.event_id) != (number, number) or b"\n" in record.line:
            raise InvalidRequest(f"What is to be imported does not continue at event {number}.")
        fact = logged.event if isinstance(logged, ev.Logged) else None
        is_delta = isinstance(fact, ev.Delta)
        bodies.append(Body(logged.ts, logged.run_id, fact, record.line, is_delta, record.line))
    return bodies


def numbered(session_id: str, bodies: Sequence[Body], last: int, last_ts: int) -> list[Stored]:
    """Bodies as they follow the event `last`. A clock that went backwards stands still."""
    salt = crc32(session_id.encode())
    result = []
    run_id, end = None, b"}"
    for event_id, body in enumerate(bodies, last + 1):
        last_ts = max(last_ts, body.ts)
        if body.run_id != run_id:
            run_id = body.run_id
            end = b"}" if run_id is None else b',"run_id":%b}' % msgspec.json.encode(run_id)
        line = body.line or b'{"event_id":%d,"ts":%d,"event":%b%b' % (event_id, last_ts, body.event, end)
        logged = ev.Logged(event_id=event_id, ts=last_ts, event=body.fact, run_id=run_id) if body.fact else None
        checksum = crc32(line, crc32(event_id.to_bytes(8, "big"), salt))
        result.append(Stored(Record(event_id, line, logged), last_ts, checksum, body.is_delta))
    return result


def _checksum(salt: int, event_id: int, line: bytes) -> int:
    return crc32(line, crc32(event_id.to_bytes(8, "big"), salt))


def checksum_of(session_id: str, record: Record) -> int:
    """What the store keeps beside a record."""
    return _checksum(crc32(session_id.encode()), record.event_id, record.line)


def verified(session_id: str, stored: Sequence[tuple[int, int, bytes]]) -> list[Record]:
    """Rows of number, checksum and line; raises `LogDamaged` at the first that is not what was written."""
    salt = crc32(session_id.encode())
    records = []
    for event_id, checksum, line in stored:
        if event_id < 0 or checksum != _checksum(salt, event_id, line):
            raise damaged(session_id, event_id)
        records.append(Record(event_id, line))
    return records


def stored_again(session_id: str, record: Record) -> Stored:
    """A verified record with everything that a store keeps of it."""
    logged = decoded_one(record)
    is_delta = isinstance(logged, ev.Logged) and isinstance(logged.event, ev.Delta)
    return Stored(record, logged.ts, checksum_of(session_id, record), is_delta)


def substitute(session_id: str, event_id: int, ts: int) -> Stored:
    """A notice in the place of a damaged event: it has the same number, so no client's cursor becomes wrong."""
    notice = ev.Notice(level="error", code="event_damaged", message="What happened here was damaged on disk.")
    return numbered(session_id, encoded([Pending(ts, None, notice)]), event_id - 1, ts)[0]


def damaged(session_id: str, event_id: int | None) -> LogDamaged:
    what = "The stored session" if event_id is None else f"Event {event_id} of the session"
    return LogDamaged(f"{what} {session_id} is damaged.", session_id=session_id, event_id=event_id, hint=REPAIR_HINT)


def conflict(session_id: str, expected: int, last: int) -> LogConflict:
    message = f"The last event of session {session_id} is {last}, not {expected}."
    return LogConflict(message, expected=expected, last=last)


def decoded(records: Sequence[Record]) -> list[LoggedEvent]:
    """Events of lines that verified; types this version does not know as `UnknownLogged`."""
    known: list[LoggedEvent] = [record.logged for record in records if record.logged is not None]
    if len(known) == len(records):
        return known
    try:
        return list(_LOGGED_LIST.decode(b"[" + b",".join(record.line for record in records) + b"]"))
    except msgspec.ValidationError:
        return [decoded_one(record) for record in records]


def is_delta(record: Record) -> bool:
    """Whether a record that this process encoded is a delta."""
    return record.logged is not None and isinstance(record.logged.event, ev.Delta)


def decoded_one(record: Record) -> LoggedEvent:
    if record.logged is not None:
        return record.logged
    try:
        return _LOGGED.decode(record.line)
    except msgspec.ValidationError:
        envelope = _ENVELOPE.decode(record.line)
        return UnknownLogged(
            event_id=envelope.event_id,
            ts=envelope.ts,
            type=_TAG.decode(envelope.event).type,
            run_id=envelope.run_id,
            line=record.line,
        )


def asked(session_id: str, record: Record) -> PendingApproval:
    logged = decoded_one(record)
    if not isinstance(logged, ev.Logged) or not isinstance(logged.event, ev.ApprovalRequested):
        raise damaged(session_id, record.event_id)
    return PendingApproval(
        session_id=session_id, event_id=logged.event_id, ts=logged.ts, run_id=logged.run_id, request=logged.event
    )


def checkpoint_checksum(session_id: str, checkpoint: Checkpoint) -> int:
    """What a store keeps beside a checkpoint."""
    numbers = b"".join(number.to_bytes(8, "big", signed=True) for number in (checkpoint.event_id, checkpoint.format))
    return crc32(checkpoint.data, crc32(numbers, crc32(session_id.encode())))
