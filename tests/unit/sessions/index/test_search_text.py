"""What a person types as a query, and the snippets that show what was found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.sessions.index.search_text import (
    MAX_QUERY_LENGTH,
    SNIPPET_LENGTH,
    Highlighter,
    SearchQuery,
    SearchTerm,
    folded,
    parsed,
    segmented,
)


def terms(typed: str) -> list[tuple[str, bool]]:
    return [(term.text, term.is_prefix) for term in parsed(typed).terms]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", []),
        ("  - !? ", []),
        ("fix the parser", [("fix", False), ("the", False), ("parser", True)]),
        ("fix the parser ", [("fix", False), ("the", False), ("parser", True)]),
        ('"fix the" parser', [("fix the", False), ("parser", True)]),
        ('parser "fix the', [("parser", False), ("fix the", False)]),
        ("“fix the” x", [("fix the", False), ("x", False)]),
        ("a AND (b* NOT c:d)", [("a", False), ("AND", False), ("(b*", False), ("NOT", False), ("c:d)", False)]),
        ("src/log.py -- OR", [("src/log.py", False), ("OR", True)]),
        ("検索", [("検索", False)]),
        ("cafe\u0301", [("café", True)]),
        ("x\0y \ud800zz", [("x\ufffdy", False), ("\ufffdzz", True)]),
    ],
)
def test_a_query_is_words_phrases_and_the_beginning_of_the_last_word(
    typed: str, expected: list[tuple[str, bool]]
) -> None:
    assert terms(typed) == expected


def test_a_query_is_bounded() -> None:
    assert len(parsed("word " * 1_000).terms) == 12
    assert len(parsed("x" * 10_000).terms[0].text) == MAX_QUERY_LENGTH


def test_characters_of_scripts_without_spaces_are_indexed_one_by_one() -> None:
    assert segmented("fix 検索の bug").split() == ["fix", "検", "索", "の", "bug"]
    assert segmented("plain words") == "plain words"


def snippet(typed: str, text: str) -> tuple[str, list[str]]:
    """The snippet, and the words that are marked in it."""
    shown, marks = Highlighter(parsed(typed)).snippet(text)
    units = shown.encode("utf-16-le")
    return shown, [units[2 * start : 2 * end].decode("utf-16-le") for start, end in marks]


@pytest.mark.parametrize(
    ("typed", "text", "expected"),
    [
        ("parse", "Fix the PARSER and parse it.", ["PARSE", "parse"]),
        ("fix it", "Fix the parser and fixate it.", ["Fix", "it"]),
        ('"the parser"', "the old parser, the  parser", ["the parser"]),
        ("resume", "Résumé, re\u0301sume\u0301", ["Résumé", "re\u0301sume"]),
        ("log.py", "in src/log.py, and log_py", ["log.py", "log_py"]),
        ("検索", "全文検索は速い", ["検索"]),
        ("速", "😀 全文検索は速い", ["速"]),
        ("strasse", "Straße", []),
    ],
)
def test_words_are_marked_whatever_their_case_and_diacritics(typed: str, text: str, expected: list[str]) -> None:
    assert snippet(typed, text)[1] == expected


def test_a_snippet_is_the_part_with_the_most_words_on_one_line() -> None:
    text = f"parser {'x ' * 300}\n the lexer\n\tand the parser {'y ' * 300}"
    shown, marked = snippet("lexer parser", text)
    assert marked == ["lexer", "parser"]
    assert shown.startswith("…")
    assert shown.endswith("y…")
    assert "the lexer and the parser y" in shown


@given(st.text(max_size=600), st.text(max_size=60))
def test_any_text_and_query_have_a_snippet_in_bounds(text: str, typed: str) -> None:
    query = parsed(typed)
    shown, marks = Highlighter(query).snippet(text)
    units = len(shown.encode("utf-16-le", "surrogatepass")) // 2
    assert units <= SNIPPET_LENGTH
    assert "\n" not in shown
    assert all(0 <= start < end <= units for start, end in marks)
    assert list(marks) == sorted(marks)


@given(st.text(max_size=200))
def test_folding_keeps_the_length_of_a_text(text: str) -> None:
    assert len(folded(text)) == len(text)


def test_without_terms_nothing_is_marked() -> None:
    assert Highlighter(SearchQuery()).snippet("some words") == ("some words", ())
    assert Highlighter(SearchQuery((SearchTerm("words"),))).snippet("") == ("", ())
