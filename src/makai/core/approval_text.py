"""The exact text of an approval request: what would run or change, as every Python client shows it.

Nothing is left out without a line that says so, and the end is always shown. Characters that a terminal would obey or a
reader would not see are written out (`visible_text.exact`). Clients choose colours and keys, never the text. Pure.

The work is bounded: differences are searched for a limited number of steps (`line_diff`), and only lines that a client
shows are rendered.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

import msgspec

from makai.core.confinement import Confinement, opened_text
from makai.core.line_diff import changed_lines
from makai.core.session_events import ApprovalRequested, FileDiff
from makai.core.visible_text import exact, exact_line

MAX_LINES: Final = 400
"""Lines of an approval that a client shows unasked; the rest is marked as omitted and shown on request."""
CONTEXT_LINES: Final = 3

LineKind: TypeAlias = Literal[
    "command", "argument", "detail", "opened", "file", "context", "added", "removed", "omitted"
]


class ExactLine(msgspec.Struct, frozen=True):
    """One line to show. `gutter` is the line number of a diff, padded to a common width."""

    kind: LineKind
    text: str
    gutter: str = ""


class LineBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one kind, rendered when they are shown."""

    kind: LineKind
    source: Sequence[str]
    """The lines as they came; the block is a part of them."""
    first: int
    last: int
    prefix: str = ""
    tab: str = "\\t"
    gutter_width: int = 0
    """Digits of line numbers; 0 for none."""

    def __len__(self) -> int:
        return self.last - self.first

    def rendered(self, *, backwards: bool = False) -> Iterator[ExactLine]:
        places = range(self.first, self.last)
        for index in reversed(places) if backwards else places:
            text = self.prefix + self.tab.join(map(exact, self.source[index].split("\t")))
            yield ExactLine(self.kind, text, f"{index + 1:>{self.gutter_width}}" if self.gutter_width else "")


