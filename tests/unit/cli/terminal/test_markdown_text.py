"""Nothing that a model wrote is lost where it is shown as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.markdown_answers import Answer, answers
from support.profiles import examples

from makai.cli.run_output import TextOutput
from makai.cli.terminal.markdown_blocks import finished_length
from makai.cli.terminal.renderer import Renderer
from makai.cli.terminal.styled_text import Piece, plain
from makai.cli.terminal.transcript_view import TranscriptView
from makai.cli.terminal.wrapping import columns_of
from makai.core import session_events as ev

BARE = Renderer(colour=False)
COLOURED = Renderer(colour=True)
WIDTHS = st.sampled_from((20, 33, 80, 160))
ODD = st.text("aZé世 \n\n  12*_#>-+.|:[]()<>!\"'\\~=`&;/", max_size=120)
"""Characters of Markdown in any order."""


def visible_in(text: str) -> str:
    return "".join(re.sub(r"\x1b\[[\d;]*m", "", text).split())


def missing(expected: str, output: str, *, in_order: bool) -> str:
    """What of the expected text is not in the output."""
    wanted, found = visible_in(expected), visible_in(output)
    lost = "".join((Counter(wanted) - Counter(found)).elements())
    if lost or not in_order:
        return lost
    rest = iter(found)
    return "".join(character for character in wanted if character not in rest)


def letters_of(text: str) -> str:
    """What no rule of CommonMark consumes, whatever stands around it (there are no entities in the text)."""
    return "".join(filter(str.isalpha, text))


def streamed(answer: str, cuts: list[int], finished: Callable[[str], int], draw: Callable[[list[Piece]], str]) -> str:
    """The answer as the transcript shows it when it arrives in pieces."""
    view = TranscriptView("me", finished)
    places = sorted(min(cut, len(answer)) for cut in cuts)
    deltas = [answer[a:b] for a, b in zip([0, *places], [*places, len(answer)], strict=True)]
    whole = ev.AssistantText(content_index=0, text=answer)
    facts: list[ev.SessionEvent] = [
        *(ev.AssistantTextDelta(content_index=0, delta=delta) for delta in deltas if delta),
        whole,
    ]
    return "".join(draw(view.take(ev.Logged(event_id=0, ts=0, event=fact))) for fact in facts)


@pytest.mark.parametrize(
    ("source", "drawn"),
    [
        ("2*3*4", "2*3*4"),
        ("2**10**3 and a*b*c", "2**10**3 and a*b*c"),
        ("snake_case_name", "snake_case_name"),
        ("*one*, **two**s and (*three*)", "\x1b[3mone\x1b[0m, \x1b[1mtwo\x1b[0ms and (\x1b[3mthree\x1b[0m)"),
        ("这是**重点**内容", "这是\x1b[1m重点\x1b[0m内容"),
    ],
)
def test_asterisks_inside_a_word_are_shown_and_those_around_one_are_marks(source: str, drawn: str) -> None:
    assert COLOURED.markdown(source, 80) == drawn


@given(answers, WIDTHS)
@examples(80, in_faults=10_000)
def test_every_visible_character_of_an_answer_is_shown(answer: Answer, width: int) -> None:
    output = COLOURED.markdown(answer.source, width)

    assert missing(answer.visible, output, in_order=not answer.has_table) == ""
    assert max(columns_of([(visible, "")]) for visible in BARE.markdown(answer.source, width).split("\n")) <= width


@given(ODD, WIDTHS)
@examples(80)
def test_no_letter_is_lost_from_characters_of_markdown_in_any_order(text: str, width: int) -> None:
    assert missing(letters_of(text), BARE.markdown(text, width), in_order="|" not in text) == ""


@given(answers, st.lists(st.integers(min_value=0, max_value=400), max_size=12))
@examples(40, in_faults=10_000)
def test_no_character_is_lost_from_an_answer_that_arrives_in_pieces(answer: Answer, cuts: list[int]) -> None:
    drawn = streamed(answer.source, cuts, finished_length, lambda pieces: BARE.pieces(pieces, 80))
    printed = streamed(answer.source, cuts, len, plain)

    assert missing(answer.visible, drawn, in_order=not answer.has_table) == ""
    assert missing(answer.source, printed, in_order=True) == ""


@given(ODD, st.lists(st.integers(min_value=0, max_value=120), max_size=12))
@examples(40)
def test_no_letter_is_lost_from_odd_text_that_arrives_in_pieces(text: str, cuts: list[int]) -> None:
    drawn = streamed(text, cuts, finished_length, lambda pieces: BARE.pieces(pieces, 80))

    assert missing(letters_of(text), drawn, in_order="|" not in text) == ""


@given(answers)
@examples(20)
def test_makai_run_prints_an_answer_as_it_was_written(answer: Answer) -> None:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("makai.cli.run_output.say", lambda text="", end="\n": printed.append(text + end))
        TextOutput().event(ev.Logged(event_id=1, ts=0, event=ev.AssistantText(content_index=0, text=answer.source)))

    assert "".join(printed) == answer.source


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("Vec<String> and <div>", "Vec<String> and <div>"),
        ("a <!-- remark --> b", "a <!-- remark --> b"),
        ("<div>\n**raw**\n</div>", "<div>\n**raw**\n</div>"),
        ("[a](http://x 'title') <http://y>", 'a (http://x "title") http://y'),
        ("![alt *text*](p.png)", "[image: alt text] (p.png)"),
        ("[a][1]\n\n[1]: http://x\n[2]: http://ä", "[a][1]\n\n[1]: http://x\n[2]: http://ä"),
        ("Told.[^1]\n\n[^1]: by whom", "Told.[^1]\n\n[^1]: by whom"),
        ("&lt;b&gt; \\*no\\* &#x202e;", "<b> *no* \\u202e"),
        ("one  \ntwo\\\nthree\nfour", "one\ntwo\nthree four"),
        ("```rust no_run\nlet x;\n```", " rust no_run\n let x;"),
        ("```\nhalf", " half"),
        ("| a | b |\n|---|---|\n| 1 |\n| 1 | 2 | 3 |", " a  b\n ── ── ──\n 1\n 1  2  3"),
        ("1. one\n1. two\n   - in\n\n     more", " 1. one\n 2. two\n     • in\n\n       more"),
        ("7. seven\n9. nine", " 7. seven\n 9. nine"),
        (">" * 60 + " deep", ">" * 60 + " deep"),
        ("> - <!-- a\n>", "> - <!-- a\n>"),
        ("- [x] done\n- [ ] ~~open~~", " • [x] done\n • [ ] ~~open~~"),
    ],
)  # fmt: skip
def test_a_construct_is_drawn(source: str, shown: str) -> None:
    assert BARE.markdown(source, 80) == shown


def test_a_table_that_is_too_wide_is_drawn_as_records() -> None:
    table = "| name | what it does |\n|---|---|\n| alpha-beta | first thing |\n| gamma | second |"

    assert BARE.markdown(table, 16) == "\n".join(
        ["name: alpha-beta", "what it does:", "first thing", "", "name: gamma", "what it does:", "second"]
    )
