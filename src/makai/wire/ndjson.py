"""Newline-delimited JSON framing: chunks of bytes, cut anywhere, become complete lines.

A line ends at LF and nowhere else; spaces, tabs and CR around it are trimmed; blank lines are skipped. A line longer
than `max_line_bytes` (counted before trimming, without its LF) gives one `ParseError` in its place and the decoder
continues with the next line, so that a server can answer the error and keep the connection.
"""

from __future__ import annotations

from typing import Final

from makai.core.errors import ParseError

MAX_LINE_BYTES: Final = 16 * 1024 * 1024

START_BYTES: Final = 4096
"""How much is kept of a line that is too long."""

_BLANKS: Final = b" \t\r"


class NDJSONDecoder:
    """Cuts a byte stream into lines. Every byte is looked at once, however small the chunks are."""

    __slots__ = ("_max_line_bytes", "_pending", "_skipping", "skipped_start")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._pending = bytearray()
        self._skipping = False
        self.skipped_start = b""
        """The beginning of the newest line that was too long."""

    def feed(self, data: bytes) -> list[bytes | ParseError]:
        """The lines that `data` completes, in order; an oversized line is represented by its error, not raised."""
        lines: list[bytes | ParseError] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece, lines)
            if self._pending:
                if line := self._pending.strip(_BLANKS):
                    lines.append(bytes(line))
                self._pending.clear()
            self._skipping = False
        self._add(rest, lines)
        return lines

    def close(self) -> list[bytes]:
        """The last line, if the stream ended without a newline; the decoder is empty afterwards."""
        line = bytes(self._pending.strip(_BLANKS))
        self._pending.clear()
        self._skipping = False
        return [line] if line else []

    def _add(self, piece: bytes, lines: list[bytes | ParseError]) -> None:
        if self._skipping:
            return
        if len(self._pending) + len(piece) > self._max_line_bytes:
            self.skipped_start = bytes((self._pending or piece)[:START_BYTES])
            self._pending.clear()
            self._skipping = True
            lines.append(ParseError(f"line exceeds the limit of {self._max_line_bytes} bytes"))
            return
        self._pending += piece
