"""Makes the JSON of other programs readable: a stream of UTF-8 JSON text, cut anywhere, in which invalid UTF-8 and the
escapes of lone surrogates become U+FFFD, and raw control characters become escapes. Programs that cut text by UTF-16
units or bytes send the first two, careless ones the third, and none may be the end of an answer. Tabs and the ends of
lines pass unchanged, since they also separate tokens and events, and so does everything else, also what is no JSON."""

from __future__ import annotations

import codecs
import re
from typing import Final

_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# An even number of backslashes before an escape belong to each other. A pair is matched too, so that its second half is
# not taken for a lone one.
_SURROGATES: Final = re.compile(rb"(?<!\\)((?:\\\\)*+)(?:(" + _HIGH + _LOW + rb")|" + _HIGH + rb"|" + _LOW + rb")")
# What may be the beginning of an escape, or of a pair of them.
_UNFINISHED: Final = re.compile(rb"\\++(?:u[dD][89abAB][0-9a-fA-F]{2}\\?)?+(?:(?<=\\)u[0-9a-fA-F]{0,3}+)?$")
_NUL: Final = re.compile(rb"(?<!\\)((?:\\\\)*+)\\u0000")
_CONTROLS: Final = bytes(byte for byte in range(0x20) if byte not in b"\t\n\r")
_CONTROL: Final = re.compile(b"[" + re.escape(_CONTROLS) + b"]")
_LOOK_BACK: Final = 4096
_BACKSLASH: Final = 0x5C


class JSONRepair:
    """`feed` returns what can be passed on; the rest follows with the next chunk or with `close`."""

    __slots__ = ("_held", "_utf8")

    def __init__(self) -> None:
        self._held = b""
        self._utf8: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes) -> bytes:
        if self._utf8 is not None or not data.isascii():
            if self._utf8 is None:
                self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
            data = self._utf8.decode(data).encode()
        if len(data.translate(None, _CONTROLS)) != len(data):
            data = _CONTROL.sub(lambda found: b"\\u%04x" % found[0][0], data)
        if self._held:
            data, self._held = self._held + data, b""
        if not data or (b"\\u" not in data and data[-1] != _BACKSLASH):
            return data
        start = max(len(data) - _LOOK_BACK, 0)
        if unfinished := _UNFINISHED.search(data, start):
            data, self._held = data[: unfinished.start()], data[unfinished.start() :]
        return without_lone_surrogates(data)

    def close(self) -> bytes:
        rest = self._held + (self._utf8.decode(b"", True).encode() if self._utf8 is not None else b"")
        self._held = b""
        return without_lone_surrogates(rest)


def repaired(document: bytes) -> bytes:
    """The whole text at once."""
    if document.isascii() and _BACKSLASH not in document and len(document.translate(None, _CONTROLS)) == len(document):
        return document  # as nearly every line is
    repair = JSONRepair()
    return repair.feed(document) + repair.close()


def carried(document: bytes) -> bytes:
    """The whole text, with U+FFFD for an escaped NUL too: a file that another program read may hold one."""
    readable = repaired(document)
    return _NUL.sub(rb"\1\\ufffd", readable) if b"\\u0000" in readable else readable


def without_lone_surrogates(data: bytes) -> bytes:
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    return _SURROGATES.sub(lambda found: found[0] if found[2] else found[1] + b"\\ufffd", data)
