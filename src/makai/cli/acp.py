"""`makai acp`: the agent that an editor starts. Without options `cli.main` starts it directly, without this module."""

from __future__ import annotations

import os
import sys

import click

from makai.cli.browser import has_browser, open_for_user
from makai.cli.console import MODEL_OPTION, epilog, note, run_async, say
from makai.cli.editor_settings import PRINT_CONFIG_OPTION, print_settings


@epilog("""
Examples:
  makai acp                                       what an editor runs: the Agent Client Protocol on stdin and stdout
  makai acp -m anthropic/claude-sonnet-5-5        new sessions begin with this model
  makai acp --print-config zed                    the settings for an editor, ready to paste
  makai acp --login                               log in to a provider, in a terminal

Sessions of the editor are also in `makai sessions list` and on the web page, and the other way round.
""")
@click.command("acp")
@MODEL_OPTION
@click.option("--max-turns", type=click.IntRange(1), metavar="N", help="Model calls per prompt.")
@click.option(
    "--unstable", is_flag=True, help="Also serve what may still change in the protocol: forks, usage of turns."
)
@PRINT_CONFIG_OPTION
@click.option("--login", is_flag=True, help="Log in to a provider instead; for editors that open a terminal for it.")
def command(model: str | None, max_turns: int | None, unstable: bool, print_config: str | None, login: bool) -> int:
    """Serve the Agent Client Protocol on standard input and output, for editors."""
    if print_config is not None:
        options = [*(["-m", model] if model else []), *(["--max-turns", str(max_turns)] if max_turns else [])]
        print_settings(print_config, os.environ, [*options, *(["--unstable"] if unstable else [])])
        return 0
    if login:
        return run_async(_log_in())
    from makai.server.stdio import acp_main

    return acp_main(open_for_user, model=model, max_turns=max_turns, unstable=unstable)


async def _log_in() -> int:
    """Ask which provider, then log in as `makai auth login` does."""
    from makai.cli.line_reader import LineReader
    from makai.cli.login import LoginOutput, log_in
    from makai.providers.runtime import ModelRuntime

    async with ModelRuntime() as models:
        for provider in models.auth().list_providers():
            say(f"  {provider.id:<20} {provider.name}")
        note("Provider to log in to: ", end="")
        lines = LineReader()
        chosen = (await lines.next() or "").strip()
        browser = sys.stdout.isatty() and has_browser(os.environ)
        return await log_in(models, chosen, None, LoginOutput(lines, browser=browser))
