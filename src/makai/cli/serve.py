"""`makai serve`: the server other programs and people connect to.

In: where to listen. Out: a running server and its address. Thin: `makai.server.serve` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from makai.cli.console import note, run_async, say

if TYPE_CHECKING:
    from makai.server.serve import Addresses


@click.command(
    "serve",
    epilog="""\b
Examples:
  makai serve                                  http://127.0.0.1:8717, this machine only
  makai serve --port 0                         any free port; the address is printed
  makai serve --grpc                           also gRPC, on port 8718
  curl -N -H "Authorization: Bearer $(cat ~/.makai/server-token)" ...

\b
The token is in MAKAI_HOME/server-token (made on first start, readable by you only). Ctrl-C or SIGTERM lets running
requests end first.
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
    drain: float,
) -> int:
    """Serve the Makai protocol over WebSocket, SSE and gRPC."""
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
    run_async(serve(options, LazyBackend(), home, lambda addresses: _announce(addresses, home)))
    note("makai: stopped")
    return 0


def _announce(addresses: Addresses, home: Path) -> None:
    say(f"makai is listening on {addresses.http}")
    if addresses.grpc:
        say(f"and on {addresses.grpc}")
    note(f"The token is in {home / 'server-token'}. Ctrl-C stops.", dim=True)
