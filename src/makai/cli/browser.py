"""Opens pages in the user's browser, where there is one, and knows the addresses that open the web page."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

_REMOTE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def has_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser window would open in front of the user, not on a remote machine."""
    if any(environ.get(name) for name in _REMOTE):
        return False
    return platform in ("darwin", "win32") or any(environ.get(name) for name in _DISPLAYS)


def open_page(url: str) -> bool:
    """Start the browser. The URL comes from a server, so only web pages are opened."""
    if urlsplit(url).scheme not in ("http", "https"):
        return False
    import subprocess
    import threading

    from makai.core.programs import trusted_environment

    # A process of its own: `webbrowser` starts what it finds on PATH, which may name folders that commands write.
    command = [sys.executable, "-I", "-c", "import sys, webbrowser; webbrowser.open(sys.argv[1])", url]
    environ = trusted_environment(os.environ, [os.getcwd()])
    # Some programs that BROWSER may name run until their window is closed.
    opening = threading.Thread(
        target=subprocess.run, args=(command,), kwargs={"env": environ}, name="makai-browser", daemon=True
    )
    opening.start()
    return True


def open_for_user(url: str) -> bool:
    """Open a page for a user whose terminal is not connected to this process; False where no browser would show it."""
    return has_browser(os.environ) and open_page(url)


def page_address(http: str, home: Path) -> str:
    """The address that opens the web page with its token. Browsers keep the part behind the # to themselves."""
    from makai.auth.private_files import load_or_create_token

    return f"{_own_address(http)}/#token={load_or_create_token(home).reveal()}"


def page_ticket_address(http: str, home: Path) -> str:
    """The same with a ticket that is valid once and for a minute, because others can read a browser's command line.

    Browsers send cookies of 127.0.0.1 to every port, so the page has a host name of its own. Not on macOS, where Safari
    asks DNS for such names.
    """
    import time

    from makai.auth.private_files import load_or_create_token
    from makai.server.announcement import place_of
    from makai.transports.guard import PAGE_NAME, page_ticket

    http = _own_address(http)
    if sys.platform != "darwin":
        http = http.replace("http://127.0.0.1:", f"http://{PAGE_NAME}:")
    ticket = page_ticket(load_or_create_token(home), time.time(), place_of(home))
    return f"{http}/#token={ticket.reveal()}"


def _own_address(http: str) -> str:
    """A server that listens on every address of the machine is opened at the one for the machine itself."""
    return http.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
