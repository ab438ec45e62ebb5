"""Where the code of makai, its dependencies and its interpreter are.

makai may be installed inside a session's folder, as in a clone with `make run`. What it loads runs outside of every
sandbox, so no command may write there, and a file tool asks first.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from makai.core.module_path import code_folders


def _folders() -> tuple[str, ...]:
    found = [*code_folders(), os.path.realpath(sys.executable)]
    if sys.prefix != sys.base_prefix:
        found.append(os.path.realpath(sys.prefix))  # with `pyvenv.cfg`, which names the standard library's folder
    return tuple(dict.fromkeys(found))


OWN_CODE: Final = _folders()
"""Absolute and free of links."""


def own_code_around(path: str) -> str | None:
    """The one of `OWN_CODE` that is `path` or holds it."""
    return next((held for held in OWN_CODE if path == held or path.startswith(f"{held}/")), None)
