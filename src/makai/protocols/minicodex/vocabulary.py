"""The version, the capabilities, the error codes and the base of all Structs of the MiniCodex protocol. What the
document has no word for is marked by `MAKAI`, and only for clients that say "makai.1"."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from makai.core.errors import RefusalCode

VERSION: Final = "1.0.0"
STREAMING: Final = "streaming"
MAKAI_1: Final = "makai.1"
SERVER_CAPABILITIES: Final = ("reasoning", "approvals", "replay", STREAMING, MAKAI_1)

MAKAI: Final = Meta(extra_json_schema={"x-capability": MAKAI_1})
"""Marks a field that only clients with makai.1 send or see."""

Time: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""RFC 3339, UTC, milliseconds."""
RunStatus: TypeAlias = Literal["idle", "starting", "running", "awaiting_approval", "aborting", "finished", "error"]
ErrorCode: TypeAlias = Literal[
    RefusalCode, "MISSING_FIELD", "RESYNC_REQUIRED", "STORAGE_UNAVAILABLE", "FORBIDDEN", "INTERNAL_ERROR"
]
"""What a command can be refused with. Errors of a run have the code of their failure, in upper case, or ABORTED."""


class StrictPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what frames are made of."""


class PastedImage(StrictPart, frozen=True, kw_only=True):
    """A picture beside the words, base64 in `data`."""

    data: str
    mime_type: str


class AttachedText(StrictPart, frozen=True, kw_only=True):
    """A text file beside the words. Every client shows it by the last part of `uri`, such as attachment:///notes.txt."""

    uri: str
    text: str


def published_name(name: str) -> str:
    """A class's name in `schema/` and in the page's TypeScript, which stay as clients know them."""
    kept = {"ErrorFrame": "ErrorFrame", "BaseFrame": "Envelope"}
    return kept.get(name) or re.sub(r"(?<=\w)(Frame|Command|Part)$", "", name)
