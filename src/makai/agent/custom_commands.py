"""Slash commands that users write themselves: Markdown files in `MAKAI_HOME/commands` and, in a folder that the user
trusts, in `.makai/commands` of the project. `/name words` sends the text of `name.md` with the words filled in;
`git/commit.md` is `/git:commit`.

`$ARGUMENTS` stands for all words, `$1`, `$2`, … for single ones, quoted as in a shell. A text without any of these gets
the words at its end. Between two lines `---` at the beginning, `description:` and `argument-hint:` are for the menu.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from makai.agent.prompt import project_directories
from makai.core.errors import MakaiError
from makai.core.visible_text import one_line
from makai.tools.workspace import Workspace

FOLDER: Final = ".makai/commands"
MAX_COMMANDS: Final = 200
MAX_DEPTH: Final = 3
"""How deep subfolders are searched."""
MAX_BYTES: Final = 64 * 1024
MAX_DESCRIPTION: Final = 200
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FIELD: Final = re.compile(r"(description|argument-hint):[ \t]*(.*)")
_PLACEHOLDER: Final = re.compile(r"\$(ARGUMENTS\b|[1-9][0-9]?(?![0-9]))")


class CustomCommand(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str
    description: str = ""
    argument_hint: str = ""
    path: str = ""

    def message(self, argument: str) -> str:
        """The text with the argument filled in; what is filled in is not searched for placeholders again."""
        words = _words(argument)

        def value(match: re.Match[str]) -> str:
            which = match[1]
            if which == "ARGUMENTS":
                return argument
            return words[int(which) - 1] if int(which) <= len(words) else ""

        filled, count = _PLACEHOLDER.subn(value, self.text)
        return filled if count or not argument else f"{filled}\n\n{argument}"


def find_commands(
    home: Path, cwd: str | None, *, trusted: bool, problem: Callable[[str], object] = lambda _: None
) -> dict[str, CustomCommand]:
    """The commands by name. Of two with one name the project's counts, and the one nearest to `cwd`. Reads files; what
    cannot be read, and links that lead out of the project, are left out, and `problem` is called with the reason."""
    found: dict[str, CustomCommand] = {}
    places = [(home, home / "commands")]
    if cwd is not None and trusted:
        directories = project_directories(Path(cwd).absolute())[::-1]
        places += [(directories[0], directory / FOLDER) for directory in directories]
    for root, folder in places:
        found |= {command.name: command for command in islice(_commands_in(root, folder, problem), MAX_COMMANDS)}
    return dict(sorted(found.items()))


def _commands_in(root: Path, folder: Path, problem: Callable[[str], object]) -> Iterator[CustomCommand]:
    try:
        workspace = Workspace([root])
    except (MakaiError, OSError):
        return
    yield from _commands_below(workspace, folder, (), problem)


def _commands_below(
    workspace: Workspace, folder: Path, parents: tuple[str, ...], problem: Callable[[str], object]
) -> Iterator[CustomCommand]:
    """The commands of a folder, then those of its subfolders. `parents` are the first parts of their names."""
    try:
        entries = sorted(workspace.entries(str(folder)), key=lambda entry: entry.name)
    except (MakaiError, OSError):
        return
    for name in [entry.name for entry in entries if entry.name.endswith(".md")]:
        try:
            yield _command_in(workspace, folder / name, parents)
        except (MakaiError, OSError, ValueError) as error:
            why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else one_line(str(error))
            problem(f"{one_line(str(folder / name))} is no command: {why}")
    for entry in entries:
        is_subfolder = entry.kind == "directory" and _NAME.fullmatch(entry.name.lower()) is not None
        if is_subfolder and len(parents) < MAX_DEPTH:
            yield from _commands_below(workspace, folder / entry.name, (*parents, entry.name.lower()), problem)


def _command_in(workspace: Workspace, path: Path, parents: tuple[str, ...]) -> CustomCommand:
    if not _NAME.fullmatch(stem := path.name.removesuffix(".md").lower()):
        raise ValueError('its name may have letters, digits, "_" and "-" only')
    with workspace.open_read(str(path)) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES:,} bytes")
    if (command := parse_command(":".join((*parents, stem)), data.decode("utf-8"), str(path))) is None:
        raise ValueError("it has no text to send")
    return command


def parse_command(name: str, text: str, path: str = "") -> CustomCommand | None:
    """None when there is no text to send."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    fields: dict[str, str] = {}
    if lines and lines[0].strip() == "---" and "---" in (rest := [line.strip() for line in lines[1:]]):
        end = rest.index("---")
        fields = dict(_fields(rest[:end]))
        lines = lines[end + 2 :]
    body = "\n".join(lines).strip()
    if not body:
        return None
    return CustomCommand(
        name=name,
        text=body,
        description=fields.get("description") or one_line(body, MAX_DESCRIPTION),
        argument_hint=fields.get("argument-hint", ""),
        path=path,
    )


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if match := _FIELD.fullmatch(line):
            value = match[2].strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            yield match[1], one_line(value, MAX_DESCRIPTION)


def _words(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError:  # a quotation mark is missing, as in "don't"
        return argument.split()
