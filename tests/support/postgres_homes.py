"""Puts the sessions of every MAKAI_HOME into PostgreSQL, each into a schema of its own: `make test-postgres`. A home
whose config.toml names a store keeps it."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from makai.core.config import STORE_VARIABLE, Config, StoreConfig
from makai.core.errors import InvalidRequest
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.log import opening
from support.postgres import shared_server


@cache
def _url_of(home: str) -> str:
    return shared_server().new_schema()


def _names_a_store(home: str) -> bool:
    try:
        return read_config(Path(home) / CONFIG_FILE).store != StoreConfig()
    except InvalidRequest:
        return False


def install() -> None:
    """For this process, and for every program that it starts with a MAKAI_HOME. Before anything else is imported."""
    start, configured_store = subprocess.Popen.__init__, opening.store_of

    def store_of(home: Path, config: Config) -> StoreConfig:
        found = configured_store(home, config)
        return found if found != StoreConfig() else StoreConfig(url=_url_of(os.path.realpath(home)))

    def start_with_store(self: Any, *arguments: Any, **options: Any) -> None:
        environ = options.get("env") or {}
        home = environ.get("MAKAI_HOME")
        if home and STORE_VARIABLE not in environ and not _names_a_store(home):
            options["env"] = {**environ, STORE_VARIABLE: _url_of(os.path.realpath(home))}
        start(self, *arguments, **options)

    opening.store_of = store_of
    subprocess.Popen.__init__ = start_with_store  # type: ignore[method-assign]


def start() -> None:
    """Start the server before a test needs it."""
    shared_server()
