"""What tools say, as logs and protocols can carry it.

In: text that a program printed or a server sent, which may hold anything. Out: the same text, with U+FFFD in place of
what JSON is not allowed to say to everyone (NUL) or UTF-8 cannot say (half of a surrogate pair). Pure. Without this one
`cat` of a binary file would end a run: its log refuses what it cannot keep.
"""

from __future__ import annotations

import msgspec

from makai.core.content import Image, Text

_REPLACEMENT = "\ufffd"


def storable(text: str) -> str:
    """The text, with a mark for every character that cannot be kept."""
    if "\x00" in text:
        text = text.replace("\x00", _REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(_REPLACEMENT if "\ud800" <= sign <= "\udfff" else sign for sign in text)
    return text


def storable_part(part: Text | Image) -> Text | Image:
    """The same for a part of an answer; pictures are letters and digits already."""
    return msgspec.structs.replace(part, text=storable(part.text)) if isinstance(part, Text) else part
