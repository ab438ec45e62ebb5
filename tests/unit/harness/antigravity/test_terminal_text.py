"""What a program writes to a terminal, as words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.harness.antigravity.terminal_text import MAX_HELD, TerminalText


def plain(*chunks: bytes) -> str:
    text = TerminalText()
    return "".join(text.feed(chunk) for chunk in chunks) + text.end()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (b"Hello\r\nyou", "Hello\nyou"),
        (b"\x1b[1;32mgreen\x1b[0m and \x1b]8;;https://a.example\x1b\\link\x1b]8;;\x07", "green and link"),
        (b"10 %\r50 %\rdone\n", "done\n"),
        (b"\x1b[2K\x1b[1GWorking\r\nOK\n", "Working\nOK\n"),
        (b"bell\x07 and NUL\x00", "bell and NUL"),
        ("caf\u00e9 \U0001f600\n".encode(), "caf\u00e9 \U0001f600\n"),
        (b"\xff broken", "\ufffd broken"),
        (b"cut off \x1b[3", "cut off "),
    ],
)
def test_colours_movements_and_overwritten_words_are_not_text(written: bytes, words: str) -> None:
    assert plain(written) == words
    assert plain(*(bytes([byte]) for byte in written)) == words


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_words_do_not_depend_on_where_the_output_is_cut(chunks: list[bytes]) -> None:
    assert plain(*chunks) == plain(b"".join(chunks))
    assert "\x1b" not in plain(*chunks)


def test_a_line_without_an_end_is_handed_on_in_pieces() -> None:
    text = TerminalText()

    shown = [text.feed(b"x" * 10_000) for _ in range(100)]

    assert max(map(len, shown)) <= 2 * MAX_HELD
    assert sum(words.count("x") for words in shown) + len(text.end()) == 1_000_000
