"""The launcher of this process with the programs of makai that it holds in memory."""

from __future__ import annotations

import atexit
import functools
from typing import Final

from makai.aio.launcher import Launcher

BUBBLEWRAP: Final = "makai:bubblewrap"
JUDGE: Final = "makai:judge"
LANDLOCK: Final = "makai:landlock"
SEARCH: Final = "makai:search"


@functools.cache
def launcher() -> Launcher:
    """There is one: it must be older than all that a session could have written."""
    started = Launcher(
        {LANDLOCK: "makai.tools.sandbox.landlock_child:main"},
        workers={JUDGE: "makai.tools.permissions.judge_worker:main", SEARCH: "makai.tools.search_worker:main"},
        wrappers={BUBBLEWRAP: "makai.tools.sandbox.bubblewrap_child:prepared"},
    )
    atexit.register(started.close)
    return started
