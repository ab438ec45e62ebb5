"""Server-sent events: chunks of bytes, cut anywhere, become events.

The decoder follows the WHATWG rules ("parsing an event stream"): UTF-8 with replacement of invalid bytes, one leading
byte order mark dropped, lines end at CR, LF or CRLF and nowhere else, one space after the colon dropped, `data` lines
joined by LF, no event without data, an `id` with NUL ignored and any other kept for later events, `retry` only of ASCII
digits, an event that is not ended by a blank line dropped.

How it works: line ends are normalised to LF chunk by chunk, then the stream is cut at blank lines (LF LF) and each
complete block is parsed on its own. A block in progress is only appended to, so every byte is copied a fixed number of
times, however the stream is cut. Chunks of plain events, the common case, are cut and parsed by one regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NoReturn, TypeAlias

import msgspec

from makai.core.errors import ParseError

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CR: Final = 0x0D
_LF: Final = 0x0A
# int() of more digits than this can be refused, depending on interpreter settings.
_MAX_RETRY_DIGITS: Final = 640

# The two shapes that model APIs send. Splitting a chunk by them costs less than half of going line by line; `^` keeps
# the search linear, because a match can only be tried where a line starts.
_PLAIN_EVENT: Final = re.compile(rb"^(?:event: ?+(.*+)\n)?data: ?+(.*+)\n\n", re.MULTILINE)

# Name, data and id of the dispatched events, column by column: most callers want only one of them.
_Dispatched: TypeAlias = tuple[list[bytes | None], list[bytes], Sequence[str]]


class SSEEvent(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event; `id` is the last event id of the stream at that moment."""

    event: str
    data: str
    id: str


class SSEDecoder:
    """Turns a byte stream into events.

    An event of more than `max_event_bytes` bytes between its blank lines (comments count) is a `ParseError`. It ends
    the stream: other events of the same chunk are lost with it, and every later call raises it again. There is no
    `close`: what is unfinished at the end of the stream is dropped.
    """

    __slots__ = ("_after_cr", "_failed", "_last_id", "_max_event_bytes", "_pending", "_retry", "_special", "_start")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()  # the block in progress, its line ends already normalised
        self._last_id = ""
        self._retry: int | None = None
        self._start: bytes | None = b""  # what may become a byte order mark; None once that is settled
        self._after_cr = False  # the last chunk ended in CR: a LF that follows belongs to it
        self._failed = False
        self._special = True  # one of the three above asks for attention before the next chunk

    @property
    def retry(self) -> int | None:
        """The reconnection time in milliseconds. It counts from the end of its line, before the event ends."""
        retry = self._retry
        for line in self._pending.split(b"\n")[:-1]:
            field, value = _field(bytes(line))
            if field == b"retry":
                retry = _retry_milliseconds(value, retry)
        return retry

    def feed(self, data: bytes) -> list[SSEEvent]:
        """The events that `data` completes."""
        return list(map(_event, *self._dispatch(data)))

    def feed_data(self, data: bytes) -> list[bytes]:
        """Only the data of the events that `data` completes, as sent: for a JSON decoder, which checks UTF-8 itself."""
        return self._dispatch(data)[1]

    def _dispatch(self, data: bytes) -> _Dispatched:
        """Every event that `data` completes; what it leaves unfinished is kept."""
        if self._special or _CR in data:
            data = self._normalise(data)
        if self._pending:
            data = self._joined_to_pending(data)
        if len(data) > self._max_event_bytes:
            self._check_limit(*data.split(b"\n\n"))
        first = _PLAIN_EVENT.match(data)
        if first and first.end() == len(data):
            return [first[1]], [first[2]], (self._last_id,)
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self._pending += data
            return [], [], ()
        self._pending += data[end:]
        complete = data[:end]
        if first:
            _, *pieces = _PLAIN_EVENT.split(complete)  # of each event: its name, its data and the gap after it
            if not any(pieces[2::3]):
                names = pieces[0::3]
                return names, pieces[1::3], [self._last_id] * len(names)
        return self._parse(complete)

    def _joined_to_pending(self, data: bytes) -> bytes:
        """The block in progress and `data` as soon as a blank line ends that block; nothing until then."""
        pending = self._pending
        blank_line_across_cut = pending[-1] == _LF and data.startswith(b"\n")
        pending += data
        if blank_line_across_cut or data.find(b"\n\n") >= 0:
            joined = bytes(pending)
            pending.clear()
            return joined
        if len(pending) > self._max_event_bytes:
            self._check_limit(pending)
        return b""

    def _parse(self, data: bytes) -> _Dispatched:
        """The events of complete blocks of any shape."""
        names: list[bytes | None] = []
        payloads = []
        ids = []
        for block in data.split(b"\n\n"):
            name = None
            data_lines = []
            for line in block.split(b"\n"):
                field, value = _field(line)
                if field == b"data":
                    data_lines.append(value)
                elif field == b"event":
                    name = value
                elif field == b"id":
                    # "If the field value does not contain U+0000 NULL, then set the last event ID buffer"
                    if b"\0" not in value:
                        self._last_id = value.decode("utf-8", "replace")
                elif field == b"retry":
                    self._retry = _retry_milliseconds(value, self._retry)
            if data_lines:
                names.append(name)
                payloads.append(b"\n".join(data_lines))
                ids.append(self._last_id)
        return names, payloads, ids

    def _normalise(self, data: bytes) -> bytes:
        """Drop the byte order mark and turn every line end into LF."""
        if self._failed:
            self._fail()
        if self._start is not None:
            data = self._start + data
            undecided = len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data)
            self._start = data if undecided else None
            if undecided:
                return b""
            data = data.removeprefix(_BYTE_ORDER_MARK)
        if data:
            if self._after_cr:
                data = data.removeprefix(b"\n")
            self._after_cr = data.endswith(b"\r")
        self._special = self._after_cr
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check_limit(self, *blocks: bytes | bytearray) -> None:
        # The LF at either end may be half of a blank line, so it does not count.
        if any(len(block.strip(b"\n")) > self._max_event_bytes for block in blocks):
            self._fail()

    def _fail(self) -> NoReturn:
        self._pending.clear()
        self._failed = self._special = True
        raise ParseError(f"server-sent event exceeds the limit of {self._max_event_bytes} bytes")


def _event(name: bytes | None, data: bytes, last_id: str) -> SSEEvent:
    return SSEEvent(name.decode("utf-8", "replace") if name else "message", data.decode("utf-8", "replace"), last_id)


def _field(line: bytes) -> tuple[bytes, bytes]:
    """Name and value of one line; a comment and an empty line have an empty name."""
    name, _, value = line.partition(b":")
    return name, value.removeprefix(b" ")


def _retry_milliseconds(value: bytes, current: int | None) -> int | None:
    """ "If the field value consists of only ASCII digits", it is the new time; anything else is ignored."""
    if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
        return int(value)
    return current
