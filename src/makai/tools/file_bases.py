"""What files held when a change to them was described, so that what is done is what was approved.

In: the arguments of a call, the file they lead to and its content. Out: a refusal when file or content are not those
that people and rules were shown. Between a description and its call lie a person's minutes, in which the file may have
been changed or a link turned elsewhere. It must not know tools.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import OrderedDict
from typing import Final

from makai.tools.arguments import Arguments
from makai.tools.file_errors import FileRefused
from makai.tools.workspace import Place

_MOST_KEPT: Final = 1_000
"""A call is described just before it is asked about; older descriptions are of calls that were never made."""


class FileBases:
    """The bases of the changes that one tool described. A change that nobody described has none to keep to."""

    def __init__(self) -> None:
        self._bases: OrderedDict[bytes, bytes] = OrderedDict()

    def keep(self, wanted: Arguments, base: bytes) -> None:
        """Remember what a change was described for; the newest description counts."""
        key = _key(wanted)
        self._bases[key] = base
        self._bases.move_to_end(key)
        while len(self._bases) > _MOST_KEPT:
            self._bases.popitem(last=False)

    def check(self, wanted: Arguments, base: bytes, place: Place) -> None:
        """`FileRefused` when the change was described for something else."""
        if self._bases.pop(_key(wanted), base) != base:
            raise FileRefused(
                f"{place.shown} is not what it was when this call was shown for approval. Nothing was done.",
                hint="Read it again, and make the call anew if it still is what you want.",
            )


def base_of(place: Place, content: bytes | None, file: io.BufferedReader | None = None) -> bytes:
    """Stands for a file and its content, None when there is none. `file` when `content` is not all of it."""
    written = hashlib.sha256(os.fsencode(place.absolute) + b"\0")
    if content is not None:
        written.update(b"content" + content)
    if file is not None:
        found = os.fstat(file.fileno())
        written.update(f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}".encode())
    return written.digest()


def _key(wanted: Arguments) -> bytes:
    return hashlib.sha256(repr(wanted).encode("utf-8", "surrogatepass")).digest()
