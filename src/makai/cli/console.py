"""What every command shares: output, errors and exit codes.

Exit codes: 0 done, 1 failed, 2 usage, 3 login needed, 130 interrupted, 128 + n ended by signal n. Colour is used only
on a terminal, or with FORCE_COLOR, and never with NO_COLOR. Every command imports this module, so it imports nothing
slow.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

import click

from makai.cli.early_prompt import EARLY_PROMPT
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
TOOL_SERVER_OPTION = click.option(
    "--tool-server",
    "tool_servers",
    metavar="ID",
    multiple=True,
    help="Let the agent use the tools of a program that registered under this id. Repeatable.",
)
MODEL_OPTION = click.option(
    "-m", "--model", metavar="MODEL", help="provider/model_id or a model_ref; see `makai models list`."
)
AGENT_OPTION = click.option(
    "-a",
    "--agent",
    metavar="AGENT",
    help="Use another agent instead of makai's own: claude, codex, gemini, … or 'acp:COMMAND'.",
)
ACCOUNT_OPTION = click.option(
    "--account", metavar="NAME", help="Which login to use, if you have several; see `makai auth status`."
)
CONTINUE_OPTION = click.option(
    "-c", "--continue", "continue_newest", is_flag=True, help="Continue the newest session of this folder."
)
CHOOSE = ""
"""The value of `--resume` without an id: the person chooses."""
RESUME_OPTION = click.option(
    "-r",
    "--resume",
    metavar="[ID]",
    is_flag=False,
    flag_value=CHOOSE,
    help="Continue this session; the beginning of its id is enough. Without an id, choose from a list.",
)

_SGR = re.compile(r"\x1b\[([\d;]*)m")
_CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")

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
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def plain(text: str, **_style: object) -> str:
    return text


def painter(stream: TextIO) -> Paint:
    return click.style if has_colour(stream) else plain


def terminal_width() -> int | None:
    """Columns of the terminal; None for a pipe, which gets whole lines."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def clip(text: str, width: int | None) -> str:
    """Cut text that is wider than `width` columns; None never cuts."""
    if width is None or (len(text) <= width and text.isascii()):
        return text
    from makai.cli.terminal.wrapping import cut

    return "".join(piece for piece, _ in cut([(text, "")], max(2, width)))


def styled(text: str, stream: TextIO, **style: Any) -> str:
    return painter(stream)(text, **style)


def harmless(text: str, stream: TextIO) -> str:
    """Make text of a model or a server safe for a terminal: nothing in it acts, hides or turns the reading direction. A
    pipe or a file gets it unchanged."""
    return shown(text) if stream.isatty() else text


def say(text: str = "", *, end: str = "\n") -> None:
    """Write the output of a command to stdout, unchanged."""
    EARLY_PROMPT.hide()
    sys.stdout.write(text + end)
    sys.stdout.flush()


def tell(text: str, *, end: str = "\n", **style: Any) -> None:
    """Write a notice or a question to stdout, for a person."""
    say(styled(at_words(text, sys.stdout), sys.stdout, **style), end=end)


def note(text: str, *, end: str = "\n", is_whole: bool = True, **style: Any) -> None:
    """Write a notice or a question to stderr, so that scripts read nothing but output on stdout. The terminal itself
    breaks the lines of a text that is not whole, because it continues a line."""
    EARLY_PROMPT.hide()
    sys.stderr.write(styled(at_words(text, sys.stderr) if is_whole else text, sys.stderr, **style) + end)
    sys.stderr.flush()


def at_words(text: str, stream: TextIO) -> str:
    """Text whose lines are broken at words, if a terminal would break them somewhere else. A word that is wider than
    the terminal, such as an address, is left to it: so it can be copied whole. The text may have SGR sequences."""
    if not stream.isatty():
        return text
    try:
        width = os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        width = 80
    lines = _CONTROL.sub("", text).split("\n")
    if all(len(line) * 2 <= width or (len(line) <= width and line.isascii()) for line in lines):
        return text
    from makai.cli.terminal.wrapping import Row, wrapped

    rows: list[Row] = []
    codes = ""
    for line in text.split("\n"):
        first, *styled_parts = _SGR.split(line)
        runs = [(first, codes)]
        for code, part in zip(styled_parts[::2], styled_parts[1::2], strict=True):
            codes = "" if code in ("", "0") else f"{codes};{code}".lstrip(";")
            runs.append((part, codes))
        plain_line = "".join(part for part, _ in runs)
        rows += wrapped(runs, width, len(plain_line) - len(plain_line.lstrip(" ")), breaks_words=False)
    return "\n".join("".join(f"\x1b[{codes}m{part}\x1b[0m" if codes else part for part, codes in row) for row in rows)


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
    """Run a command's coroutine. Ctrl-C cancels it, waits for its cleanup and raises KeyboardInterrupt. So do SIGTERM
    and SIGHUP, which raise SystemExit: the cleanup restores the terminal and ends what the command has begun."""
    import asyncio

    ended_by: list[int] = []
    with new_runner() as runner:
        try:
            return runner.run(_cancelled_by_signals(main, ended_by))
        except asyncio.CancelledError:
            if ended_by:
                raise SystemExit(128 + ended_by[0]) from None
            raise


def _is_ignored(number: int) -> bool:
    """Whether the caller of makai wants it to survive this signal, as `nohup` does."""
    return signal.getsignal(number) is signal.SIG_IGN


async def _cancelled_by_signals(main: Coroutine[Any, Any, Result], ended_by: list[int]) -> Result:
    """The first signal is put into `ended_by`. Later ones do not interrupt the cleanup: a shell and the kernel both
    send SIGHUP when a terminal is closed."""
    import asyncio

    if os.name != "posix":
        return await main
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        if not ended_by:
            ended_by.append(number)
            task.cancel()

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if not _is_ignored(number)]
    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        return await main
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
