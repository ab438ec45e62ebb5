"""How envelopes leave and arrive: sequence numbers per scope, fragments of large messages, and the outgoing half of a
connection, which both sides share."""

from __future__ import annotations

import base64
import binascii
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.sanitize import sanitize
from makai.protocols.makai.envelope import PROTOCOL_VERSION, Envelope, Fragment, MessageIds, Scope, encode

SequenceFault = Literal["invalid_sequence", "duplicate_sequence", "sequence_gap"]

MAX_IDLE_SCOPES = 1024
"""How many scopes are remembered that hold nothing but a few pongs or nacks."""


class Inbound:
    """What number each scope must send next. Only scopes with something going on are remembered."""

    def __init__(self) -> None:
        self._expected: dict[Scope, int] = {}
        self._allowed: dict[Scope, int] = {}

    def check(self, scope: Scope, sequence: int) -> SequenceFault | None:
        """What is wrong with this number, without taking it."""
        expected = self._expected.get(scope, 1)
        if expected <= sequence <= self._allowed.get(scope, expected):
            return None
        if sequence == 0:
            return "invalid_sequence"
        return "duplicate_sequence" if sequence < expected else "sequence_gap"

    def take(self, scope: Scope, count: int = 1) -> None:
        """Count accepted envelopes (a fragmented message uses as many numbers as it has fragments)."""
        self._expected[scope] = self._expected.get(scope, 1) + count

    def allow(self, scope: Scope, sequence: int) -> None:
        """The next envelope may have any number up to this one: what came with a lower one may have been refused."""
        self._allowed[scope] = max(sequence, self._allowed.get(scope, 0))

    def accept(self, scope: Scope, following: int) -> None:
        """An envelope was accepted, whichever of the allowed numbers it had."""
        self._expected[scope] = following
        self._allowed.pop(scope, None)

    def forget(self, scope: Scope) -> None:
        self._expected.pop(scope, None)
        self._allowed.pop(scope, None)


class Outbound:
    """The number each scope sends next. Idle scopes are forgotten, the longest idle first."""

    def __init__(self) -> None:
        self._live: dict[Scope, int] = {}
        self._idle: OrderedDict[Scope, int] = OrderedDict()

    def begin(self, scope: Scope) -> None:
        """The scope is live: its counter is kept until `forget` or `rest`."""
        if scope not in self._live:
            self._live[scope] = self._idle.pop(scope, 0)

    def rest(self, scope: Scope) -> None:
        """The scope is idle and may continue where it was; it is remembered like other idle ones."""
        self._idle[scope] = self._live.pop(scope, 0)

    def next(self, scope: Scope) -> int:
        live = self._live
        last = live.get(scope)
        if last is not None:
            live[scope] = last + 1
            return last + 1
        number = self._idle.pop(scope, 0) + 1
        self._idle[scope] = number
        if len(self._idle) > MAX_IDLE_SCOPES:
            self._idle.popitem(last=False)
        return number

    def forget(self, scope: Scope) -> None:
        self._live.pop(scope, None)
        self._idle.pop(scope, None)


class FragmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    message_bytes: int = 64 * 1024 * 1024
    fragments: int = 1024
    unfinished: int = 8
    seconds: float = 30.0


class FragmentData(msgspec.Struct, frozen=True):
    data: str


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    payload: bytes
    first_sequence: int
    total: int


def cut(payload: bytes, frame_bytes: int, overhead: int) -> list[FragmentData]:
    """The payload as slices that fit into frames of `frame_bytes` whose envelope takes `overhead` bytes."""
    room = (frame_bytes - overhead) // 4 * 3
    if room <= 0:
        raise InvalidRequest(f"a frame limit of {frame_bytes} bytes is too small to send anything")
    return [FragmentData(base64.b64encode(payload[at : at + room]).decode()) for at in range(0, len(payload), room)]


class _Assembly:
    def __init__(self, kind: object, total: int, now: float) -> None:
        self.kind = kind
        self.total = total
        self.started = now
        self.pieces: dict[int, bytes] = {}
        self.size = 0
        self.first_sequence: int | None = None


