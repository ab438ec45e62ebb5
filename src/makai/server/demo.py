"""The demo: a session that shows tools, diffs and approvals without any account, in a throw-away folder. The model is
scripted and says so; the agent loop, the tools, the approvals and the sandbox are the real ones."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from makai.core.session_events import SessionTerms
from makai.sessions.requests import CreateSession

MODEL_REF: Final = "scripted/demo"
TITLE: Final = "Demo (scripted model)"
KEPT_S: Final = 7 * 24 * 3600.0
"""So long after the last change in it a demo's folder is kept."""
_PREFIX: Final = "demo-"
_FILES: Final[Mapping[str, str]] = {
    "README.md": "# Greeter\n\nSays hello. `python greet.py NAME`.\n",
    "greet.py": (
        'import sys\n\n\ndef greet(name):\n    return "Helo, " + name\n\n\n'
        'if __name__ == "__main__":\n    print(greet(sys.argv[1]))\n'
    ),
    "test_greet.py": (
        "from greet import greet\n\nassert greet('Ada') == 'Hello, Ada', greet('Ada')\nprint('all tests passed')\n"
    ),
}


def make_demo(environ: Mapping[str, str]) -> CreateSession:
    """A new folder with the project, and the session that works in it."""
    folder = _folder(environ)
    for name, text in _FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    terms = SessionTerms(builtin_tools=True)
    return CreateSession(model_ref=MODEL_REF, mode="ask", cwd=str(folder), title=TITLE, terms=terms)


def _folder(environ: Mapping[str, str]) -> Path:
    """In the user's cache: what is in /tmp would be hidden from the commands of the sandbox."""
    stated = environ.get("XDG_CACHE_HOME", "")
    cache = Path(stated) if stated.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    parent = cache / "makai"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_old(parent)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))


def _remove_old(parent: Path) -> None:
    """Remove the throw-away folders. What cannot be removed stays."""
    oldest = time.time() - KEPT_S
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            times = (path.lstat().st_mtime for path in (folder, *folder.iterdir()))
            if not folder.is_symlink() and max(times) < oldest:
                shutil.rmtree(folder)
