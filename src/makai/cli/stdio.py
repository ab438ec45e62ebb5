"""`makai stdio` as a command, for its help and its place in the list. `cli.main` starts the server without click."""

from __future__ import annotations

import click


@click.command(
    "stdio",
    epilog="""\b
Example:
  makai stdio      (also: makai --stdio) writes {"type":"ready",…}, then answers envelopes, one JSON object per line
""",
)
def command() -> int:
    """Serve the Makai protocol on standard input and output, for SDKs and editors."""
    from makai.server.stdio import main

    return main()
