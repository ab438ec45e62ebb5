"""Puts the sessions of every MAKAI_HOME into PostgreSQL, each into a schema of its own: `make test-postgres`. A home
whose config.toml names a store keeps it."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from makai.core.config import STORE_VARIABLE, Config, StoreConfig
from makai.sessions.log import opening
from support.postgres import shared_server


@cache
def _url_of(home: str) -> str:
    return shared_server().new_schema()


def _store_of(home: Path, config: Config) -> StoreConfig:
    if config.store != StoreConfig() or os.environ.get(STORE_VARIABLE):
        return config.store
    return StoreConfig(url=_url_of(os.path.realpath(home)))


def install() -> None:
    """For this process, and for every program that it starts with a MAKAI_HOME. Before anything else is imported."""
    start = subprocess.Popen.__init__

    def start_with_store(self: Any, *arguments: Any, **options: Any) -> None:
        environ = options.get("env")
        if environ and environ.get("MAKAI_HOME") and STORE_VARIABLE not in environ:
            url = _url_of(os.path.realpath(environ["MAKAI_HOME"]))
            options["env"] = {**environ, STORE_VARIABLE: url}
        start(self, *arguments, **options)

    opening.store_of = _store_of
    subprocess.Popen.__init__ = start_with_store  # type: ignore[method-assign]


def start() -> None:
    """Start the server before a test needs it."""
    shared_server()
