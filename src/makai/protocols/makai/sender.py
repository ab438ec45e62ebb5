"""Numbers, names and cuts outgoing envelopes, for both sides of a connection. Large ones leave as fragments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from makai.protocols.makai.envelope import PROTOCOL_VERSION, Envelope, Fragment, MessageIds, Scope, encode
from makai.protocols.makai.fragments import cut
from makai.protocols.makai.sequences import Outbound

FRAGMENT_OVERHEAD = 1024
"""More than any envelope needs around its payload."""


def unix_milliseconds() -> int:
    return time.time_ns() // 1_000_000


class EnvelopeSender:
    """The outgoing half of a connection."""

    def __init__(self, frame_bytes: int, clock: Callable[[], int] = unix_milliseconds) -> None:
        self._frame_bytes = frame_bytes
        self._clock = clock
        self._ids = MessageIds()
        self._outbox: list[bytes] = []
        self.pending_bytes = 0
        """How much waits in the outbox."""
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
    ) -> str:
        """Put an envelope into the outbox; returns its message id."""
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
        frame = encode(envelope)
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
