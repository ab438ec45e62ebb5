"""`makai doctor`: the command line only; `checkup` finds out and reports."""

from __future__ import annotations

import os
import sys

import click

from makai.cli.console import EXIT_FAILED, epilog, output_format, painter, run_async, say_result


@epilog("""
Examples:
  makai doctor
  makai doctor --offline
  makai doctor --json | jq .usable

Keys are never shown, not even in part. Exit code 0 when some model can be used now, else 1.
""")
@click.command("doctor")
@click.option("--offline", is_flag=True, help="Try only servers on this machine, not the providers.")
@output_format
def command(offline: bool, as_json: bool) -> int:
    """Check what is installed and reachable, and what to do next."""
    import msgspec

    from makai.cli.checkup import checkup_text, examine, next_steps

    found = run_async(examine(os.environ, offline=offline))
    value = {**msgspec.structs.asdict(found), "next_steps": next_steps(found)}
    say_result(value, checkup_text(found, paint=painter(sys.stdout)), as_json=as_json)
    return 0 if found.usable else EXIT_FAILED