class Reassembler:
    """Joins the fragments of one connection. What does not fit the limits raises and is forgotten."""

    def __init__(self, limits: FragmentLimits) -> None:
        self._limits = limits
        self._unfinished: dict[tuple[Scope, str], _Assembly] = {}
        self._refused: OrderedDict[tuple[Scope, str], None] = OrderedDict()
        """Messages that were refused while fragments of them may still arrive."""

    def expire(self, now: float) -> list[tuple[Scope, str]]:
        """Forget messages that took too long to arrive; their scopes and ids."""
        if not self._unfinished:
            return []
        started_before = now - self._limits.seconds
        late = [key for key, assembly in self._unfinished.items() if assembly.started < started_before]
        for key in late:
            del self._unfinished[key]
        return late

    def add(
        self, scope: Scope, fragment: Fragment, sequence: int, payload: object, now: float, kind: object = None
    ) -> Joined | None:
        """Take one fragment; the message when it was the last missing one. A fragment that comes twice is ignored,
        and so is one of a message that was refused. `kind` is what the envelopes of all fragments of a message have in
        common. `InvalidRequest` says what the sender did wrong."""
        key = (scope, fragment.id)
        if key in self._refused:
            return None
        try:
            assembly = self._assembly(key, kind, fragment.total, now)
            self._take(assembly, fragment.index, sequence, payload)
        except InvalidRequest:
            self._unfinished.pop(key, None)
            self._refused[key] = None
            if len(self._refused) > MAX_IDLE_SCOPES:
                self._refused.popitem(last=False)
            raise
        if len(assembly.pieces) < assembly.total:
            return None
        del self._unfinished[key]
        payload = b"".join(assembly.pieces[index] for index in range(assembly.total))
        assert assembly.first_sequence is not None
        return Joined(payload=payload, first_sequence=assembly.first_sequence, total=assembly.total)

    def _assembly(self, key: tuple[Scope, str], kind: object, total: int, now: float) -> _Assembly:
        assembly = self._unfinished.get(key)
        if assembly is None:
            if total > self._limits.fragments:
                raise InvalidRequest(f"a message may have at most {self._limits.fragments} fragments")
            if len(self._unfinished) >= self._limits.unfinished:
                raise InvalidRequest(f"at most {self._limits.unfinished} fragmented messages may be unfinished")
            assembly = self._unfinished[key] = _Assembly(kind, total, now)
        if assembly.total != total:
            raise InvalidRequest("fragments of one message disagree about their total")
        if assembly.kind != kind:
            raise InvalidRequest("fragments of one message disagree about its type, encoding or in_reply_to")
        return assembly

    def _take(self, assembly: _Assembly, index: int, sequence: int, payload: object) -> None:
        first_sequence = sequence - index
        if assembly.first_sequence is None:
            assembly.first_sequence = first_sequence
        if assembly.first_sequence != first_sequence:
            raise InvalidRequest("fragments of one message are not numbered one after the other")
        if index in assembly.pieces:
            return
        try:
            piece = base64.b64decode(msgspec.convert(payload, FragmentData).data, validate=True)
        except (msgspec.ValidationError, binascii.Error, ValueError) as error:
            raise InvalidRequest("a fragment's payload is not {data: base64}") from error
        assembly.size += len(piece)
        if assembly.size > self._limits.message_bytes:
            raise InvalidRequest(f"a message may have at most {self._limits.message_bytes} bytes")
        assembly.pieces[index] = piece


_ESCAPED_NUL = b"\\u0000"

FRAGMENT_OVERHEAD = 1024
"""More than any envelope needs around its payload."""


def unix_milliseconds() -> int:
    return time.time_ns() // 1_000_000


class EnvelopeSender:
    def __init__(self, frame_bytes: int, clock: Callable[[], int] = unix_milliseconds) -> None:
        self._frame_bytes = frame_bytes
        self._clock = clock
        self._ids = MessageIds()
        self._outbox: list[bytes] = []
        self.pending_bytes = 0
        self.sequences = Outbound()

    def take(self) -> list[bytes]:
        frames, self._outbox = self._outbox, []
        self.pending_bytes = 0
        return frames

    def send(
        self,
        scope: Scope,
        kind: str,
        payload: Any,
        *,
        in_reply_to: str | None = None,
        encoding: Literal["proxy"] | None = None,
        exact: bool = False,
    ) -> str:
        """Put an envelope into the outbox; returns its message id. What one side sends, the other must accept when it
        comes back, so text that was not sanitized where it entered, an error's message for example, is sanitized here.
        An `exact` payload is not: the arguments of a tool are what the model wrote."""
        scope_kind = scope.kind
        message_id = self._ids.new()
        envelope = Envelope(
            type=kind,
            stream_id=scope.id if scope_kind == "stream_id" else None,
            session_id=scope.id if scope_kind == "session_id" else None,
            server_id=scope.id if scope_kind == "server_id" else None,
            message_id=message_id,
            sequence=self.sequences.next(scope),
            timestamp=self._clock(),
            version=PROTOCOL_VERSION,
            in_reply_to=in_reply_to,
            encoding=encoding,
            payload=payload,
        )
        try:
            frame = encode(envelope)
        except UnicodeEncodeError:
            frame = encode(envelope := sanitize(envelope))
        if not exact and _ESCAPED_NUL in frame:
            frame = encode(envelope := sanitize(envelope))
        if len(frame) > self._frame_bytes:
            self._send_fragments(envelope)
        else:
            self.put(frame)
        return message_id

    def put(self, frame: bytes) -> None:
        """A frame that is no envelope, or is encoded already."""
        self._outbox.append(frame)
        self.pending_bytes += len(frame)

    def _send_fragments(self, whole: Envelope) -> None:
        pieces = cut(encode(whole.payload), self._frame_bytes, FRAGMENT_OVERHEAD)
        for index, piece in enumerate(pieces):
            envelope = msgspec.structs.replace(
                whole,
                message_id=self._ids.new(),
                # The whole had taken the first number already.
                sequence=whole.sequence if index == 0 else self.sequences.next(whole.scope),
                fragment=Fragment(index=index, total=len(pieces), id=whole.message_id),
                payload=piece,
            )
            self.put(encode(envelope))
