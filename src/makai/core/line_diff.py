"""Finds which lines differ between two texts, in bounded time.

Lines that occur once on both sides divide the texts; what is between two of them is compared by the greedy search of
Myers (1986) until `MAX_STEPS` are used up. What is left then counts as changed whole: a difference may be shown larger
than it is, but never smaller. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

MAX_COMPARED_LINES: Final = 10_000
"""Lines of both texts between their common beginning and end; beyond that all of them count as changed."""
MAX_STEPS: Final = 50_000
"""About 15 ms."""


class ChangedLines(NamedTuple):
    """`old[old_from:old_to]` became `new[new_from:new_to]`; one of them may be empty."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def changed_lines(old: Sequence[str], new: Sequence[str]) -> list[ChangedLines]:
    """The changes in their order. All lines between them are equal."""
    start = _common_start(old, new)
    end = _common_start(old[start:][::-1], new[start:][::-1])
    whole = ChangedLines(start, len(old) - end, start, len(new) - end)
    if whole.old_to - start + whole.new_to - start > MAX_COMPARED_LINES:
        return [whole]
    numbers: dict[str, int] = {}
    before = [numbers.setdefault(line, len(numbers)) for line in old[start : whole.old_to]]
    after = [numbers.setdefault(line, len(numbers)) for line in new[start : whole.new_to]]
    search = _Search(before, after)
    return [
        ChangedLines(*(at + start for at in change)) for gap in _gaps(before, after) for change in search.within(gap)
    ]


def _common_start(one: Sequence[str], other: Sequence[str]) -> int:
    """By halves, because comparing slices is much faster than comparing lines."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _gaps(before: Sequence[int], after: Sequence[int]) -> Iterator[ChangedLines]:
    """What is between the lines that occur once on both sides and in the same order."""
    counts, others = Counter(before), Counter(after)
    places = {line: at for at, line in enumerate(after)}
    pairs = [(at, places[line]) for at, line in enumerate(before) if counts[line] == 1 and others[line] == 1]
    old_from = new_from = 0
    for old_at, new_at in [*_longest_rise(pairs), (len(before), len(after))]:
        yield ChangedLines(old_from, old_at, new_from, new_at)
        old_from, new_from = old_at + 1, new_at + 1


def _longest_rise(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most pairs whose second numbers rise as the first do."""
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [index]
        previous.append(last[length - 1] if length else -1)
    chosen = []
    at = last[-1] if last else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = previous[at]
    return chosen[::-1]


class _Search:
    """The searches of one comparison, which share their steps."""

    def __init__(self, before: Sequence[int], after: Sequence[int]) -> None:
        self._before = before
        self._after = after
        self._left = MAX_STEPS

    def within(self, gap: ChangedLines) -> Iterator[ChangedLines]:
        old, new = self._before[gap.old_from : gap.old_to], self._after[gap.new_from : gap.new_to]
        kept = self._kept(old, new) if old and new else []
        old_at = new_at = 0
        for old_kept, new_kept in [*kept, (len(old), len(new))]:
            if old_kept > old_at or new_kept > new_at:
                yield ChangedLines(
                    gap.old_from + old_at, gap.old_from + old_kept, gap.new_from + new_at, gap.new_from + new_kept
                )
            old_at, new_at = old_kept + 1, new_kept + 1

    def _kept(self, old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
        """Which lines are equal by the shortest edit script; none when the steps do not suffice to find it."""
        rows, columns = len(old), len(new)
        furthest, trace = {1: 0}, list[dict[int, int]]()
        for depth in range(rows + columns + 1):
            self._left -= 2 * depth + 1  # the copy as well
            if self._left < 0:
                return []
            trace.append(furthest.copy())
            for diagonal in range(-depth, depth + 1, 2):
                row = _start(furthest, depth, diagonal)
                began = row
                while row < rows and row - diagonal < columns and old[row] == new[row - diagonal]:
                    row += 1
                furthest[diagonal] = row
                self._left -= row - began
                if row >= rows and row - diagonal >= columns:
                    return _walked_back(trace, rows, columns)
        return []


def _enters_by_added(furthest: dict[int, int], depth: int, diagonal: int) -> bool:
    """Whether a search enters a diagonal by an added line, or else by a removed one."""
    return diagonal == -depth or (diagonal != depth and furthest[diagonal - 1] < furthest[diagonal + 1])


def _start(furthest: dict[int, int], depth: int, diagonal: int) -> int:
    """The row in which a search enters a diagonal."""
    is_added = _enters_by_added(furthest, depth, diagonal)
    return furthest[diagonal + 1] if is_added else furthest[diagonal - 1] + 1


def _walked_back(trace: Sequence[dict[int, int]], rows: int, columns: int) -> list[tuple[int, int]]:
    kept = []
    row, column = rows, columns
    for depth in range(len(trace) - 1, -1, -1):
        furthest, diagonal = trace[depth], row - column
        entered = _start(furthest, depth, diagonal)
        while row > entered:
            row, column = row - 1, column - 1
            kept.append((row, column))
        if _enters_by_added(furthest, depth, diagonal):
            column -= 1
        else:
            row -= 1
    return kept[::-1]
