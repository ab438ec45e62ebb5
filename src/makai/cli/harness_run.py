"""`makai harness run`: the command line only; `harness_task` carries it out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from makai.cli.console import MODEL_OPTION, SANDBOX_OPTION, epilog, output_format, run_async
from makai.cli.run import piped_text
from makai.cli.session_options import AGENT_EFFORTS, POSITIVE, POSITIVE_SECONDS

DEFAULT_SECONDS = 2 * 60 * 60.0
DEFAULT_CHECK_SECONDS = 600.0


_RUN_OPTIONS = (
    MODEL_OPTION,
    click.option("-a", "--agent", metavar="NAME", help="The harness, with --resume or --parallel."),
    click.option("--effort", type=click.Choice(AGENT_EFFORTS), help="How much the model reasons."),
    click.option("--cwd", metavar="DIR", help="The folder to work in.  [default: this one]"),
    SANDBOX_OPTION,
    click.option(
        "--autonomous", is_flag=True, help="Approve whatever the agent asks for. Without it, calls are denied."
    ),
    click.option("--allowed-tools", metavar="RULE", multiple=True, help="Allow these calls: 'Bash(git log:*)'."),
    click.option("--disallowed-tools", metavar="RULE", multiple=True, help="Refuse these calls. Repeatable."),
    click.option("--max-turns", type=click.IntRange(min=1), help="Stop after this many turns of the model."),
    click.option("--allow-unknown-price", is_flag=True, help="Run although --max-usd cannot be kept for this agent."),
    click.option("--max-usd", type=POSITIVE, metavar="USD", help="Stop a run that costs more than this."),
    click.option(
        "--max-seconds", type=POSITIVE_SECONDS, default=DEFAULT_SECONDS, metavar="SECONDS", help="Stop after this time."
    ),
)
_WORKTREE_OPTIONS = (
    click.option("--worktree", is_flag=True, help="Work in a new git worktree, on a branch agent/ID."),
    click.option("--branch", metavar="NAME", help="Name of the new branch."),
    click.option("--allow-dirty", is_flag=True, help="Start from the last commit although files have changed."),
    click.option("--test", metavar="CMD", help="Count failing tests before and after with this command."),
    click.option("--types", metavar="CMD", help="Count type errors before and after."),
    click.option("--lint", metavar="CMD", help="Count lint errors before and after."),
    click.option(
        "--check-seconds", type=POSITIVE_SECONDS, default=DEFAULT_CHECK_SECONDS, help="Time for each of these commands."
    ),
    click.option("--backstop", is_flag=True, help="Commit what the agent leaves uncommitted."),
    click.option("--push", is_flag=True, help="Push the branch when the run has completed and no check is worse."),
    click.option("--pr", is_flag=True, help="Also open a pull request, with `gh`."),
    click.option("--resume", metavar="WORKTREE", help="Continue the run of this worktree."),
    click.option("--parallel", type=click.IntRange(1, 32), metavar="N", help="Run the tasks of a file, N at once."),
)


def _with_options(function: Callable[..., int]) -> Callable[..., int]:
    for option in reversed((*_RUN_OPTIONS, *_WORKTREE_OPTIONS)):
        function = option(function)
    return function


@epilog("""
Examples:
  makai harness run claude-code "What does this folder hold?"
  makai harness run codex --autonomous --worktree --backstop "Add a test for parse()"
  makai harness run native --worktree --test "pytest -q" --lint "ruff check" --push --backstop "Fix issue 12"
  makai harness run --resume ../app.worktrees/1f2e3d4c
  makai harness run --resume ../app.worktrees/1f2e3d4c "Now update the changelog"
  makai harness run --parallel 3 --backstop tasks.toml
  makai harness run stub --json "anything" | jq -r .kind

Standard input, when it is not a terminal, is added to the prompt.
With --json every event is one line, and the last line is the result.
Exit codes: 0 done, 1 failed or a check is worse than before, 2 usage, 3 login needed, 130 stopped.
""")
@click.command("run")
@click.argument("words", nargs=-1, metavar="[HARNESS] [PROMPT] | TASKS.TOML")
@_with_options
@output_format
def command(words: tuple[str, ...], **given: Any) -> int:
    """Run one task with a harness, several tasks side by side, or continue one.

    With --worktree the agent works on a branch of its own in a folder beside your repository; your files stay as they
    are. Everything it reports is in `.agent/events.jsonl` there, so that a run that was killed can be continued.
    """
    from makai.cli.harness_task import resume_one, run_many, run_one

    _check_options(given)
    if given["resume"]:
        if len(words) > 1:
            raise click.UsageError("with --resume, give one prompt or none; another harness is --agent NAME")
        return run_async(resume_one(Path(given["resume"]).absolute(), words[0] if words else "", given))
    if given["parallel"]:
        if len(words) != 1:
            raise click.UsageError("with --parallel, name one file of tasks")
        return run_async(run_many(words[0], given["parallel"], given))
    if len(words) not in (1, 2):
        raise click.UsageError('name a harness and a task: makai harness run claude-code "Fix the failing test"')
    prompt = "\n\n".join(part for part in (*words[1:], piped_text().strip()) if part.strip())
    if not prompt:
        raise click.UsageError(f'the task is missing: makai harness run {words[0]} "what to do"')
    return run_async(run_one(words[0], prompt, given))


def _check_options(given: dict[str, Any]) -> None:
    if given["resume"] and given["parallel"]:
        raise click.UsageError("--resume continues one run: leave out --parallel")
    if given["agent"] and not (given["resume"] or given["parallel"]):
        raise click.UsageError("name the harness as the first word instead of --agent")
    if given["pr"] and not given["push"]:
        raise click.UsageError("--pr needs --push")
    if given["parallel"] and given["branch"]:
        raise click.UsageError("name branches in the file of tasks: every run needs one of its own")
    needed = ("branch", "allow_dirty", "test", "types", "lint", "backstop", "push")
    used = [f"--{name.replace('_', '-')}" for name in needed if given[name]]
    if used and not (given["worktree"] or given["resume"] or given["parallel"]):
        raise click.UsageError(f"{', '.join(used)}: add --worktree, so that your own files stay as they are")
