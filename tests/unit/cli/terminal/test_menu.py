"""Lists to choose from."""

from __future__ import annotations

from makai.cli.terminal.menu import Choice, ChoiceMenu, Picker
from makai.cli.terminal.styled_text import Line

MODELS = [
    Choice(value="a/sonnet", label="a/sonnet", detail="Sonnet, 1M context"),
    Choice(value="o/sol", label="o/sol", detail="Sol, needs a login"),
    Choice(value="g/flash", label="g/flash", detail="Flash"),
]


def text(lines: list[Line]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def test_the_mark_moves_around_and_stays_while_the_choices_do() -> None:
    menu = ChoiceMenu(MODELS)
    menu.move(-1)
    assert (menu.marked, menu.was_moved) == (MODELS[2], True)
    menu.offer(list(MODELS))
    assert menu.marked == MODELS[2]
    menu.offer(MODELS[:2])
    assert (menu.marked, menu.was_moved) == (MODELS[0], False)
    menu.offer([])
    menu.move(1)
    assert menu.marked is None


def test_a_long_list_shows_what_is_around_the_mark() -> None:
    menu = ChoiceMenu([Choice(value=str(number), label=f"choice {number}") for number in range(20)])
    menu.move(10)

    assert text(menu.lines(3)) == ["  choice 9", "❯ choice 10", "  choice 11", "  11 of 20"]
    menu.move(9)
    assert text(menu.lines(3)) == ["  choice 17", "  choice 18", "❯ choice 19", "  20 of 20"]


def test_hostile_names_are_shown_on_one_line() -> None:
    assert text(ChoiceMenu([Choice(value="x", label="a\nb\x1b[2J", detail="c\td")]).lines(5)) == ["❯ a b\\x1b[2J  c d"]


def test_a_picker_finds_names_by_letters_and_the_rest_by_words() -> None:
    picker = Picker("Model", MODELS, "o/sol")
    assert picker.menu.marked == MODELS[1]
    picker.filter("so")
    assert list(picker.menu.choices) == [MODELS[1], MODELS[0]]
    picker.filter("login")
    assert list(picker.menu.choices) == [MODELS[1]]
    picker.filter("zzz")
    assert text(picker.lines(5)) == ["  Model  type to filter, Enter chooses, Esc closes", "  nothing matches"]
    picker.filter(" ")
    assert list(picker.menu.choices) == MODELS
