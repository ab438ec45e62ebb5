"""Where makai keeps its state: `MAKAI_HOME`, by default `~/.makai` (DESIGN §10).

In: an environment. Out: a path. It creates nothing and reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def home_directory(environ: Mapping[str, str]) -> Path:
    """The state directory of this user."""
    stated = environ.get("MAKAI_HOME", "").strip()
    return Path(stated).expanduser() if stated else Path.home() / ".makai"
