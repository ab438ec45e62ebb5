"""Changes of files as lines with + and -.

In: `FileDiff`s, which hold whole texts. Out: styled lines, and counts. Pure, and bounded: what two texts begin and end
with in common is set aside first, and what is left is compared only while that is cheap.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from makai.cli.terminal.styled_text import Line, Span, line
from makai.core.session_events import FileDiff
from makai.core.visible_text import exact, one_line

CONTEXT: Final = 3
MOST_COMPARED: Final = 2_000
"""Lines on both sides together; beyond that, the old part is shown as removed and the new one as added."""
_TAB: Final = "\t"
_TAB_SHOWN: Final = "    "


def diff_lines(diff: FileDiff, indent: str = "  ") -> list[Line]:
    """The file's name and what changes in it, with a little of what surrounds it and the numbers of lines."""
    kind = "new file " if diff.old_text is None else ""
    head = line(f"{indent}", Span(f"{kind}{one_line(diff.path)}", "bold"), Span(f"  {counts([diff])}", "dim"))
    old, new = _lines(diff.old_text or ""), _lines(diff.new_text)
    width = len(str(max(len(old), len(new), 1)))
    return [head, *(_shown(hunk_line, width, indent) for hunk_line in _changes(old, new)), *_last_line(diff, indent)]


def counts(diffs: Sequence[FileDiff]) -> str:
    """How many lines come and go, as in `+3 -1`."""
    added = removed = 0
    for diff in diffs:
        for sign, _, _ in _changes(_lines(diff.old_text or ""), _lines(diff.new_text)):
            added += sign == "+"
            removed += sign == "-"
    return f"+{added} -{removed}"


_Change = tuple[str, int, str]
"""Sign, number of the line (in the old text for "-", else in the new one), text. The sign of a gap is "~"."""


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _changes(old: list[str], new: list[str]) -> Iterator[_Change]:
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    old_middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    yield from ((" ", number + 1, new[number]) for number in range(max(0, start - CONTEXT), start))
    yield from _middle(old_middle, new_middle, start)
    after = len(new) - end
    yield from ((" ", number + 1, new[number]) for number in range(after, min(len(new), after + CONTEXT)))


def _middle(old: list[str], new: list[str], start: int) -> Iterator[_Change]:
    if len(old) + len(new) > MOST_COMPARED or not old or not new:
        yield from (("-", start + index + 1, text) for index, text in enumerate(old))
        yield from (("+", start + index + 1, text) for index, text in enumerate(new))
        return
    for tag, old_from, old_to, new_from, new_to in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            yield from _same(new, new_from, new_to, start)
            continue
        yield from (("-", start + index + 1, old[index]) for index in range(old_from, old_to))
        yield from (("+", start + index + 1, new[index]) for index in range(new_from, new_to))


def _same(new: list[str], first: int, last: int, start: int) -> Iterator[_Change]:
    """What stays between two changes; the middle of a long stretch is left out."""
    for index in range(first, last):
        if last - first > 2 * CONTEXT and first + CONTEXT <= index < last - CONTEXT:
            if index == first + CONTEXT:
                yield "~", 0, ""
            continue
        yield " ", start + index + 1, new[index]


def _common(one: list[str], other: list[str]) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def _shown(change: _Change, width: int, indent: str) -> Line:
    sign, number, text = change
    if sign == "~":
        return line(Span(f"{indent}{'':>{width}} …", "dim"))
    numbered = Span(f"{indent}{number:>{width}} ", "dim")
    words = f"{sign} {exact(text.replace(_TAB, _TAB_SHOWN))}"
    if sign == " ":
        return line(numbered, Span(words, "dim"))
    return line(numbered, Span(words, "added" if sign == "+" else "removed"))


def _last_line(diff: FileDiff, indent: str) -> list[Line]:
    """A file that gains or loses its last line break changes, though none of its lines does."""
    if diff.old_text is None or diff.old_text == "" or diff.new_text == "":
        return []
    had, has = diff.old_text.endswith("\n"), diff.new_text.endswith("\n")
    if had == has:
        return []
    return [line(Span(f"{indent}(the last line {'gains' if has else 'loses'} its line break)", "dim"))]
