"""Writes `packaging/makai.1`, the manual page, from the help of all commands. It has no date, so the same commands give
the same page. The wheel installs it below share/man, where `man` finds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from makai.cli.commands import cli
from makai.core.version import __version__

PATH: Final = Path(__file__).resolve().parent.parent / "packaging" / "makai.1"
_FILES: Final = {
    "~/.makai": "Settings, logins, sessions and weights. The variable MAKAI_HOME names another folder.",
    "~/.makai/config.toml": "Your settings; see makai config.",
    ".makai/config.toml": "The settings of a project, used when you trust its folder.",
}


def man_page() -> str:
    context = click.Context(cli, info_name="makai")
    lines = [f'.TH MAKAI 1 "" "makai {__version__}" "User Commands"']
    lines += [".SH NAME", "makai \\- one agent runtime for every model and every protocol"]
    lines += [".SH SYNOPSIS", *_usage(context), ".SH DESCRIPTION", *_paragraphs(cli.help or "")]
    lines += [".SH OPTIONS", *_options(context), ".PP", _text("Every command has -h and --help."), ".SH COMMANDS"]
    for name in cli.list_commands(context):
        lines += _command(context, name)
    lines += [
        ".SH FILES",
        *(line for name, text in _FILES.items() for line in (".TP", f".I {_text(name)}", _text(text))),
    ]
    examples, *rest = _blocks(cli.epilog or "")
    lines += [".SH EXAMPLES", *_unwrapped(examples.split("\n")[1:]), ".SH EXIT STATUS"]
    lines += [line for block in rest for line in _unwrapped(block.removeprefix("Exit codes: ").split("\n"))]
    return "\n".join(lines) + "\n"


def _command(parent: click.Context, name: str) -> Iterator[str]:
    """A command with its options, then its own commands."""
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    if command.hidden:
        return
    context = click.Context(command, info_name=name, parent=parent)
    yield f".SS {_text(context.command_path)}"
    yield from _usage(context)
    yield ".PP"
    yield from _paragraphs(command.help or "")
    yield from _options(context)
    for block in _blocks(command.epilog or ""):
        yield ".PP"
        yield from _unwrapped(block.split("\n"))
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            yield from _command(context, each)


def _usage(context: click.Context) -> list[str]:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return [f".B {_text(context.command_path)}", _text(pieces)]


def _options(context: click.Context) -> Iterator[str]:
    """Without the arguments, which the usage shows, and without --help, which every command has."""
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield ".TP"
            yield f"\\fB{_text(record[0])}\\fR"
            yield _text(" ".join(record[1].split())) or "\\&"


def _blocks(text: str) -> list[str]:
    """The paragraphs of a text of click, without its mark for one that is not wrapped."""
    return [
        block.strip("\n") for block in re.split(r"\n\s*\n", text.replace("\b\n", "").replace("\b", "")) if block.strip()
    ]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for block in _blocks(text):
        lines += [".PP"] if lines else []
        lines.append(_text(" ".join(block.split())))
    return lines


def _unwrapped(lines: list[str]) -> list[str]:
    return [".nf", *(_text(line) or "\\&" for line in lines), ".fi"]


def _text(text: str) -> str:
    """Text as roff reads it: no escapes, no requests, and hyphens that can be copied into a shell."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def main() -> None:
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(man_page(), encoding="utf-8")
    print(f"wrote packaging/{PATH.name}")


if __name__ == "__main__":
    main()
