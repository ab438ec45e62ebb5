"""The envelope: what every message of the Makai protocol looks like on any transport."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from makai.core.errors import ParseError
from makai.core.sanitize import is_clean
from makai.core.tool_server_ids import SERVER_ID_FORM, is_server_id
from makai.wire import strict_json

PROTOCOL_VERSION: Final = 1
MAX_SESSION_ID_LENGTH: Final = 256
MAX_DEPTH: Final = 128
"""Deeper than any document we accept elsewhere, because an envelope wraps such documents."""

ScopeKind: TypeAlias = Literal["stream_id", "session_id", "server_id"]
SCOPE_KINDS: Final[tuple[ScopeKind, ...]] = ("stream_id", "session_id", "server_id")
Encoding: TypeAlias = Literal["full", "proxy"]

_SESSION_NAMES: Final = "6d616b61-6900-5000-8000-6e616d657320"
"""The namespace of the ids of sessions that a client named otherwise (RFC 9562 section 5.5)."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


class Scope(msgspec.Struct, frozen=True, cache_hash=True):
    """What a sequence of envelopes belongs to: a provider stream, an agent session or a tool server."""

    kind: ScopeKind
    id: str


class Fragment(msgspec.Struct, frozen=True):
    """Which piece of a larger message this is; `id` is the `message_id` of the whole."""

    index: int
    total: int
    id: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. Exactly one scope id is set; `payload` is always there."""

    type: str
    stream_id: str | None = None
    session_id: str | None = None
    server_id: str | None = None
    message_id: str
    sequence: int
    timestamp: int
    version: int
    in_reply_to: str | None = None
    encoding: Literal["proxy"] | None = None
    fragment: Fragment | None = None
    payload: Any

    @property
    def scope(self) -> Scope:
        if self.stream_id is not None:
            return Scope("stream_id", self.stream_id)
        if self.session_id is not None:
            return Scope("session_id", self.session_id)
        return Scope("server_id", self.server_id or "")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why an inbound frame is not an acceptable envelope. Without a `message_id` the answer cannot say what was
    rejected: it is the host's `unknown_envelope` frame."""

    reason: str
    code: str = "invalid_request"
    message_id: str | None = None
    scope: Scope | None = None
    sequence: int | None = None
    """The number that the sender counted, where it can be read."""


