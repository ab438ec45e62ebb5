"""What every command shares: output, errors and exit codes.

Exit codes: 0 done, 1 failed, 2 usage, 3 login needed, 130 interrupted. Colour is used only on a terminal and never with
NO_COLOR. Every command imports this module, so it imports nothing slow.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

import click

from makai.core.errors import AuthError, InvalidRequest, MakaiError, ModelRetired, ProviderError
from makai.core.visible_text import shown

if TYPE_CHECKING:
    import asyncio

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LOGIN_NEEDED = 3
EXIT_INTERRUPTED = 130

MODES = ("ask", "accept_edits", "plan", "never_ask")
"""`core.session_events.MODES`, written out so that help needs no import of it."""
MODE_ALIASES = {
    **{"default": "ask", "acceptEdits": "accept_edits", "accept-edits": "accept_edits"},
    **{"never-ask": "never_ask", "bypassPermissions": "never_ask"},
    **{"full_access": "never_ask", "full-access": "never_ask"},
}
"""The names in Claude Code and Codex, and former ones."""


class ModeType(click.Choice[str]):
    """A permission mode, also by its name in Claude Code and Codex."""

    name = "mode"

    def __init__(self) -> None:
        super().__init__(MODES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(MODE_ALIASES.get(value, value), param, ctx)


SANDBOX_LEVELS = ("read-only", "workspace-write", "full-access")
"""`core.session_events.SandboxLevel`, likewise."""
NO_SANDBOX = (
    "makai: no sandbox (full-access): a command can read, change and send everything that you can. "
    "Leave it with --sandbox workspace-write."
)
SANDBOX_OPTION = click.option(
    "--sandbox",
    type=click.Choice(SANDBOX_LEVELS),
    help="What commands can do, also approved ones: change no file, write only in the folder (and no network), or "
    "everything that you can.  [default: config.toml, else workspace-write]",
)
MODEL_OPTION = click.option(
    "-m", "--model", metavar="MODEL", help="provider/model_id or a model_ref; see `makai models list`."
)
ACCOUNT_OPTION = click.option(
    "--account", metavar="NAME", help="Which login to use, if you have several; see `makai auth status`."
)
CONTINUE_OPTION = click.option(
    "-c", "--continue", "continue_newest", is_flag=True, help="Continue the newest session of this folder."
)
RESUME_OPTION = click.option(
    "-r", "--resume", metavar="ID", help="Continue this session; the beginning of its id is enough."
)

Result = TypeVar("Result")
Command = TypeVar("Command", bound=click.Command)
Paint: TypeAlias = Callable[..., str]
"""`click.style`, or `plain`, which leaves the text as it is."""


def epilog(text: str) -> Callable[[Command], Command]:
    """Sets the paragraphs below the options in a command's help; they are not wrapped."""

    def add(command: Command) -> Command:
        command.epilog = "\n\n".join(f"\b\n{paragraph}" for paragraph in text.strip().split("\n\n"))
        return command

    return add


def output_format(function: Callable[..., Result]) -> Callable[..., Result]:
    """Adds `--output-format text|json` and `--json`; the command gets them as `as_json`."""

    @click.option("--output-format", type=click.Choice(("text", "json")), default="text", show_default=True)
    @click.option("--json", "as_json", is_flag=True, help="Short for --output-format json.")
    @functools.wraps(function)
    def command(*arguments: Any, output_format: str, as_json: bool, **options: Any) -> Result:
        return function(*arguments, as_json=as_json or output_format == "json", **options)

    return command


def has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def plain(text: str, **_style: object) -> str:
    return text


def painter(stream: TextIO) -> Paint:
    return click.style if has_colour(stream) else plain


def terminal_width() -> int | None:
    """Columns of the terminal; None for a pipe, which gets whole lines."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def clip(text: str, width: int | None) -> str:
    """Cut text that is wider than `width`; None never cuts."""
    return text if width is None or len(text) <= width else text[: max(1, width - 1)] + "…"


def styled(text: str, stream: TextIO, **style: Any) -> str:
    return painter(stream)(text, **style)


def harmless(text: str, stream: TextIO) -> str:
    """Make text of a model or a server safe for a terminal: nothing in it acts, hides or turns the reading direction. A
    pipe or a file gets it unchanged."""
    return shown(text) if stream.isatty() else text


def say(text: str = "", *, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def note(text: str, *, end: str = "\n", **style: Any) -> None:
    """Write to stderr, so that scripts read nothing but output on stdout."""
    sys.stderr.write(styled(text, sys.stderr, **style) + end)
    sys.stderr.flush()


def say_json(value: object) -> None:
    import msgspec

    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def say_result(value: object, lines: Sequence[str], *, as_json: bool) -> None:
    """Print the result of a command as JSON, or as lines for a person."""
    if as_json:
        say_json(value)
    elif lines:
        say("\n".join(lines))


def exit_code(error: MakaiError) -> int:
    """3 when a login or key is missing, 2 when the command line must change, else 1."""
    if isinstance(error, AuthError):
        return EXIT_LOGIN_NEEDED
    return EXIT_USAGE if isinstance(error, InvalidRequest | ModelRetired) else EXIT_FAILED


def explain(error: MakaiError) -> None:
    note(shown(f"makai: {error.message}"), fg="red")
    if hint := hint_of(error):
        note(shown(f"       {hint}"))


def hint_of(error: MakaiError) -> str:
    """What to do about an error; provider failures get a general hint when they have none."""
    if error.hint:
        return error.hint.strip()
    return "Try again, or use another model (`makai models list`)." if isinstance(error, ProviderError) else ""


def never_fail_to_encode() -> None:
    """A terminal that cannot show a character gets an escape instead of a traceback."""
    import io

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """The reader of stdout is gone (`makai … | head`); Python must not complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def new_runner() -> asyncio.Runner:
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine. Ctrl-C cancels it, waits for its cleanup and raises KeyboardInterrupt."""
    with new_runner() as runner:
        return runner.run(main)
