"""A list to choose from below the transcript: what is offered, which one is marked, and how that looks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from makai.cli.terminal.styled_text import Line, Span, line
from makai.core.visible_text import one_line
from makai.tools.fuzzy import best_matches

MAX_ROWS: Final = 10
MAX_LABEL: Final = 44


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    value: str
    """What the choice stands for; unique in its menu."""
    label: str
    detail: str = ""


class ChoiceMenu:
    """Choices with one of them marked. The mark stays where it is when the same choices are offered again."""

    def __init__(self, choices: Sequence[Choice] = (), hint: str = "") -> None:
        self.choices = tuple(choices)
        self.hint = hint
        self.max_rows = MAX_ROWS
        self.was_moved = False
        self._marked = 0

    @property
    def marked(self) -> Choice | None:
        return self.choices[self._marked] if self.choices else None

    def offer(self, choices: Sequence[Choice]) -> None:
        if tuple(choices) != self.choices:
            self.choices, self._marked, self.was_moved = tuple(choices), 0, False

    def move(self, steps: int) -> None:
        """Move the mark; after the last choice comes the first."""
        if self.choices:
            self._marked = (self._marked + steps) % len(self.choices)
            self.was_moved = True

    def lines(self, rows: int) -> list[Line]:
        """At most `rows` choices around the marked one, and how many there are when not all of them fit."""
        if not self.choices:
            return [line(Span(f"  {self.hint}", "dim"))] if self.hint else []
        rows = max(1, min(rows, self.max_rows))
        first = max(0, min(self._marked - rows // 2, len(self.choices) - rows))
        shown = self.choices[first : first + rows]
        width = min(MAX_LABEL, max(len(one_line(each.label)) for each in shown))
        drawn = [_row(each, width, marked=first + index == self._marked) for index, each in enumerate(shown)]
        if len(self.choices) > rows:
            drawn.append(line(Span(f"  {self._marked + 1} of {len(self.choices)}", "dim")))
        return [*drawn, *([line(Span(f"  {self.hint}", "dim"))] if self.hint else [])]


def _row(choice: Choice, width: int, *, marked: bool) -> Line:
    label = one_line(choice.label, MAX_LABEL if choice.detail else None)
    mark = Span("❯ " if marked else "  ", "key")
    return line(mark, Span(label.ljust(width), "key" if marked else ""), Span(f"  {one_line(choice.detail)}", "dim"))


class Picker:
    """A question that is answered by choosing. What the user types filters the choices."""

    def __init__(self, title: str, choices: Sequence[Choice], marked: str = "") -> None:
        self.title = title
        self._all = tuple(choices)
        self.menu = ChoiceMenu(choices)
        self.menu.move(next((index for index, each in enumerate(choices) if each.value == marked), 0))

    def filter(self, typed: str) -> None:
        """Offer the choices whose label has the typed letters, then those whose words have the typed words."""
        by_label: dict[str, list[Choice]] = {}
        for choice in self._all:
            by_label.setdefault(choice.label, []).append(choice)
        words = typed.casefold().split()
        named = [choice for label in best_matches(typed, list(by_label), len(by_label)) for choice in by_label[label]]
        about = [each for each in self._all if each not in named and all(word in _words(each) for word in words)]
        self.menu.offer([*named, *about] if words else self._all)

    def lines(self, rows: int) -> list[Line]:
        head = line(Span(f"  {self.title}", "bold"), Span("  type to filter, Enter chooses, Esc closes", "dim"))
        return [head, *(self.menu.lines(rows - 1) or [line(Span("  nothing matches", "dim"))])]


def _words(choice: Choice) -> str:
    return f"{choice.label} {choice.detail} {choice.value}".casefold()
