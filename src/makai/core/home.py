"""Where makai keeps its state: `MAKAI_HOME`, by default `~/.makai`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def home_directory(environ: Mapping[str, str]) -> Path:
    stated = environ.get("MAKAI_HOME", "").strip()
    return Path(stated).expanduser() if stated else Path.home() / ".makai"
