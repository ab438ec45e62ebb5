"""`makai run`: the command line only; `run_session` and what it uses are loaded when there is a prompt."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from makai.cli.console import (
    ACCOUNT_OPTION,
    CONTINUE_OPTION,
    MODEL_OPTION,
    RESUME_OPTION,
    SANDBOX_OPTION,
    ModeType,
    epilog,
    note,
)

MAX_STDIN_BYTES = 20_000_000
PATIENCE_S = 2.0
"""How long standard input may be silent before a note says what is awaited."""
FORMATS = ("text", "json", "stream-json")
EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh")
"""`core.model.ReasoningEffort`, written out so that help needs no import of it."""


class FiniteRange(click.FloatRange):
    """A range that refuses "nan", which is neither above nor below a limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a number.", param, ctx)


POSITIVE = FiniteRange(min=0, min_open=True)


_SESSION_OPTIONS = (
    CONTINUE_OPTION,
    RESUME_OPTION,
    click.option("--no-session", is_flag=True, help="Do not save this run as a session."),
    click.option("--cwd", metavar="DIR", help="The folder to work in.  [default: this one]"),
    click.option("--add-dir", metavar="DIR", multiple=True, help="Another folder that tools may use. Repeatable."),
    click.option("--system-prompt", metavar="TEXT", help="Instructions for the model, instead of makai's own."),
)
_TOOL_OPTIONS = (
    click.option("--permission-mode", "mode", type=ModeType(), help="What tools may do without asking you."),
    SANDBOX_OPTION,
    click.option(
        "--allowed-tools",
        metavar="RULES",
        multiple=True,
        help="Allow these calls in this run, such as 'Bash(git log:*),Read'. Repeatable.",
    ),
    click.option(
        "--disallowed-tools", metavar="RULES", multiple=True, help="Refuse these calls in this run. Repeatable."
    ),
    click.option(
        "--mcp-wait",
        type=FiniteRange(0, 600),
        metavar="SECONDS",
        help="Wait this long for all MCP servers to start. Without it, a slow one joins a later turn.",
    ),
    click.option("--no-tools", is_flag=True, help="Only chat: no files, shell, search or fetch."),
)
_LIMIT_OPTIONS = (
    click.option("--max-turns", type=click.IntRange(min=1), help="Stop after this many turns of the model."),
    click.option("--max-budget-usd", type=POSITIVE, metavar="USD", help="Stop before the run costs more than this."),
    click.option("--allow-unknown-price", is_flag=True, help="Run although the budget cannot be kept for this model."),
    click.option("--max-seconds", type=POSITIVE, metavar="SECONDS", help="Stop after this time."),
)
_MODEL_OPTIONS = (
    MODEL_OPTION,
    ACCOUNT_OPTION,
    click.option("--json-schema", metavar="FILE|JSON", help="Require JSON that matches this schema."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Maximum length of the answer, in tokens."),
    click.option("--temperature", type=FiniteRange(0, 2), help="Randomness of the answer."),
    click.option("--effort", type=click.Choice(EFFORTS), help="How much the model reasons first."),
    click.option(
        "--stall-timeout",
        type=POSITIVE,
        metavar="SECONDS",
        help="Fail when the model sends nothing for this long.  [default: 300]",
    ),
    click.option(
        "--max-retries",
        type=click.IntRange(min=0),
        help="Retries after a rate limit, a server error or a failed connection.  [default: 3]",
    ),
)


def _with_options(function: Callable[..., int]) -> Callable[..., int]:
    for option in reversed((*_MODEL_OPTIONS, *_SESSION_OPTIONS, *_TOOL_OPTIONS, *_LIMIT_OPTIONS)):
        function = option(function)
    return function


@epilog("""
Examples:
  makai run "Why is the sky blue?"
  makai run -m openai/gpt-6.1-sol --effort high "Prove it"
  cat notes.txt | makai run "Summarise this in three lines"
  makai run --allowed-tools "Bash(git log:*),Read" "What changed this week?"
  makai run --permission-mode accept_edits --max-turns 20 "Fix the failing test"
  makai run --sandbox read-only "Run the tests and say which fail"
  makai run -c "And now the other one"
  makai run --json-schema person.json "Ada Lovelace, born 1815"
  makai run --output-format stream-json "Hi" | jq -r 'select(.type=="text_delta").delta'

Every run is a session that you can continue (-c, -r, `makai -r ID`), unless you give --no-session.
Calls that need an approval are shown to you in a terminal. Without a terminal they are denied.
Exit codes: 0 done, 1 failed or stopped by a limit, 2 usage, 3 login needed, 130 interrupted.
""")
@click.command("run")
@click.argument("prompt", required=False)
@click.option("-p", "--prompt", "prompt_option", metavar="TEXT", help="The prompt.")
@_with_options
@click.option("--output-format", type=click.Choice(FORMATS), default="text", show_default=True)
def command(prompt: str | None, prompt_option: str | None, output_format: str, **given: Any) -> int:
    """Run one prompt and print the answer.

    Standard input, when it is not a terminal, is added to the prompt. Without -m, the first provider you are logged in
    to or whose API key is set answers, else the small model on this machine. The agent may read files and search;
    before changing anything, makai shows you the exact command or diff and asks.
    """
    if prompt and prompt_option:
        raise click.UsageError("you gave two prompts, as an argument and with -p: give one")
    _check_session_options(given)
    question = _question(prompt or prompt_option)
    if _has_stray_bytes(question) or _has_stray_bytes(given["system_prompt"] or ""):
        raise click.UsageError("the prompt is not valid UTF-8 text")

    from makai.cli.console import run_async
    from makai.cli.run_request import request_from
    from makai.cli.run_session import answer

    return run_async(answer(request_from(question, given), output_format))


def _check_session_options(given: Mapping[str, Any]) -> None:
    options = {"-c": "continue_newest", "-r": "resume", "--no-session": "no_session"}
    chosen = [option for option, name in options.items() if given[name] not in (None, False)]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} name different sessions: give one of them")
    if given["resume"] is not None and given["cwd"] is not None:
        raise click.UsageError("a session keeps its folder: leave out --cwd, or begin a new session")
    if chosen and chosen != ["--no-session"] and given["add_dir"]:
        raise click.UsageError("a session keeps its folders: leave out --add-dir, or begin a new session")


def _question(prompt: str | None) -> str:
    question = "\n\n".join(part for part in (prompt, _piped_text().strip()) if part)
    if not question.strip():
        raise click.UsageError('the prompt is missing: write `makai run "your question"` or pipe one in')
    return question


def _piped_text() -> str:
    """Standard input when it is not a terminal. Bytes that are no text are replaced, and the person learns it."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    if not _arrives_soon():
        note("makai: waiting for standard input… (add `< /dev/null` if there is none)", dim=True)
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise click.UsageError(f"standard input is longer than {MAX_STDIN_BYTES} bytes")
    text = data.decode("utf-8", "replace")
    if text.encode() != data or "\0" in text:
        note("makai: standard input is not all text; the model sees \ufffd for each byte that is none", dim=True)
    return text.replace("\0", "\ufffd")


def _arrives_soon() -> bool:
    """Whether standard input has data, or its end, within `PATIENCE_S`."""
    if os.name != "posix":
        return True  # `select` knows only sockets there
    import select

    return bool(select.select([sys.stdin.buffer], [], [], PATIENCE_S)[0])


def _has_stray_bytes(text: str) -> bool:
    """Whether the text came with bytes that are not UTF-8, which Python keeps as lone surrogates."""
    return any("\ud800" <= character <= "\udfff" for character in text)