class HostError(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The one server frame that is no envelope."""

    code: str
    protocol_version: str = "1"
    message: str


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """The first line a stdio server writes (MK-TRANS-001)."""

    protocol_version: str = "1"


READY_FRAME: Final = msgspec.json.encode(Ready())

encode: Final = msgspec.json.Encoder().encode


class MessageIds:
    """Message ids of one connection: UUID text, never the same twice. The first 74 bits are random per connection and
    the rest count, because drawing a random UUID for every delta would cost three times as much as encoding it."""

    __slots__ = ("_count", "_prefix")

    def __init__(self) -> None:
        digits = os.urandom(10).hex()  # what `secrets` does, without loading hashes for `makai stdio` to wait for
        self._prefix = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-a{digits[15:18]}-"
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count:012x}"


def is_uuid(text: object) -> bool:
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def is_session_id(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= MAX_SESSION_ID_LENGTH and is_clean(text)


_IS_ID: Final[dict[ScopeKind, Callable[[object], bool]]] = {
    "stream_id": is_uuid,
    "session_id": is_session_id,
    "server_id": is_server_id,
}
_ID_FORMS: Final[dict[ScopeKind, str]] = {
    "stream_id": "a UUID",
    "session_id": f"1 to {MAX_SESSION_ID_LENGTH} characters",
    "server_id": SERVER_ID_FORM,
}


def log_id_of(session_id: str) -> str:
    """The id under which the log has the session that a client names so: the same UUID, or one that follows from the
    name, so that no text of a client becomes an id elsewhere."""
    if is_uuid(session_id):
        return session_id
    from uuid import UUID, uuid5  # not for `makai stdio` to wait for

    return str(uuid5(UUID(_SESSION_NAMES), session_id))


def read_envelope(frame: bytes, max_bytes: int) -> Envelope | Problem:
    """Read an inbound frame. The payload of the result is a plain dict; unknown keys are ignored (MK-ENV-009)."""
    try:
        value = strict_json.decode(frame, max_bytes=max_bytes, max_depth=MAX_DEPTH)
    except ParseError as error:
        return problem_in(frame, f"not an envelope: {error.message}")
    if not isinstance(value, dict) or not is_uuid(value.get("message_id")):
        return Problem(reason="not an envelope: no message_id can be read")
    message_id: str = value["message_id"]
    scopes = _scopes(value)
    scope = _readable(scopes)
    if reason := _fault(value, scopes, scope):
        return _problem(reason, value)
    # `1 == 1.0 == True` in Python: only the JSON integer 1 is version 1.
    if type(value["version"]) is not int or value["version"] != PROTOCOL_VERSION:
        return _problem(f"unsupported version {value['version']!r}", value, "version_mismatch")
    assert scope is not None
    return Envelope(
        type=value["type"],
        stream_id=scope.id if scope.kind == "stream_id" else None,
        session_id=scope.id if scope.kind == "session_id" else None,
        server_id=scope.id if scope.kind == "server_id" else None,
        message_id=message_id,
        sequence=value["sequence"],
        timestamp=value["timestamp"],
        version=PROTOCOL_VERSION,
        in_reply_to=value.get("in_reply_to"),
        # MK-ENV-023: an unrecognized encoding is full, not an error.
        encoding="proxy" if value.get("encoding") == "proxy" else None,
        fragment=_fragment(value.get("fragment")),
        payload=value["payload"],
    )


def problem_in(frame: bytes, reason: str) -> Problem:
    """The problem of a frame that cannot be decoded, or of the beginning of one."""
    return _problem(reason, strict_json.readable_members(frame))


def _problem(reason: str, members: dict[str, Any], code: str = "invalid_request") -> Problem:
    """A problem with what the answer needs: every id that can be read."""
    message_id, sequence = members.get("message_id"), members.get("sequence")
    return Problem(
        reason=reason,
        code=code,
        message_id=message_id if is_uuid(message_id) else None,
        scope=_readable(_scopes(members)),
        sequence=sequence if type(sequence) is int else None,
    )


def _scopes(members: dict[str, Any]) -> list[Scope]:
    return [Scope(kind, members[kind]) for kind in SCOPE_KINDS if members.get(kind) is not None]


def _readable(scopes: list[Scope]) -> Scope | None:
    """The one scope of an envelope, if its id is one."""
    if len(scopes) != 1:
        return None
    (scope,) = scopes
    return scope if _IS_ID[scope.kind](scope.id) else None


def _fault(value: dict[str, Any], scopes: list[Scope], scope: Scope | None) -> str | None:
    if len(scopes) > 1:
        return f"more than one scope id: {', '.join(scope.kind for scope in scopes)}"
    if not scopes:
        return "no scope id (stream_id, session_id or server_id)"
    if scope is None:
        return f"{scopes[0].kind} is not {_ID_FORMS[scopes[0].kind]}"
    for key in ("type", "sequence", "timestamp", "version", "payload"):
        if key not in value:
            return f"{key} is missing"
    if not isinstance(value["type"], str):
        return "type is not a string"
    for key in ("sequence", "timestamp"):
        if type(value[key]) is not int or not 0 <= value[key] < 2**63:
            return f"{key} is not a non-negative integer"
    if not isinstance(value["payload"], dict):
        return "payload is not an object"
    if value.get("in_reply_to") is not None and not is_uuid(value["in_reply_to"]):
        return "in_reply_to is not a UUID"
    if value.get("fragment") is not None and _fragment(value["fragment"]) is None:
        return "fragment is not {index, total, id}"
    return None


def _fragment(value: Any) -> Fragment | None:
    try:
        fragment = msgspec.convert(value, Fragment)
    except msgspec.ValidationError:
        return None
    return fragment if 0 <= fragment.index < fragment.total and is_uuid(fragment.id) else None
