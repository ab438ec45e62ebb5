"""The one interface of every transport: a channel moves whole frames, each the bytes of one JSON text, both ways. It
neither parses nor builds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from makai.core.access import Caller

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest frame every transport passes; a larger message travels in fragments."""


class Oversized(msgspec.Struct, frozen=True):
    """A frame above `limit` bytes arrived and was skipped; the channel continues with the next one."""

    limit: int
    start: bytes = b""
    """Its first bytes, as far as they are known: the protocol may find out who sent it."""


class Channel(Protocol):
    """One connection to one peer."""

    max_frame_bytes: int

    async def receive(self) -> bytes | Oversized | None:
        """The next frame; `None`, from then on always, when the peer is gone or this side has closed. Only one task may
        receive at a time. Frames that the peer sent before it closed still arrive."""

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write all `frames` in order, with nothing of another sender between them (MK-TRANS-014). Returns once the
        transport holds less than its bound, so a slow peer slows its senders and costs no memory. A cancelled send
        leaves no part of a frame behind; which whole frames it wrote is not known. Raises `ChannelClosed` when the peer
        is gone."""

    async def close(self, reason: str = "") -> None:
        """End the connection; may be repeated. What `send` accepted is still delivered if the peer reads it soon."""


Serve: TypeAlias = Callable[[Channel], Awaitable[None]]
"""Serves one connection; the transport closes the channel when it returns."""
ServeCaller: TypeAlias = Callable[[Channel, Caller], Awaitable[None]]
"""The same for a listener with tokens, which says who connects."""
