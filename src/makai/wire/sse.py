"""Server-sent events: chunks of bytes, cut anywhere, become the data of events, in bytes as sent.

The decoder follows the WHATWG rules ("parsing an event stream"): one leading byte order mark dropped, lines end at CR,
LF or CRLF and nowhere else, one space after the colon dropped, `data` lines joined by LF, no event without data, an
event that is not ended by a blank line dropped. Names, ids and `retry` are passed over: nothing here uses them.

How it works: line ends are normalised to LF chunk by chunk, then the stream is cut at blank lines (LF LF) and each
complete block is parsed on its own. A block in progress is only appended to, so every byte is copied a fixed number of
times, however the stream is cut. Chunks of plain events, the common case, are cut and parsed by one regular expression.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from makai.core.errors import ParseError

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CR: Final = 0x0D
_LF: Final = 0x0A
# The two shapes that model APIs send. Splitting a chunk by them costs less than half of going line by line; `^` keeps
# the search linear, because a match can only be tried where a line starts.
_PLAIN_EVENT: Final = re.compile(rb"^(?:event: ?+.*+\n)?data: ?+(.*+)\n\n", re.MULTILINE)


class SSEDecoder:
    """Turns a byte stream into events.

    An event of more than `max_event_bytes` bytes between its blank lines (comments count) is a `ParseError`. It ends
    the stream: other events of the same chunk are lost with it, and every later call raises it again. There is no
    `close`: what is unfinished at the end of the stream is dropped.
    """

    __slots__ = ("_after_cr", "_failed", "_max_event_bytes", "_pending", "_special", "_start")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()  # the block in progress, its line ends already normalised
        self._start: bytes | None = b""  # what may become a byte order mark; None once that is settled
        self._after_cr = False  # the last chunk ended in CR: a LF that follows belongs to it
        self._failed = False
        self._special = True  # one of the three above asks for attention before the next chunk

    def feed_data(self, data: bytes) -> list[bytes]:
        """The data of the events that `data` completes; what it leaves unfinished is kept."""
        if self._special or _CR in data:
            data = self._normalise(data)
        if self._pending:
            data = self._joined_to_pending(data)
        if len(data) > self._max_event_bytes:
            self._check_limit(*data.split(b"\n\n"))
        first = _PLAIN_EVENT.match(data)
        if first and first.end() == len(data):
            return [first[1]]
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self._pending += data
            return []
        self._pending += data[end:]
        complete = data[:end]
        if first:
            _, *pieces = _PLAIN_EVENT.split(complete)  # of each event: its data and the gap after it
            if not any(pieces[1::2]):
                return pieces[0::2]
        return _parsed(complete)

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


def _parsed(data: bytes) -> list[bytes]:
    """The data of complete blocks of any shape."""
    payloads = []
    for block in data.split(b"\n\n"):
        fields = (line.partition(b":") for line in block.split(b"\n"))
        if lines := [value.removeprefix(b" ") for name, _, value in fields if name == b"data"]:
            payloads.append(b"\n".join(lines))
    return payloads
