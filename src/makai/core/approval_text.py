"""The exact text of an approval request: what would run or change, as every Python client shows it.

Nothing is left out without a line that says so, and the end is always shown. Characters that a terminal would obey or a
reader would not see are written out (`visible_text.exact`). Clients choose colours and keys, never the text. Pure.

Diffs are bounded: common lines at both ends are set aside first, and the rest is compared only while that is cheap.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from makai.core.confinement import Confinement, opened_text
from makai.core.session_events import ApprovalRequested, FileDiff
from makai.core.visible_text import exact

MAX_LINES: Final = 400
"""Lines of an approval that a client shows unasked; the rest is marked as omitted and shown on request."""
MAX_COMPARED_LINES: Final = 2_000
"""Lines of old and new text together; beyond that, the old part is shown as removed and the new one as added."""
CONTEXT_LINES: Final = 3

LineKind: TypeAlias = Literal[
    "command", "argument", "detail", "opened", "file", "context", "added", "removed", "omitted"
]


class ExactLine(msgspec.Struct, frozen=True):
    """One line to show. `gutter` is the line number of a diff, padded to a common width."""

    kind: LineKind
    text: str
    gutter: str = ""


class ApprovalText(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    lines: tuple[ExactLine, ...]
    rule: str
    """The rule that a wider approval would save; empty when only this call can be approved."""

    @property
    def is_long(self) -> bool:
        return len(self.lines) > MAX_LINES

    def excerpt(self) -> tuple[ExactLine, ...]:
        """At most `MAX_LINES` lines of the beginning and the end, with a mark where lines are missing."""
        if not self.is_long:
            return self.lines
        head, tail = MAX_LINES * 3 // 4, MAX_LINES // 4
        mark = ExactLine("omitted", f"… {len(self.lines) - head - tail:,} lines not shown …")
        return (*self.lines[:head], mark, *self.lines[-tail:])


def approval_text(asked: ApprovalRequested, cwd: str | None = None) -> ApprovalText:
    """`cwd` is the session's folder, where commands run unless their arguments name another one."""
    arguments = _decoded(asked.arguments_json)
    command = arguments.get("command") if asked.name == "shell" and isinstance(arguments, dict) else None
    diffs = [line for diff in asked.diffs for line in diff_lines(diff)]
    if isinstance(command, str):
        question = "Run this command?"
        lines = [*_command(command, arguments, cwd, asked.confinement), *diffs]
    else:
        tool = ExactLine("command", _inline(asked.name))
        question = f"{' '.join(exact(asked.title or asked.name).split())}?"
        lines = diffs or [tool, *_arguments(arguments, asked.arguments_json)]
    return ApprovalText(question=question, lines=tuple(lines), rule=_inline(asked.grant))


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


def _command(command: str, arguments: dict[str, Any], cwd: str | None, confinement: Confinement) -> Iterator[ExactLine]:
    yield from _text_lines("command", command)
    yield from (ExactLine("opened", f"+ {_inline(line)}") for line in opened_text(confinement))
    details: list[str] = []
    others: dict[str, Any] = {}
    for name, value in ({"directory": "."} | arguments).items():
        match name, value:
            case "command", _:
                pass
            case "directory", str():
                details += [f"in {_inline(place)}"] if (place := cwd if value == "." else value) else []
            case "timeout_s", int() | float() if not isinstance(value, bool):
                details.append(f"for at most {value:g} s")
            case "reason", str():
                others |= {"the model's reason": value} if value else {}
            case asks, _ if asks in _ASKS and confinement.opens:
                pass
            case _:
                others[name] = value
    if details:
        yield ExactLine("detail", ", ".join(details))
    for name, value in others.items():
        yield from _argument(name, value)


def _arguments(arguments: Any, arguments_json: str) -> Iterator[ExactLine]:
    if not isinstance(arguments, dict):
        yield from _text_lines("argument", arguments_json)
        return
    for name, value in arguments.items():
        yield from _argument(name, value)


