"""A menu of the terminal: what keys do, however they arrive."""

from __future__ import annotations

import pytest

from makai.cli.menu import Menu, keys_of

UP, DOWN = b"\x1b[A", b"\x1b[B"


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        (b"\r", 0),
        (b"2", 1),
        (DOWN + DOWN + b"\n", 2),
        (DOWN * 3 + b"\r", 0),
        (UP + b"\r", 2),
        (b"\x1bOB\r", 1),
        (b"jjk\r", 1),
        (b"9xz\r", 0),
        (b"0\r", 0),
        (b"\x1b", "left"),
        (b"q", "left"),
        (b"\x04", "left"),
        (b"x", None),
        (b"\xc3\xa9\xff\r", 0),
    ],
)
def test_arrow_keys_and_numbers_choose_and_other_keys_do_nothing(typed: bytes, chosen: int | str | None) -> None:
    menu = Menu(["first", "second", "third"])

    assert next((done for key in keys_of(typed) if (done := menu.press(key)) is not None), None) == chosen


def test_the_marked_option_is_shown() -> None:
    menu = Menu(["first", "second"])
    menu.press(DOWN)

    assert menu.lines(20) == ["  1. first", "> 2. second"]


def test_an_option_is_never_wider_than_the_terminal() -> None:
    menu = Menu(["a long option of a menu", "日本語のタイトルです"])

    assert menu.lines(16) == ["> 1. a long opt…", "  2. 日本語のタ…"]
