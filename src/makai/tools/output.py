"""The output of a command: its beginning and its end for the model, all of it in a file when it is long.

In: bytes as they arrive, any amount. Out: a text of bounded length, and how much of it was left out. What is held in
memory does not grow with the output. It must not know processes or tools.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

KEPT_BYTES = 256 * 1024
MOST_SPILLED_BYTES = 4 * 1024**3


class CappedOutput:
    """Head and tail in memory, everything in `spill_path` once they are not enough. `close` it."""

    def __init__(self, spill_directory: Path, *, kept: int = KEPT_BYTES) -> None:
        self.total = 0
        self.spill_path: Path | None = None
        self._directory = spill_directory
        self._half = kept // 2
        self._head = b""
        self._tail = bytearray()
        self._spill: BinaryIO | None = None
        self._spill_failure = ""

    async def add(self, chunk: bytes) -> None:
        """Take the next output. Long output goes to its file in a thread: a slow disk must not stop the event loop."""
        begins = self.total <= 2 * self._half < self.total + len(chunk)
        # Until now head and tail held everything; the chunk may be longer than what they keep of it.
        unsaved = self._head + bytes(self._tail) if begins else b""
        self._keep(chunk)
        if self.total <= 2 * self._half or self._spill_failure:
            return
        try:
            await asyncio.to_thread(self._write, (unsaved, chunk), begin=begins)
        except OSError as error:
            # A full disk is no reason to lose what the command does; what memory holds is still told.
            self._spill_failure = error.strerror or "an I/O error"

    @property
    def too_long(self) -> bool:
        """Whether it has outgrown even its file: a command that writes without end must not fill the disk."""
        return self.total > MOST_SPILLED_BYTES

    @property
    def omitted(self) -> int:
        """How many bytes `text` leaves out."""
        return max(0, self.total - 2 * self._half)

    def text(self) -> str:
        """What the model sees."""
        if not self.omitted:
            return (self._head + bytes(self._tail)).decode("utf-8", "replace")
        # The cuts may fall into a character: its halves are left out on both sides.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        tail = bytes(self._tail[-self._half :])
        start = next((index for index, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        kept = f"it could not be kept: {self._spill_failure}" if self._spill_failure else f"all is in {self.spill_path}"
        return f"{head}\n[{self.omitted:,} bytes left out here; {kept}]\n" + tail[start:].decode("utf-8", "replace")

    def close(self) -> None:
        """Finish the file, if there is one."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def _keep(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 4 * self._half:
            del self._tail[: -2 * self._half]

    def _write(self, chunks: Sequence[bytes], *, begin: bool) -> None:
        if begin:
            self._spill = self._opened()
        for chunk in chunks:
            rest = memoryview(chunk)
            while self._spill is not None and rest:
                rest = rest[self._spill.write(rest) :]

    def _opened(self) -> BinaryIO:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / f"output-{secrets.token_hex(8)}.txt"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.spill_path = path
        return open(descriptor, "wb", buffering=0)
