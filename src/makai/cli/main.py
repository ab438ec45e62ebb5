"""The `makai` command: parses the command line, runs a command and exits with its code.

`--version` answers before anything is imported, and each command's module is loaded only when it is called, so that
help and completion stay fast. Errors of makai are explained here, never shown as tracebacks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    if argv is None and not sys.flags.safe_path:
        # The folder of the script, or with `python -m makai` the current one: commands write there, and what is loaded
        # later would be looked for in it first.
        del sys.path[0]
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from makai.core.version import __version__

        sys.stdout.write(f"makai {__version__}\n")
        return
    if arguments in (["stdio"], ["--stdio"]):
        # A program waits for the first line, so the command-line parser is not loaded.
        from makai.server.stdio import main as serve_stdio

        raise SystemExit(serve_stdio())
    try:
        raise SystemExit(_run(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise SystemExit(EXIT_INTERRUPTED) from None


def _run(arguments: list[str]) -> int:
    import click

    from makai.cli.commands import cli
    from makai.cli.console import EXIT_FAILED, discard_output, exit_code, explain, never_fail_to_encode
    from makai.core.errors import MakaiError
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
        return EXIT_INTERRUPTED
    except MakaiError as error:
        explain(error)
        return exit_code(error)
    except BrokenPipeError:
        discard_output()
        return EXIT_FAILED
    return result if isinstance(result, int) else 0