class ApprovalText(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    blocks: tuple[LineBlock, ...]
    rule: str
    """The rule that a wider approval would save; empty when only this call can be approved."""

    @property
    def lines(self) -> tuple[ExactLine, ...]:
        return tuple(_rendered(self.blocks))

    @property
    def is_long(self) -> bool:
        return sum(map(len, self.blocks)) > MAX_LINES

    def excerpt(self) -> tuple[ExactLine, ...]:
        """At most `MAX_LINES` lines of the beginning and the end, with a mark where lines are missing."""
        if not self.is_long:
            return self.lines
        head, tail = MAX_LINES * 3 // 4, MAX_LINES // 4
        mark = ExactLine("omitted", f"… {sum(map(len, self.blocks)) - head - tail:,} lines not shown …")
        last = [*islice(_rendered(self.blocks, backwards=True), tail)]
        return (*islice(_rendered(self.blocks), head), mark, *reversed(last))


def _rendered(blocks: Sequence[LineBlock], *, backwards: bool = False) -> Iterator[ExactLine]:
    for block in reversed(blocks) if backwards else blocks:
        yield from block.rendered(backwards=backwards)


def approval_text(asked: ApprovalRequested, cwd: str | None = None) -> ApprovalText:
    """`cwd` is the session's folder, where commands run unless their arguments name another one."""
    arguments = _decoded(asked.arguments_json)
    command = arguments.get("command") if asked.name == "shell" and isinstance(arguments, dict) else None
    diffs = [block for diff in asked.diffs for block in _diff_blocks(diff)]
    if isinstance(command, str):
        question = "Run this command?"
        blocks = [*_command(command, arguments, cwd, asked.confinement), *diffs]
    else:
        question = f"{' '.join(exact(asked.title or asked.name).split())}?"
        others = [*_arguments(_not_in_diffs(arguments, asked.diffs), asked.arguments_json)]
        blocks = [_block("command", exact_line(asked.name)), *others, *diffs] if others or not diffs else diffs
        blocks = [*blocks[:1], *_opened(asked.confinement), *blocks[1:]]
    return ApprovalText(question=question, blocks=tuple(blocks), rule=exact_line(asked.grant))


def expiry_text(deadline_ms: int | None, now_ms: int) -> str:
    """How long a decision is possible, such as "Expires in 24 h"; empty without a deadline."""
    if deadline_ms is None:
        return ""
    minutes = -(-(deadline_ms - now_ms) // 60_000)
    if minutes <= 0:
        return "Expired"
    hours, rest = divmod(minutes, 60)
    parts = [f"{hours} h"] if hours else []
    return f"Expires in {' '.join([*parts, f'{rest} min'] if rest else parts)}"


def _decoded(arguments_json: str) -> Any:
    try:
        return msgspec.json.decode(arguments_json)
    except (msgspec.DecodeError, UnicodeError):  # lone surrogates cannot be encoded
        return None


_ASKS: Final = frozenset({"network", "git", "write_folders", "no_sandbox"})
"""Arguments with which a model asks for more than the sandbox; what they open is shown instead."""


def _command(command: str, arguments: dict[str, Any], cwd: str | None, confinement: Confinement) -> Iterator[LineBlock]:
    yield _block("command", command)
    yield from _opened(confinement)
    details: list[str] = []
    others: dict[str, Any] = {}
    for name, value in ({"directory": "."} | arguments).items():
        match name, value:
            case "command", _:
                pass
            case "directory", str():
                details += [f"in {exact_line(place)}"] if (place := cwd if value == "." else value) else []
            case "timeout_s", int() | float() if not isinstance(value, bool):
                details.append(f"for at most {value:g} s")
            case "reason", str():
                others |= {"the model's reason": value} if value else {}
            case asks, _ if asks in _ASKS and confinement.opens:
                pass
            case _:
                others[name] = value
    if details:
        yield _block("detail", ", ".join(details))
    for name, value in others.items():
        yield from _argument(name, value)


def _opened(confinement: Confinement) -> Iterator[LineBlock]:
    return (_block("opened", f"+ {exact_line(line)}") for line in opened_text(confinement))


_PATHS: Final = frozenset({"path", "file_path", "filepath", "abs_path", "absolute_path", "notebook_path"})
_OLD_TEXTS: Final = frozenset({"old_text", "oldtext", "old_string", "oldstring", "old_str"})
_NEW_TEXTS: Final = frozenset({"content", "new_text", "newtext", "new_string", "newstring", "new_str", "new_source"})
_MAX_SOUGHT: Final = 50
"""Arguments that are looked for in the diffs; each may cost a search of the whole text."""


def _not_in_diffs(arguments: Any, diffs: Sequence[FileDiff]) -> Any:
    """The arguments without those that the diffs show: a path, and texts of an edit, each by its name and its value."""
    if not diffs or not isinstance(arguments, dict) or len(arguments) > _MAX_SOUGHT:
        return arguments
    return {name: value for name, value in arguments.items() if not _is_in_diffs(name, value, diffs)}


def _is_in_diffs(name: str, value: Any, diffs: Sequence[FileDiff]) -> bool:
    folded = name.lower()
    match value:
        case str() if folded in _PATHS:
            meant = posixpath.normpath(value)
            return any(diff.path == meant or diff.path.endswith(f"/{meant}") for diff in diffs)
        case str() if folded in _OLD_TEXTS:
            return any(value in (diff.old_text or "") for diff in diffs)
        case str() if folded in _NEW_TEXTS:
            return any(value in diff.new_text for diff in diffs)
        case False if folded == "replace_all":
            return True
        case [*edits] if folded == "edits" and len(edits) <= _MAX_SOUGHT:
            return all(isinstance(edit, dict) and not _not_in_diffs(edit, diffs) for edit in edits)
        case _:
            return False


def _arguments(arguments: Any, arguments_json: str) -> Iterator[LineBlock]:
    if not isinstance(arguments, dict):
        yield _block("argument", arguments_json)
        return
    for name, value in arguments.items():
        yield from _argument(name, value)


def _argument(name: str, value: Any) -> Iterator[LineBlock]:
    """`name: value` as JSON; a text of several lines follows its name line by line, indented."""
    label = exact_line(name)
    if isinstance(value, str) and "\n" in value:
        yield _block("argument", f"{label}:")
        yield _block("argument", value, prefix="  ")
    else:
        formatted = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        yield _block("argument", f"{label}: {formatted}")


def _block(kind: LineKind, text: str, prefix: str = "") -> LineBlock:
    source = text.split("\n")
    return LineBlock(kind=kind, source=source, first=0, last=len(source), prefix=prefix)


_DiffKind: TypeAlias = Literal["added", "removed", "context"]
_TAB: Final = "→   "
_SIGNS: Final[dict[_DiffKind, str]] = {"added": "+", "removed": "-", "context": " "}


def diff_lines(diff: FileDiff) -> list[ExactLine]:
    """The path with its counts, then the changed lines with their numbers and some context."""
    return [*_rendered(_diff_blocks(diff))]


def diff_counts(diffs: Iterable[FileDiff]) -> str:
    """Lines added and removed, such as `+3 -1`."""
    return _counts([block for diff in diffs for block in _changes(diff)])


def _counts(blocks: Sequence[LineBlock]) -> str:
    added, removed = (sum(len(block) for block in blocks if block.kind == kind) for kind in ("added", "removed"))
    return f"+{added} -{removed}"


def _diff_blocks(diff: FileDiff) -> list[LineBlock]:
    changes = [*_changes(diff)]
    kind = "new file " if diff.old_text is None else ""
    blocks = [_block("file", f"{kind}{exact_line(diff.path)}  {_counts(changes)}"), *changes]
    if diff.old_text and diff.new_text and diff.old_text.endswith("\n") != diff.new_text.endswith("\n"):
        verb = "gains" if diff.new_text.endswith("\n") else "loses"
        blocks.append(_block("detail", f"(the last line {verb} its line break)"))
    return blocks


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _changes(diff: FileDiff) -> Iterator[LineBlock]:
    """Lines of the old text are numbered as there, all others as in the new one."""
    old, new = _split(diff.old_text or ""), _split(diff.new_text)
    width = len(str(max(len(old), len(new), 1)))

    def block(kind: _DiffKind, source: Sequence[str], first: int, last: int) -> LineBlock:
        prefix = f"{_SIGNS[kind]} "
        return LineBlock(kind=kind, source=source, first=first, last=last, prefix=prefix, tab=_TAB, gutter_width=width)

    at = None  # where the unchanged lines after the last change begin
    for change in changed_lines(old, new):
        if at is None or change.new_from - at > 2 * CONTEXT_LINES:
            if at is not None:
                yield block("context", new, at, at + CONTEXT_LINES)
                left_out = change.new_from - at - 2 * CONTEXT_LINES
                mark = f"{' ' * (width + 1)}… {left_out} unchanged lines"
                yield LineBlock(kind="omitted", source=(mark,), first=0, last=1)
            at = max(0, change.new_from - CONTEXT_LINES)
        yield block("context", new, at, change.new_from)
        yield block("removed", old, change.old_from, change.old_to)
        yield block("added", new, change.new_from, change.new_to)
        at = change.new_to
    after = max(0, len(new) - CONTEXT_LINES) if at is None else at
    yield block("context", new, after, min(len(new), after + CONTEXT_LINES))
