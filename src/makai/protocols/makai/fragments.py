"""Large messages in fragments: cut to send, joined when received, within bounds (MK-ENV-024, MK-ENV-025)."""

from __future__ import annotations

import base64
import binascii

import msgspec

from makai.core.errors import InvalidRequest
from makai.protocols.makai.envelope import Fragment, Scope


class FragmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer may make us hold."""

    message_bytes: int = 64 * 1024 * 1024
    fragments: int = 1024
    unfinished: int = 8
    seconds: float = 30.0


class FragmentData(msgspec.Struct, frozen=True):
    """The payload of a fragment."""

    data: str


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose fragments have all arrived."""

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
    """One message of which some fragments are here."""

    def __init__(self, total: int, now: float) -> None:
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

    def expire(self, now: float) -> list[tuple[Scope, str]]:
        """Forget messages that took too long to arrive; their scopes and ids."""
        if not self._unfinished:
            return []
        started_before = now - self._limits.seconds
        late = [key for key, assembly in self._unfinished.items() if assembly.started < started_before]
        for key in late:
            del self._unfinished[key]
        return late

    def add(self, scope: Scope, fragment: Fragment, sequence: int, payload: object, now: float) -> Joined | None:
        """Take one fragment; the message when it was the last missing one.

        A fragment that comes twice is ignored. `InvalidRequest` says what the sender did wrong.
        """
        key = (scope, fragment.id)
        try:
            assembly = self._assembly(key, fragment.total, now)
            self._take(assembly, fragment.index, sequence, payload)
        except InvalidRequest:
            self._unfinished.pop(key, None)
            raise
        if len(assembly.pieces) < assembly.total:
            return None
        del self._unfinished[key]
        payload = b"".join(assembly.pieces[index] for index in range(assembly.total))
        assert assembly.first_sequence is not None
        return Joined(payload=payload, first_sequence=assembly.first_sequence, total=assembly.total)

    def _assembly(self, key: tuple[Scope, str], total: int, now: float) -> _Assembly:
        assembly = self._unfinished.get(key)
        if assembly is None:
            if total > self._limits.fragments:
                raise InvalidRequest(f"a message may have at most {self._limits.fragments} fragments")
            if len(self._unfinished) >= self._limits.unfinished:
                raise InvalidRequest(f"at most {self._limits.unfinished} fragmented messages may be unfinished")
            assembly = self._unfinished[key] = _Assembly(total, now)
        if assembly.total != total:
            raise InvalidRequest("fragments of one message disagree about their total")
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
