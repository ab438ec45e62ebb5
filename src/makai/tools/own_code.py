"""Where the code of makai, its dependencies and its interpreter are.

makai may be installed inside a session's folder, as in a clone with `make run`. What it loads runs outside of every
sandbox, so no command may write there, and a file tool asks first.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path
from typing import Final


def _folders() -> tuple[str, ...]:
    found = [str(Path(__file__).parents[2]), os.path.dirname(os.__file__), sys.executable, *site.getsitepackages()]
    if sys.prefix != sys.base_prefix:
        found.append(sys.prefix)  # with `pyvenv.cfg`, which names the folder of the standard library
    if site.ENABLE_USER_SITE and (user_site := site.getusersitepackages()):
        found.append(user_site)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found))


OWN_CODE: Final = _folders()
"""Absolute and free of links."""


def own_code_around(path: str) -> str | None:
    """The one of `OWN_CODE` that is `path` or holds it."""
    return next((held for held in OWN_CODE if path == held or path.startswith(f"{held}/")), None)
