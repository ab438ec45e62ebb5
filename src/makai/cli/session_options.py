"""The options of commands that begin or continue a session, which `makai run` and `makai chat` share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from makai.cli.console import (
    ACCOUNT_OPTION,
    AGENT_OPTION,
    CONTINUE_OPTION,
    MODEL_OPTION,
    RESUME_OPTION,
    SANDBOX_OPTION,
    TOOL_SERVER_OPTION,
    ModeType,
)

EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh")
"""`core.model.ReasoningEffort`, written out so that help needs no import of it."""

AGENT_EFFORTS = EFFORTS[2:]
"""`harness.contract.EffortLevel`, likewise."""


def agent_effort(given: str | None, configured: str | None) -> Any:
    """The effort for any agent: that of the command line, else that of the settings where agents know it."""
    return given or (configured if configured in AGENT_EFFORTS else None)


class FiniteRange(click.FloatRange):
    """A range that refuses "nan", which is neither above nor below a limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a number.", param, ctx)


class Seconds(FiniteRange):
    """Seconds, also written as 4s, 2m or 1h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        unit = _UNITS.get(value[-1:]) if isinstance(value, str) else None
        try:
            number = float(value[:-1]) * unit if unit else float(value)
        except ValueError:
            self.fail(f"{value!r} is no duration: write 90, 90s, 2m or 1h.", param, ctx)
        return super().convert(number, param, ctx)


_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
POSITIVE = FiniteRange(min=0, min_open=True)
POSITIVE_SECONDS = Seconds(min=0, min_open=True)

_MODEL_OPTIONS = (
    MODEL_OPTION,
    AGENT_OPTION,
    ACCOUNT_OPTION,
    click.option("--max-tokens", type=click.IntRange(min=1), help="Maximum length of an answer, in tokens."),
    click.option("--temperature", type=FiniteRange(0, 2), help="Randomness of the answer."),
    click.option("--effort", type=click.Choice(EFFORTS), help="How much the model reasons first."),
    click.option(
        "--stall-timeout",
        type=POSITIVE_SECONDS,
        metavar="SECONDS",
        help="Fail when the model sends nothing for this long.  [default: 300]",
    ),
    click.option(
        "--max-retries",
        type=click.IntRange(min=0),
        help="Most retries after a rate limit, a server error or a failed connection.  [default: what fits into "
        "--retry-for]",
    ),
    click.option(
        "--retry-for",
        type=Seconds(0, 86_400),
        metavar="SECONDS",
        help="How long to keep asking a provider that is overloaded or limits the rate; 0: not at all.  "
        "[default: retries.max_seconds of your settings, or 600]",
    ),
)
_SESSION_OPTIONS = (
    CONTINUE_OPTION,
    RESUME_OPTION,
    click.option("--fork", is_flag=True, help="With -c or -r: continue in a copy; the session stays as it is."),
    click.option("-n", "--name", metavar="TITLE", help="The title of the session."),
    click.option("--cwd", metavar="DIR", help="The folder to work in.  [default: this one]"),
    click.option("--add-dir", metavar="DIR", multiple=True, help="Another folder that tools may use. Repeatable."),
    click.option("--system-prompt", metavar="TEXT", help="Instructions for the model, instead of makai's own."),
    click.option("--append-system-prompt", metavar="TEXT", help="More instructions for the model, after the others."),
)
_TOOL_OPTIONS = (
    click.option("--permission-mode", "--mode", "mode", type=ModeType(), help="What tools may do without asking you."),
    SANDBOX_OPTION,
    click.option(
        "--allowed-tools",
        metavar="RULES",
        multiple=True,
        help="Allow these calls here, such as 'Bash(git log:*),Read'. Repeatable.",
    ),
    click.option("--disallowed-tools", metavar="RULES", multiple=True, help="Refuse these calls here. Repeatable."),
    click.option(
        "--mcp-wait",
        type=Seconds(0, 600),
        metavar="SECONDS",
        help="Wait this long for all MCP servers to start. Without it, a slow one joins a later turn.",
    ),
    TOOL_SERVER_OPTION,
    click.option("--no-tools", is_flag=True, help="Only chat: no files, shell, search or fetch."),
)
_LIMIT_OPTIONS = (
    click.option("--max-turns", type=click.IntRange(min=1), help="Stop a run after this many turns of the model."),
    click.option(
        "--max-budget-usd", "--max-usd", type=POSITIVE, metavar="USD", help="Stop before it costs more than this."
    ),
    click.option("--allow-unknown-price", is_flag=True, help="Run although the budget cannot be kept for this model."),
)


_OTHER_OPTIONS: Final = {
    **{"--json": "makai run --output-format json", "--stream-json": "makai run --output-format stream-json"},
    **{"--timeout": "makai run --max-seconds SECONDS", "--image": "makai run @FILE PROMPT"},
    **{"--full-auto": "--permission-mode accept_edits", "--yolo": "--permission-mode never_ask"},
    "--dangerously-skip-permissions": "--permission-mode never_ask",
    "--dangerously-bypass-approvals-and-sandbox": "--permission-mode never_ask --sandbox full-access",
}
"""Options of other agents, and of other commands of makai, by what to write instead. Names that only look alike would
be suggested for them."""


class SessionCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if (instead := _OTHER_OPTIONS.get(error.option_name)) is None:
                raise
            raise click.UsageError(f"there is no option {error.option_name}. Did you mean `{instead}`?", ctx) from None


def session_options(function: Callable[..., int]) -> Callable[..., int]:
    for option in reversed((*_MODEL_OPTIONS, *_SESSION_OPTIONS, *_TOOL_OPTIONS, *_LIMIT_OPTIONS)):
        function = option(function)
    return function


def check_session_options(given: Mapping[str, Any]) -> None:
    options = {"-c": "continue_newest", "-r": "resume", "--no-session": "no_session"}
    chosen = [option for option, name in options.items() if given.get(name) not in (None, False)]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} name different sessions: give one of them")
    if given.get("no_session") and given["tool_servers"]:
        raise click.UsageError("programs serve tools to saved sessions only: leave out --no-session or --tool-server")
    if given["fork"] and given["resume"] is None and not given["continue_newest"]:
        raise click.UsageError("--fork copies a session: name one with -r ID, or take the newest with -c")
    if given["resume"] is not None and given["cwd"] is not None:
        raise click.UsageError("a session keeps its folder: leave out --cwd, or begin a new session")
    if chosen and chosen != ["--no-session"] and given["agent"] is not None:
        raise click.UsageError("a session keeps its agent: leave out --agent, or begin a new session")
    if chosen and chosen != ["--no-session"] and given["add_dir"]:
        raise click.UsageError("a session keeps its folders: leave out --add-dir, or begin a new session")


def has_stray_bytes(text: str) -> bool:
    """Whether the text came with bytes that are not UTF-8, which Python keeps as lone surrogates."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def check_text(question: str, given: Mapping[str, Any]) -> None:
    words = (question, given["system_prompt"], given["append_system_prompt"], given["name"])
    if any(has_stray_bytes(text or "") for text in words):
        raise click.UsageError("the prompt is not valid UTF-8 text")
