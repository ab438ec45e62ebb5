"""Opening a page in the user's browser, where there is one.

In: an address and an environment. Out: whether a browser was started. It never waits for the browser.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

_REMOTE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def has_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser window would open in front of the person who typed the command."""
    if any(environ.get(name) for name in _REMOTE):
        return False
    return platform in ("darwin", "win32") or any(environ.get(name) for name in _DISPLAYS)


def open_page(url: str) -> bool:
    """Start the browser. The address comes from a server: nothing but a web page is opened."""
    if urlsplit(url).scheme not in ("http", "https"):
        return False
    import threading
    import webbrowser

    # Some of what BROWSER may name runs until its window is closed: a login must not wait for that.
    threading.Thread(target=webbrowser.open, args=(url,), name="makai-browser", daemon=True).start()
    return True
