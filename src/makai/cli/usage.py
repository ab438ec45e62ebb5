"""`makai usage`: the command line only; `session_search` asks and shows."""

from __future__ import annotations

import click

from makai.cli.console import epilog, output_format, run_async, say_json


@epilog("""
Examples:
  makai usage
  makai usage --days 7 --by model
  makai usage --days 365 --by folder
  makai usage --json | jq '[.rows[].cost_usd // 0] | add'

A run counts on the day it ended. CACHED is input that was read from or written to the cache of a provider. Costs are
sums of what is known: a model without a known price counts as nothing, and "-" means that no price was known.
""")
@click.command("usage")
@click.option("--days", type=click.IntRange(1, 3660), default=30, show_default=True, help="How many, today included.")
@click.option(
    "--by", type=click.Choice(("day", "model", "agent", "folder")), default="day", show_default=True, help="The rows."
)
@output_format
def command(days: int, by: str, as_json: bool) -> None:
    """Show tokens and costs of your sessions, by day, model, agent or folder."""
    import msgspec

    from makai.cli.session_search import UsageKey, print_usage, usage

    answer = run_async(usage(days))
    if as_json:
        say_json(answer)
    else:
        print_usage(answer, msgspec.convert(by, UsageKey), days)
