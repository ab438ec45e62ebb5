"""WebSocket text frames of a server, without I/O, compressed where that pays. The HTTP library would compress every
frame, which for the small frames of a streamed answer costs more CPU than everything else; RFC 7692 section 6 leaves it
to the sender, frame by frame."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

COMPRESS_FROM_BYTES: Final = 1024
"""Compressing a frame of a few hundred bytes costs 6 µs or more, the whole budget for a delta is 15."""

_TEXT: Final = 0x81  # FIN and the opcode of a text frame
_RSV1: Final = 0x40  # "Per-Message Compressed" (RFC 7692 section 6)
_EMPTY_BLOCK: Final = b"\x00\x00\xff\xff"


class TextFrameEncoder:
    """Encodes the messages of one connection. `window_bits` 0 means that compression was not negotiated."""

    def __init__(self, window_bits: int = 0, *, takeover: bool = True) -> None:
        self._window_bits = window_bits
        self._takeover = takeover
        # 256 KB; most connections never need it
        self._compressor: zlib._Compress | None = None

    @property
    def compresses(self) -> bool:
        return self._window_bits > 0

    def encode(self, frames: Sequence[bytes]) -> bytes:
        """Everything that has to be written for `frames`, in one piece."""
        parts = []
        for frame in frames:
            first_byte = _TEXT
            payload = frame
            if self._window_bits and len(frame) >= COMPRESS_FROM_BYTES:
                first_byte |= _RSV1
                payload = self._compress(frame)
            length = len(payload)
            if length < 126:
                parts.append(bytes((first_byte, length)))
            elif length < 65536:
                parts.append(bytes((first_byte, 126, length >> 8, length & 0xFF)))
            else:
                parts.append(bytes((first_byte, 127)) + length.to_bytes(8, "big"))
            parts.append(payload)
        return b"".join(parts)

    def without_history(self) -> TextFrameEncoder:
        """One for the same connection without history: for when encoded bytes were not sent, so the peer lacks them."""
        return TextFrameEncoder(self._window_bits, takeover=self._takeover)

    def _compress(self, frame: bytes) -> bytes:
        compressor = self._compressor or zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -self._window_bits)
        self._compressor = compressor if self._takeover else None
        data = compressor.compress(frame) + compressor.flush(zlib.Z_SYNC_FLUSH)
        # "Remove 4 octets (that are 0x00 0x00 0xff 0xff) from the tail end" (RFC 7692 section 7.2.1)
        return data.removesuffix(_EMPTY_BLOCK)
