"""What every command shares: how text, errors and exit codes reach a person or a script.

In: text, errors, coroutines. Out: stdout, stderr and an exit code of DESIGN §10 (0 done, 1 failed, 2 usage, 3 login
needed, 130 interrupted). Colour only on a terminal and never with NO_COLOR. Knows no command; imports nothing slow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

import click

from makai.core.errors import AuthError, InvalidRequest, MakaiError, ModelRetired, ProviderError

if TYPE_CHECKING:
    import asyncio

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LOGIN_NEEDED = 3
EXIT_INTERRUPTED = 130

MODEL_HELP = "A model_ref or provider/model_id; see `makai models list`."
ACCOUNT_HELP = "Which login to use, where a provider has several; see `makai auth status`."

Result = TypeVar("Result")
Paint: TypeAlias = Callable[..., str]
"""`click.style`, or `plain`, which leaves the text as it is."""

# What a terminal would obey instead of show: every control character but tab, line feed and carriage return.
_CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (9, 10, 13)}


def has_colour(stream: TextIO) -> bool:
    """Whether this stream may be coloured."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def plain(text: str, **_style: object) -> str:
    """The `Paint` of a pipe."""
    return text


def painter(stream: TextIO) -> Paint:
    """How text for this stream is styled."""
    return click.style if has_colour(stream) else plain


def styled(text: str, stream: TextIO, **style: Any) -> str:
    """The text in a style, or as it is where colour does not belong."""
    return painter(stream)(text, **style)


def harmless(text: str, stream: TextIO) -> str:
    """Text from a model or a server, for a terminal: it must not move the cursor or write to the clipboard.

    A pipe gets it as it is.
    """
    return text.translate(_CONTROL) if stream.isatty() else text


def say(text: str = "", *, end: str = "\n") -> None:
    """Write to stdout at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def note(text: str, *, end: str = "\n", **style: Any) -> None:
    """Write to stderr, where it does not disturb output that a script reads."""
    sys.stderr.write(styled(text, sys.stderr, **style) + end)
    sys.stderr.flush()


def say_json(value: object) -> None:
    """One line of JSON on stdout."""
    import msgspec

    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def exit_code(error: MakaiError) -> int:
    """3 where a login or key would help, 2 where the command has to be written differently, else 1."""
    if isinstance(error, AuthError):
        return EXIT_LOGIN_NEEDED
    return EXIT_USAGE if isinstance(error, InvalidRequest | ModelRetired) else EXIT_FAILED


def explain(error: MakaiError) -> None:
    """An error as a person wants it: what happened, then what to do."""
    note(harmless(f"makai: {error.message}", sys.stderr), fg="red")
    if hint := hint_of(error):
        note(harmless(f"       {hint}", sys.stderr))


def hint_of(error: MakaiError) -> str:
    """What to do about an error. A provider's failure always has an answer to that, if only the general one."""
    if error.hint:
        return error.hint.strip()
    return "Try again, or use another model (`makai models list`)." if isinstance(error, ProviderError) else ""


def never_fail_to_encode() -> None:
    """A terminal that cannot show a character gets a substitute, not a traceback."""
    import io

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """The reader of our output is gone (`makai … | head`): Python must not complain once more when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def new_runner() -> asyncio.Runner:
    """An event loop of the fastest kind this machine has."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine. Ctrl-C cancels it, lets it clean up, and comes out as KeyboardInterrupt."""
    with new_runner() as runner:
        return runner.run(main)