def _argument(name: str, value: Any) -> Iterator[ExactLine]:
    """`name: value` as JSON; a text of several lines follows its name line by line, indented."""
    label = _inline(name)
    if isinstance(value, str) and "\n" in value:
        yield ExactLine("argument", f"{label}:")
        yield from _text_lines("argument", value, indent="  ")
    else:
        formatted = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        yield from _text_lines("argument", f"{label}: {formatted}")


def _inline(text: str) -> str:
    """Exact text that stays on its line."""
    return exact(text).replace("\n", "\\n")


def _text_lines(kind: LineKind, text: str, indent: str = "") -> Iterator[ExactLine]:
    return (ExactLine(kind, indent + line) for line in exact(text).split("\n"))


_Change: TypeAlias = tuple[LineKind, int, str]
"""Kind, line number (in the old text for removed lines, else in the new one), text."""
_TAB: Final = "→   "
_SIGNS: Final = {"added": "+", "removed": "-", "context": " "}


def diff_lines(diff: FileDiff) -> list[ExactLine]:
    """The path with its counts, then the changed lines with their numbers and some context."""
    kind = "new file " if diff.old_text is None else ""
    lines = [ExactLine("file", f"{kind}{_inline(diff.path)}  {diff_counts([diff])}")]
    old, new = _split(diff.old_text or ""), _split(diff.new_text)
    width = len(str(max(len(old), len(new), 1)))
    for change, number, text in _changes(old, new):
        gutter = f"{number or '':>{width}}"
        shown = f"{_SIGNS[change]} {_TAB.join(map(exact, text.split(chr(9))))}" if change in _SIGNS else text
        lines.append(ExactLine(change, shown, gutter))
    if diff.old_text and diff.new_text and diff.old_text.endswith("\n") != diff.new_text.endswith("\n"):
        verb = "gains" if diff.new_text.endswith("\n") else "loses"
        lines.append(ExactLine("detail", f"(the last line {verb} its line break)"))
    return lines


def diff_counts(diffs: Sequence[FileDiff]) -> str:
    """Lines added and removed, such as `+3 -1`."""
    kinds = [kind for diff in diffs for kind, _, _ in _changes(_split(diff.old_text or ""), _split(diff.new_text))]
    return f"+{kinds.count('added')} -{kinds.count('removed')}"


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _changes(old: list[str], new: list[str]) -> Iterator[_Change]:
    start = _common(zip(old, new, strict=False))
    end = _common(zip(reversed(old[start:]), reversed(new[start:]), strict=False))
    after = len(new) - end
    yield from _numbered("context", new, max(0, start - CONTEXT_LINES), start)
    yield from _compared(old[: len(old) - end], new[:after], start)
    yield from _numbered("context", new, after, min(len(new), after + CONTEXT_LINES))


def _compared(old: list[str], new: list[str], start: int) -> Iterator[_Change]:
    """The changes behind the first `start` lines, which are equal."""
    if len(old) + len(new) - 2 * start > MAX_COMPARED_LINES or len(old) == start or len(new) == start:
        yield from _numbered("removed", old, start, len(old))
        yield from _numbered("added", new, start, len(new))
        return
    matcher = difflib.SequenceMatcher(None, old[start:], new[start:], autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            yield from _numbered("removed", old, start + old_from, start + old_to)
            yield from _numbered("added", new, start + new_from, start + new_to)
        elif new_to - new_from > 2 * CONTEXT_LINES:
            yield from _numbered("context", new, start + new_from, start + new_from + CONTEXT_LINES)
            yield "omitted", 0, f"… {new_to - new_from - 2 * CONTEXT_LINES} unchanged lines"
            yield from _numbered("context", new, start + new_to - CONTEXT_LINES, start + new_to)
        else:
            yield from _numbered("context", new, start + new_from, start + new_to)


def _numbered(kind: LineKind, lines: list[str], first: int, last: int) -> Iterator[_Change]:
    return ((kind, index + 1, lines[index]) for index in range(first, last))


def _common(pairs: Iterable[tuple[str, str]]) -> int:
    length = 0
    for one, other in pairs:
        if one != other:
            break
        length += 1
    return length
