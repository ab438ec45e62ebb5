"""Words of a program that writes to a terminal: without colours, cursor movements and lines that it overwrote. Pure."""

from __future__ import annotations

import codecs
import re
from typing import Final

_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]"
)
_BEGUN: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)?\Z")
MAX_HELD: Final = 64 * 1024
"""Of a line without its end: it is handed on, so that a program that never ends a line needs no more memory."""


class TerminalText:
    """Fed with bytes, cut anywhere; gives whole lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        """The lines that are complete now, with their ends."""
        self._held += self._decoder.decode(data)
        *lines, rest = self._held.split("\n")
        if len(rest) > MAX_HELD and _BEGUN.search(rest) is None:
            lines, rest = [*lines, rest], ""
        self._held = rest[-2 * MAX_HELD :]
        return "".join(f"{_plain(line)}\n" for line in lines)

    def end(self) -> str:
        """The rest: a last line without its end."""
        rest, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return _plain(_BEGUN.sub("", rest))


def _plain(line: str) -> str:
    """What stays visible of a line: what follows the last return to its beginning."""
    words = _SEQUENCE.sub("", line).rstrip("\r")
    return words.rpartition("\r")[2].replace("\x1b", "")
