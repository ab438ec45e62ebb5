"""What can be wrong with a path or a file, in words that a model can act on."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from makai.core.errors import InvalidRequest


class FileRefused(InvalidRequest):
    """A path cannot be read or written; the message says why, in words a model can act on."""


class OutsideWorkspace(FileRefused):
    """The path leads, or may lead, out of the session's folders."""


class FileMissing(FileRefused):
    """Nothing is there, as far as this session may know."""


_UNSEEN: Final = re.compile(
    # Letters and marks to Unicode, nothing to the eye: Default_Ignorable_Code_Point beyond categories C and Z, and the
    # empty pattern of Braille. Not the two selectors that belong to emoji, which add nothing and take no room.
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)


_ESCAPED_BYTE: Final = re.compile(r"\\udc([89a-f][0-9a-f])")
"""A byte of a name that is not UTF-8, as `escape_bytes` writes it."""


def escape_bytes(path: str) -> str:
    """The path as text that every encoder takes: a byte that is not UTF-8 becomes an escape such as `\\udcff`. Tools
    take paths in this form (`unescape_bytes`)."""
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode("utf-8")


def unescape_bytes(path: str) -> str:
    """The path that `escape_bytes` wrote, as the operating system knows it."""
    if _ESCAPED_BYTE.search(path) is None:
        return path
    held = _ESCAPED_BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), path)
    try:
        return os.fsdecode(os.fsencode(held))  # bytes that together are UTF-8 have one spelling, which rules match
    except UnicodeEncodeError:
        return path


def printable(path: str) -> str:
    """A path for messages: what is not UTF-8, or cannot be seen (control, bidi, zero-width signs), as escapes."""
    if path.isascii() and path.isprintable():
        return path
    shown = escape_bytes(path)
    return "".join(sign.encode("unicode_escape").decode("ascii") if is_unseen(sign) else sign for sign in shown)


def is_unseen(sign: str) -> bool:
    """Whether a sign shows nothing, or changes how others are shown. The space is seen."""
    return not sign.isprintable() or _UNSEEN.match(sign) is not None


def missing(path: str) -> FileMissing:
    """Also said of what is hidden: the two must read the same."""
    return FileMissing(f"{printable(path)} does not exist.")


@contextlib.contextmanager
def translated(path: str, outside: Callable[[], OutsideWorkspace] | None = None) -> Iterator[None]:
    """Turn the kernel's refusals of the block into ours; `outside` makes the one for a path that left its root."""
    try:
        yield
    except OSError as error:
        _raise_translated(error, path, outside)


def _raise_translated(error: OSError, path: str, outside: Callable[[], OutsideWorkspace] | None) -> NoReturn:
    match error.errno:
        case errno.ENOENT:
            raise missing(path) from None
        case errno.EXDEV if outside:
            raise outside() from None
        case errno.ELOOP:
            raise OutsideWorkspace(f"{printable(path)} leads through a link that cannot be followed.") from None
        case errno.ENOTDIR:
            raise FileMissing(f"{printable(path)} does not exist: a part of it is a file, not a directory.") from None
        case errno.ENAMETOOLONG:
            raise FileRefused("The path, or one name in it, is too long.") from None
        case _:
            raise FileRefused(f"{printable(path)}: {error.strerror}.") from None
