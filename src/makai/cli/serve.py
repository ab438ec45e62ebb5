"""The commands that serve others: `makai serve`, `makai web` and `makai stdio`. `makai.server` does the work."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from makai.cli.browser import has_browser, open_page, page_address, page_ticket_address
from makai.cli.console import NO_SANDBOX, SANDBOX_LEVELS, epilog, note, run_async, say

if TYPE_CHECKING:
    from makai.server.log_output import LogLevel
    from makai.server.serve import Addresses

FILE = click.Path(path_type=Path)


@epilog("""
Examples:
  makai serve                                  http://127.0.0.1:8717, this machine only
  makai serve --open                           the same, and opens the web page in your browser
  makai serve --port 0                         any free port; the address is printed
  makai serve --sandbox read-only              commands of new sessions change no file
  makai serve --grpc                           also gRPC, on port 8718
  makai serve --acp                            also the Agent Client Protocol, at /acp
  makai serve --log-format json                one JSON object a line on stderr, for a log collector
  curl -N -H "Authorization: Bearer $(cat ~/.makai/server-token)" ...

The token is in MAKAI_HOME/server-token (created on first start, readable only by you). The address of the web page
contains it behind the #, which browsers do not send. It is printed only to a terminal, unless you give --show-token.
Ctrl-C or SIGTERM lets running requests finish first. Runs of sessions continue when the server is back.
""")
@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8717, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 is any free one.")
@click.option("--grpc/--no-grpc", default=False, help="Also listen for gRPC.")
@click.option("--grpc-port", default=8718, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--acp", is_flag=True, help="Also serve the Agent Client Protocol at /acp (a draft; see `makai acp` for editors)."
)
@click.option(
    "--allow-host", "allowed_hosts", multiple=True, metavar="NAME:PORT", help="Another host name that clients may use."
)
@click.option("--tls-cert", "tls_certificate", type=FILE, help="Certificate chain, to listen for other machines.")
@click.option("--tls-key", type=FILE, help="Private key of the certificate.")
@click.option("--allow-plain-remote", is_flag=True, help="Listen for other machines without TLS (behind a proxy).")
@click.option(
    "--sandbox",
    type=click.Choice(SANDBOX_LEVELS),
    help="What commands of new sessions can do, unless a client chooses.  [default: config.toml, else workspace-write]",
)
@click.option(
    "--store",
    metavar="URL",
    help='Where sessions are: "sqlite", or "postgres://HOST/DATABASE" to share them.  [default: config.toml]',
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="How to print the log on stderr; json is one object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    help="What to print of the log.  [default: warning; info with --log-format json]",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the web page in your browser.")
@click.option("--show-token", is_flag=True, help="Print the address with its token even if it may end up in a log.")
@click.option(
    "--drain",
    "drain_s",
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for running requests to finish.",
)
def command(
    grpc: bool,
    grpc_port: int,
    open_browser: bool,
    show_token: bool,
    log_level: LogLevel | None,
    store: str | None,
    **options: Any,
) -> int:
    """Start a server for the web page and other programs: WebSocket, SSE, gRPC."""
    from makai.core.config import STORE_VARIABLE
    from makai.core.home import home_directory
    from makai.providers.logins import CONFIG_FILE, read_config
    from makai.server.backend import LazyBackend
    from makai.server.observability import Observability
    from makai.server.serve import ServeOptions, serve

    home = home_directory(os.environ)
    if store is not None:
        os.environ[STORE_VARIABLE] = store  # sessions, logins and the search index follow it
    is_for_people = options["log_format"] == "text"  # otherwise stderr holds JSON and nothing else

    def announce(addresses: Addresses) -> None:
        say(f"makai is listening on {addresses.http}")
        if show_token or sys.stdout.isatty():
            say(f"Open {page_address(addresses.http, home)}")
        elif is_for_people:
            note("`makai web` opens the web page.", dim=True)
        if addresses.grpc:
            say(f"and on {addresses.grpc}")
        if is_for_people:
            note(f"The token is in {home / 'server-token'}. Press Ctrl-C to stop.", dim=True)
        if is_for_people and options["sandbox"] == "full-access":
            note(NO_SANDBOX, fg="yellow")
        if open_browser:
            open_page(page_ticket_address(addresses.http, home))

    level: LogLevel = log_level or ("info" if options["log_format"] == "json" else "warning")
    wanted = ServeOptions(grpc_port=grpc_port if grpc else None, log_level=level, **options)
    observed = Observability(wanted.log_format, read_config(home / CONFIG_FILE).observability, os.environ)
    run_async(serve(wanted, LazyBackend(observed.observer), home, announce, observed))
    if is_for_people:
        note("makai: stopped")
    return 0


@epilog("""
Examples:
  makai web                    open the web page; start the server if it is not running
  makai web --port 9000        the same; a server that has to be started listens on this port
""")
@click.command("web")
@click.option("--port", default=8717, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.pass_context
def web_command(ctx: click.Context, port: int) -> int:
    """Open the web page in your browser."""
    from makai.core.home import home_directory
    from makai.server.announcement import listening

    home = home_directory(os.environ)
    can_open = has_browser(os.environ)
    server = listening(home)
    if server is None:
        return int(ctx.invoke(command, port=port, open_browser=can_open, show_token=not can_open))
    if can_open and open_page(page_ticket_address(server.address, home)):
        note(f"Opened the web page of the server in process {server.pid}.")
    else:
        say(f"Open {page_address(server.address, home)}")
    return 0


@epilog("""
Example:
  makai stdio      (also: makai --stdio) writes {"type":"ready",…}, then answers envelopes, one JSON object per line
""")
@click.command("stdio")
def stdio_command() -> int:
    """Serve the Makai protocol on standard input and output, for SDKs and editors."""
    from makai.server.stdio import main

    return main()
