"""`makai web`: the page, whether or not a server is running.

In: a port. Out: a browser window on the page. Where the server of this MAKAI_HOME already runs, its page is opened;
else this command becomes that server.
"""

from __future__ import annotations

import os

import click

from makai.cli.browser import has_browser, open_page
from makai.cli.console import note, say


@click.command(
    "web",
    epilog="""\b
Examples:
  makai web                    open the page; start the server if it is not running
  makai web --port 9000        the same; if it has to be started, on that port
""",
)
@click.option("--port", default=8717, show_default=True, type=click.IntRange(0, 65535), help="Where to listen.")
@click.pass_context
def command(ctx: click.Context, port: int) -> int:
    """Open the page in your browser."""
    from makai.cli import serve
    from makai.core.home import home_directory
    from makai.server.announcement import listening

    home = home_directory(os.environ)
    can_open = has_browser(os.environ)
    server = listening(home)
    if server is None:
        return int(ctx.invoke(serve.command, port=port, open_browser=can_open, show_token=not can_open))
    page = serve.page_address(server.address, home)
    if can_open and open_page(serve.opening_address(server.address, home)):
        note(f"The page of the server in process {server.pid} is opened in your browser.")
    else:
        say(f"Open {page}")
    return 0
