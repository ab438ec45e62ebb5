"""The `makai` command: parses the command line, runs a command and exits with its code.

`--version` answers before anything is imported, and each command's module is loaded only when it is called, so that
help and completion stay fast. A chat shows its prompt first. Errors of makai are explained here, never shown as
tracebacks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from makai.core.module_path import keep_installed_code, keep_installed_libraries

EXIT_INTERRUPTED = 130
CHATS: tuple[list[str], ...] = ([], ["chat"], ["-c"], ["--continue"])
"""Arguments that begin a chat, known without the parser. Others show the prompt as soon as they are parsed."""


def main(argv: Sequence[str] | None = None) -> None:
    _open_closed_streams()
    if argv is None:
        if not sys.flags.safe_path:
            del sys.path[0]  # the folder of the script, or with `python -m makai` the current one
        keep_installed_code()
        keep_installed_libraries()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from makai.core.version import __version__

        sys.stdout.write(f"makai {__version__}\n")
        return
    if arguments in (["stdio"], ["--stdio"]):
        # A program waits for the first line, so the command-line parser is not loaded.
        from makai.server.stdio import main as serve_stdio

        raise SystemExit(serve_stdio())
    if arguments == ["acp"]:  # an editor waits, likewise
        from makai.server.stdio import acp_main

        raise SystemExit(acp_main(_open_page))
    try:
        raise SystemExit(_run(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise SystemExit(EXIT_INTERRUPTED) from None


def _open_closed_streams() -> None:
    """A supervisor or a cron job may start makai without standard streams. The next file or socket would then get their
    number, and the event loop ends the process when it is to close one of these."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def _open_page(url: str) -> bool:
    from makai.cli.browser import open_for_user

    return open_for_user(url)


def _run(arguments: list[str]) -> int:
    from makai.cli.early_prompt import EARLY_PROMPT

    with EARLY_PROMPT:
        if arguments in CHATS:
            EARLY_PROMPT.show()
        return _run_command(arguments)


def _run_command(arguments: list[str]) -> int:
    import errno

    import click

    from makai.cli.commands import cli
    from makai.cli.console import EXIT_FAILED, discard_output, exit_code, explain, never_fail_to_encode
    from makai.core.errors import MakaiError, TransportError
    from makai.core.process_privacy import hide_memory

    never_fail_to_encode()
    hide_memory()
    try:
        # Not standalone: click would turn Ctrl-C into exit code 1.
        result = cli.main(args=arguments, prog_name="makai", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:  # Ctrl-C; click has ended the line
        raise SystemExit(EXIT_INTERRUPTED) from None
    except MakaiError as error:
        explain(error)
        return exit_code(error)
    except BrokenPipeError:
        discard_output()
        return EXIT_FAILED
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        discard_output()
        explain(TransportError(f"The output cannot be written: {error.strerror}."))
        return EXIT_FAILED
    return result if isinstance(result, int) else 0
