"""Emoji that terminals disagree about: what is shown of them while a line is edited, and where the cursor is."""

from __future__ import annotations

import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.processors import Transformation, TransformationInput

from makai.cli.terminal.steady_width import SteadyWidth, is_unsteady, steady

JOINER, COLOURED = "\u200d", "\ufe0f"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        (f"a 👨{JOINER}👩{JOINER}👧 b", "a 👨👩👧 b"),
        (f"🏳{COLOURED}{JOINER}🌈 ❤{COLOURED} 1{COLOURED}\u20e3", "🏳🌈 ❤ 1\u20e3"),
        ("👍🏽 and 👩🏿\u200d💻, alone: 🏽", "👍 and 👩💻, alone: 🏽"),
        ("🇩🇪🇫🇷", "ＤＥＦＲ"),
        (f"ක්{JOINER}ර می\u200cخواهم", f"ක්{JOINER}ර می\u200cخواهم"),
        ("漢字 한국어 שלום é", "漢字 한국어 שלום é"),
    ],
)
def test_the_parts_of_an_emoji_are_shown_side_by_side_and_other_text_as_it_is(text: str, shown: str) -> None:
    assert (steady(text), fragment_list_to_text(transformed(text).fragments)) == (shown, shown)


def transformed(line: str) -> Transformation:
    given = TransformationInput(BufferControl(Buffer()), Document(line), 0, lambda at: at, [("", line)], 80, 1)
    return SteadyWidth().apply_transformation(given)


def test_every_place_of_an_edited_line_is_found_on_the_screen_and_back() -> None:
    done = transformed(f"a👨{JOINER}👩b🇩🇪")

    assert [done.source_to_display(place) for place in range(8)] == [0, 1, 2, 2, 3, 4, 5, 6]
    assert [done.display_to_source(place) for place in range(7)] == [0, 1, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("text", "expected"), [("ab", False), ("漢字 👍 é", False), ("हिन्दी", True)])
def test_vowel_signs_that_may_have_a_column_of_their_own_are_known(text: str, expected: bool) -> None:
    assert is_unsteady(text) is expected
