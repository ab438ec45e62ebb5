"""Pieces as the bytes of a terminal."""

from __future__ import annotations

from makai.cli.terminal.renderer import Renderer
from makai.cli.terminal.styled_text import Lines, Markdown, Span, line, note

COLOURED = Renderer(colour=True)
BARE = Renderer(colour=False)


def test_styles_are_colours_only_where_there_are_colours() -> None:
    piece = note("Careful", "warn")

    assert COLOURED.pieces([piece], 80) == "\x1b[33mCareful\x1b[0m\n"
    assert BARE.pieces([piece], 80) == "Careful\n"


def test_markdown_is_drawn_block_by_block_with_one_empty_line_between() -> None:
    text = "# Head\nSome **bold** words.\n- one\n- two\n\n```\ncode\n\n\nmore\n```\n"

    assert BARE.pieces([Markdown(text=text)], 80) == (
        "\n# Head\n\nSome bold words.\n\n • one\n • two\n\n code\n\n\n more\n"
    )
    assert COLOURED.markdown("Some **bold** words.", 80) == "Some \x1b[1mbold\x1b[0m words."


def test_a_link_shows_where_it_leads() -> None:
    assert BARE.markdown("[safe](https://evil.example/x)", 80) == "safe (https://evil.example/x)"
    assert "\x1b]8" not in COLOURED.markdown("[safe](https://evil.example/x)", 80)


def test_prose_and_every_other_line_are_broken_at_words() -> None:
    words = "word " * 30

    assert max(map(len, BARE.markdown(words, 40).split("\n"))) <= 40
    assert BARE.pieces([note("  The connection to the session is lost.")], 20) == (
        "  The connection to \n  the session is \n  lost.\n"
    )
    assert BARE.pieces([Lines(lines=(line(Span("✓ ", "good"), "$ make a-very-long-target of-it"),))], 20) == (
        "✓ $ make \n  a-very-long-target\n  of-it\n"
    )


def test_lines_of_the_region_are_cut_to_its_width() -> None:
    wide = line(Span("ab"), Span("cdefgh", "dim"))

    assert BARE.fitted([wide], 8) == ["abcdefgh"]
    assert BARE.fitted([wide], 5) == ["abcd…"]
    assert BARE.fitted([line("世界世界")], 5) == ["世界…"]


def test_a_terminal_without_unicode_gets_letters() -> None:
    piece = Lines(lines=(line(Span("✓ ", "good"), "done…"),), gap=True)

    assert Renderer(colour=False, unicode=False).pieces([piece], 80) == "\n+ done...\n"


def test_nothing_is_printed_for_nothing() -> None:
    assert BARE.pieces([Markdown(text=" \n")], 80) == ""
