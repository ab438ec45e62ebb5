"""Messages of the link as bytes: one JSON text each, for a channel of newline-delimited JSON. What an attached process
sends is decoded strictly, like all outside input. What the owner sends is trusted: its events were checked when they
were stored, and a batch of a thousand should cost no more than copying it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Any, Final

import msgspec

from makai.core.errors import InvalidRequest, ParseError
from makai.core.secret import Secret
from makai.protocols.attach.messages import AttachAnswer, FromAttached, FromOwner, Message, Records, RequestMessage
from makai.sessions.log.base import BATCH_BYTES, Record
from makai.sessions.requests import AnswerT, Request, answer_type, request_types
from makai.sessions.state import Seen
from makai.wire import strict_json

MAX_FRAME_BYTES: Final = BATCH_BYTES + 2 * strict_json.MAX_BYTES
"""A batch ends with the event that exceeds `BATCH_BYTES`; the rest is for the envelope."""
MAX_DEPTH: Final = strict_json.MAX_DEPTH + 16
"""A message may be as deep as any document, plus its envelope."""


def _plain(value: Any) -> Any:
    match value:
        case Secret():
            return value.reveal()  # on its way to a socket of this user
        case Seen():
            return list(value)
        case _:
            raise NotImplementedError(f"{type(value).__name__} has no form on the link")


def _special(kind: type[Any], value: Any) -> Any:
    return kind(value) if kind is Seen else kind(str(value))


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)
_FROM_ATTACHED: Final[msgspec.json.Decoder[FromAttached]] = msgspec.json.Decoder(FromAttached, dec_hook=_special)
_FROM_OWNER: Final[msgspec.json.Decoder[FromOwner]] = msgspec.json.Decoder(FromOwner)


@lru_cache(maxsize=128)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_special)


@lru_cache(maxsize=8)
def _request_decoder(kinds: tuple[type[Request[Any]], ...]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(reduce(or_, kinds), dec_hook=_special)


def encoded(message: Message) -> bytes:
    """The frame of a message; raises `InvalidRequest` when it cannot be sent."""
    frame = _json(message)
    if len(frame) > MAX_FRAME_BYTES:
        raise InvalidRequest(f"A message of {len(frame)} bytes exceeds the limit of {MAX_FRAME_BYTES}.")
    # What the owner sends is not checked: the arguments of a call may hold a NUL that the model wrote.
    if b"\\u0000" in frame and isinstance(message, FromAttached):
        _check(frame)
    return frame


def encoded_request(number: int, request: Request[Any]) -> bytes:
    return encoded(RequestMessage(number=number, request=msgspec.Raw(_json(request))))


def encoded_answer(number: int, request: Request[AnswerT], answer: AnswerT) -> bytes:
    if answer_type(type(request)) == list[Record]:
        return encoded_records(number, answer)  # type: ignore[arg-type]
    return encoded(AttachAnswer(number=number, result=msgspec.Raw(_json(answer))))


def encoded_records(number: int, records: Sequence[Record]) -> bytes:
    """The frame of a `Records`, made of the stored lines."""
    ids = ",".join([str(record.event_id) for record in records]).encode()
    lines = b",".join([record.line for record in records])
    return b'{"type":"records","number":%d,"ids":[%b],"lines":[%b]}' % (number, ids, lines)


def from_attached(frame: bytes) -> FromAttached:
    return strict_json.decode_with(_FROM_ATTACHED, frame, max_bytes=MAX_FRAME_BYTES, max_depth=MAX_DEPTH)


def request_of(message: RequestMessage) -> Request[Any]:
    try:
        request: Request[Any] = _request_decoder(request_types()).decode(message.request)
    except msgspec.DecodeError as error:
        raise ParseError(f"not a request: {error}") from None
    return request


def from_owner(frame: bytes) -> FromOwner:
    try:
        return _FROM_OWNER.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"the owner of the sessions sent a message that cannot be read: {error}") from None


def answer_of(request: Request[AnswerT], message: AttachAnswer | Records) -> AnswerT:
    answer: AnswerT = (
        records_of(message)  # type: ignore[assignment]
        if isinstance(message, Records)
        else _decoder(answer_type(type(request))).decode(message.result)
    )
    return answer


def records_of(message: Records) -> list[Record]:
    if len(message.ids) != len(message.lines):
        raise ParseError(f"{len(message.ids)} numbers came with {len(message.lines)} events")
    return [Record(event_id, bytes(line)) for event_id, line in zip(message.ids, message.lines, strict=True)]


def _json(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        raise InvalidRequest("Text with a lone surrogate cannot be sent.") from None


def _check(frame: bytes) -> None:
    """Tell a NUL, which the other side would refuse without knowing whose it is, from a backslash before "u0000"."""
    try:
        strict_json.decode(frame, max_bytes=MAX_FRAME_BYTES, max_depth=MAX_DEPTH)
    except ParseError as error:
        raise InvalidRequest(f"This cannot be sent: {error.message}.") from None
