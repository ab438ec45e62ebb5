"""Opens the log that the configuration names. Only this module knows which stores there are."""

from __future__ import annotations

from pathlib import Path

from makai.core.config import StoreConfig
from makai.core.errors import InvalidRequest
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.log.base import EventLog


async def open_log(home: Path, config: StoreConfig | None = None) -> EventLog:
    """Own the sessions of a MAKAI_HOME, by its `[store]` unless another one is given; raises `HomeInUse`."""
    url = (config or read_config(home / CONFIG_FILE).store).url
    if url == "sqlite":
        from makai.sessions.log.sqlite import SqliteLog

        return await SqliteLog.open(home)
    scheme = url.partition(":")[0]
    raise InvalidRequest(
        f"Sessions cannot be stored in {scheme!r}; this version supports sqlite.",
        hint='Write url = "sqlite" in [store] of config.toml, or leave it out.',
    )
