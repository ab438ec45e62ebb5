"""The file in which a repair of a database keeps what it replaces: a JSON line per row, synced before it changes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from makai.auth.private_files import sync_directory
from makai.core.errors import StorageUnavailable
from makai.sessions.log.postgres.repairing import DamagedRow


class RepairFile:
    def __init__(self, home: Path) -> None:
        self.path = home / f"sessions.damaged-{time.time_ns() // 1_000_000}.jsonl"

    async def keep(self, rows: Sequence[DamagedRow]) -> None:
        """Raises `StorageUnavailable` when they cannot be written."""
        try:
            await asyncio.to_thread(self._write, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        except OSError as error:
            raise StorageUnavailable(
                f"{self.path} cannot be written ({error.strerror}), so nothing was repaired.", hint="Make room for it."
            ) from None

    def _write(self, lines: bytes) -> None:
        is_new = not self.path.exists()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.path, flags, 0o600), "wb") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_directory(self.path.parent)
