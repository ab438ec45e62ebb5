"""`makai harness`: the command line only. What it shows and runs is loaded when it is needed."""

from __future__ import annotations

import os

import click

from makai.cli.console import EXIT_FAILED, epilog, output_format, run_async, say, say_result
from makai.cli.harness_run import command as run_command


@epilog("""
Examples:
  makai harness list                                   agents on this machine, and what each can do
  makai harness check claude-code                      is it installed, does it start, is its version known
  makai harness run codex "Explain this folder"        one task
  makai harness run claude-code --worktree --test "pytest -q" "Fix the failing test"
  makai harness run --parallel 3 tasks.toml            several tasks, each in a git worktree
  makai harness matrix                                 which agent works with which provider

To chat with another agent, or to use it on the web page: `makai -a claude-code`, `makai web`.
""")
@click.group("harness")
def command() -> None:
    """Run Claude Code, Codex, Gemini CLI, opencode, makai itself and other agents in the same way."""


@epilog("""
Examples:
  makai harness list
  makai harness list --json | jq -r '.[] | select(.program).name'
""")
@command.command("list")
@output_format
def list_command(as_json: bool) -> int:
    """List harnesses: what each can do, whether it is installed, its version and how to log in."""
    from makai.cli.agent_check import check_harnesses, here, list_lines

    place = here(os.environ)
    found = run_async(check_harnesses(place, place.names(), start=False))
    say_result(found, list_lines(found), as_json=as_json)
    return 0


@epilog("""
Examples:
  makai harness matrix                     as Markdown
  makai harness matrix --json | jq '.cells[] | select(.harness == "codex")'
""")
@command.command("matrix")
@output_format
def matrix_command(as_json: bool) -> int:
    """Show which harness works with which company's models, and where they are served."""
    from makai.harness.matrix_page import matrix_json, matrix_markdown

    say(matrix_json() if as_json else matrix_markdown(), end="")
    return 0


@epilog("""
Examples:
  makai harness check                      every harness that is installed
  makai harness check codex gemini         these two; a missing one is a failure
  makai harness check "acp:my-agent --acp"

Each program is asked for its version and started once. Nothing is sent to a model.
Exit code 0 when all of them work, else 1.
""")
@command.command("check")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_format
def check_command(names: tuple[str, ...], as_json: bool) -> int:
    """Check that harnesses are installed, start, and have versions that makai was tried with."""
    from makai.cli.agent_check import check_harnesses, check_lines, here

    place = here(os.environ)
    found = run_async(check_harnesses(place, names or place.names(), start=True))
    wanted = found if names else tuple(one for one in found if one.installed)
    say_result(wanted, check_lines(wanted), as_json=as_json)
    return EXIT_FAILED if any(one.problem for one in wanted) else 0


command.add_command(run_command)
