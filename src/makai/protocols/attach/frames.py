"""Messages of the link as bytes: one JSON text each, for a channel of newline-delimited JSON.

In: messages or frames. Out: frames or messages; `ParseError` for a frame that says nothing we know, `InvalidRequest`
for a message that cannot be sent.

What an attached process says is read strictly, like everything from outside. What the owner says is not looked at
twice: its events were checked when they came in, and a batch of a thousand should cost what copying it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from makai.core.errors import InvalidRequest, ParseError
from makai.core.secret import Secret
from makai.protocols.attach.messages import FromAttached, FromOwner, Message, Records
from makai.sessions.log.base import BATCH_BYTES, Record
from makai.wire import strict_json

MAX_FRAME_BYTES: Final = BATCH_BYTES + 2 * strict_json.MAX_BYTES
"""A batch ends with the event that exceeds `BATCH_BYTES`; then there are the numbers and names around it."""
MAX_DEPTH: Final = strict_json.MAX_DEPTH + 16
"""What is said may be as deep as any document, inside of our envelope."""


def _secret_as_text(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()  # on its way to a socket of this user
    raise NotImplementedError(f"{type(value).__name__} has no form on the link")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_secret_as_text)
_FROM_ATTACHED: Final[msgspec.json.Decoder[FromAttached]] = msgspec.json.Decoder(
    FromAttached, dec_hook=lambda kind, value: kind(str(value))
)
_FROM_OWNER: Final[msgspec.json.Decoder[FromOwner]] = msgspec.json.Decoder(FromOwner)


def encoded(message: Message) -> bytes:
    """The frame of a message."""
    try:
        frame = _ENCODER.encode(message)
    except UnicodeEncodeError:
        raise InvalidRequest("Text with a lone surrogate cannot be sent.") from None
    if len(frame) > MAX_FRAME_BYTES:
        raise InvalidRequest(f"A message of {len(frame)} bytes exceeds the limit of {MAX_FRAME_BYTES}.")
    if b"\\u0000" in frame:
        _check(frame)
    return frame


def _check(frame: bytes) -> None:
    """Tell a NUL, which the other side would refuse without knowing whose it is, from a backslash before "u0000"."""
    try:
        strict_json.decode(frame, max_bytes=MAX_FRAME_BYTES, max_depth=MAX_DEPTH)
    except ParseError as error:
        raise InvalidRequest(f"This cannot be sent: {error.message}.") from None


def encoded_records(number: int, records: Sequence[Record]) -> bytes:
    """The frame of a `Records`, made of the lines as they are."""
    ids = ",".join([str(record.event_id) for record in records]).encode()
    lines = b",".join([record.line for record in records])
    return b'{"type":"records","number":%d,"ids":[%b],"lines":[%b]}' % (number, ids, lines)


def from_attached(frame: bytes) -> FromAttached:
    """What an attached process says."""
    return strict_json.decode_with(_FROM_ATTACHED, frame, max_bytes=MAX_FRAME_BYTES, max_depth=MAX_DEPTH)


def from_owner(frame: bytes) -> FromOwner:
    """What the owner says."""
    try:
        return _FROM_OWNER.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"the owner of the sessions said what we cannot read: {error}") from None


def records_of(message: Records) -> list[Record]:
    """The batch that a message carries."""
    if len(message.ids) != len(message.lines):
        raise ParseError(f"{len(message.ids)} numbers came with {len(message.lines)} events")
    return [Record(event_id, bytes(line)) for event_id, line in zip(message.ids, message.lines, strict=True)]
