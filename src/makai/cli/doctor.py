"""`makai doctor`: what is installed, what is reachable, what to do next.

In: options. Out: a report on stdout; exit code 0 when some model can be used, else 1. Thin: `checkup` finds out,
`checkup_text` says it.
"""

from __future__ import annotations

import os
import sys

import click

from makai.cli.console import EXIT_FAILED, painter, run_async, say, say_json


@click.command(
    "doctor",
    epilog="""\b
Examples:
  makai doctor
  makai doctor --offline
  makai doctor --output-format json | jq .usable

\b
Keys are never shown, not even in part. Exit code 0 when some model can be used now, else 1.
""",
)
@click.option("--offline", is_flag=True, help="Try only servers on this machine, not the providers.")
@click.option("--output-format", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(offline: bool, output_format: str) -> int:
    """Say what is installed, what is reachable and what to do next."""
    from makai.cli.checkup import checkup_text, examine, next_steps

    found = run_async(examine(os.environ, offline=offline))
    if output_format == "json":
        import msgspec

        say_json({**msgspec.structs.asdict(found), "next_steps": next_steps(found)})
    else:
        say("\n".join(checkup_text(found, paint=painter(sys.stdout))))
    return 0 if found.usable else EXIT_FAILED
