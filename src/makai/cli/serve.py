"""`makai serve`: the server other programs and people connect to.

In: where to listen. Out: a running server and its address. Thin: `makai.server.serve` does the work.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from makai.cli.browser import open_page
from makai.cli.console import note, run_async, say

if TYPE_CHECKING:
    from makai.server.serve import Addresses


@click.command(
    "serve",
    epilog="""\b
Examples:
  makai serve                                  http://127.0.0.1:8717, this machine only
  makai serve --open                           the same, and opens the page in your browser
  makai serve --port 0                         any free port; the address is printed
  makai serve --grpc                           also gRPC, on port 8718
  curl -N -H "Authorization: Bearer $(cat ~/.makai/server-token)" ...

\b
The token is in MAKAI_HOME/server-token (made on first start, readable by you only). The address that opens the page
carries it behind the #, which a browser keeps to itself; it is printed to terminals only, unless --show-token is given.
Ctrl-C or SIGTERM lets running requests end first; runs of sessions go on when the server is back.
""",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8717, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 is any free one.")
@click.option("--grpc/--no-grpc", default=False, help="Also listen for gRPC.")
@click.option("--grpc-port", default=8718, show_default=True, type=click.IntRange(0, 65535))
@click.option("--allow-host", multiple=True, metavar="NAME:PORT", help="A further name clients may use for us.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain, for other machines.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key.")
@click.option("--allow-plain-remote", is_flag=True, help="Listen beyond this machine without TLS (behind a proxy).")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in your browser.")
@click.option("--show-token", is_flag=True, help="Print the address with its token also where it may be kept in a log.")
@click.option("--drain", default=10.0, show_default=True, metavar="SECONDS", help="How long running requests get.")
def command(
    host: str,
    port: int,
    grpc: bool,
    grpc_port: int,
    allow_host: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    allow_plain_remote: bool,
    open_browser: bool,
    show_token: bool,
    drain: float,
) -> int:
    """Serve sessions to the page and to other programs: WebSocket, SSE, gRPC."""
    import os

    from makai.core.home import home_directory
    from makai.server.backend import LazyBackend
    from makai.server.serve import ServeOptions, serve

    options = ServeOptions(
        host=host,
        port=port,
        grpc_port=grpc_port if grpc else None,
        allowed_hosts=allow_host,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        allow_plain_remote=allow_plain_remote,
        drain_s=drain,
    )
    home = home_directory(os.environ)

    def announce(addresses: Addresses) -> None:
        page = page_address(addresses.http, home)
        _announce(addresses, home, page if show_token or sys.stdout.isatty() else None)
        if open_browser:
            open_page(opening_address(addresses.http, home))

    run_async(serve(options, LazyBackend(), home, announce))
    note("makai: stopped")
    return 0


def page_address(http: str, home: Path) -> str:
    """What opens the page, and lets it in. The part behind the # never leaves the browser."""
    from makai.auth.server_token import load_or_create_token

    return f"{http}/#token={load_or_create_token(home).reveal()}"


def opening_address(http: str, home: Path) -> str:
    """The same for a browser that we start, whose command line others can read: a ticket, good once and for a minute.

    Browsers show cookies of 127.0.0.1 to every port; a name of our own keeps ours from other servers of this machine.
    Not on macOS, where Safari asks DNS for such names.
    """
    import time

    from makai.auth.server_token import load_or_create_token
    from makai.transports.guard import PAGE_NAME, page_ticket

    if sys.platform != "darwin":
        http = http.replace("http://127.0.0.1:", f"http://{PAGE_NAME}:")
    return f"{http}/#token={page_ticket(load_or_create_token(home), time.time()).reveal()}"


def _announce(addresses: Addresses, home: Path, page: str | None) -> None:
    say(f"makai is listening on {addresses.http}")
    if page is not None:
        say(f"Open {page}")
    else:
        note("`makai web` opens the page.", dim=True)
    if addresses.grpc:
        say(f"and on {addresses.grpc}")
    note(f"The token is in {home / 'server-token'}. Ctrl-C stops.", dim=True)
