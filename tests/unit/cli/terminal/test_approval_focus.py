"""A key answers a question only when the user can have meant it."""

from __future__ import annotations

import pytest

from makai.cli.terminal.approval_focus import READY_AFTER_S, TYPING_S, ApprovalFocus

LATER = 100.0


@pytest.fixture
def asking() -> ApprovalFocus:
    """A question has appeared, and nothing is in the line."""
    focus = ApprovalFocus()
    assert focus.update(["c1"], LATER, line_is_empty=True)
    return focus


def test_a_key_counts_once_the_question_could_be_read(asking: ApprovalFocus) -> None:
    assert not asking.takes_keys(LATER + READY_AFTER_S / 2)
    assert asking.takes_keys(LATER + READY_AFTER_S)


def test_who_types_when_the_question_appears_goes_on_typing(asking: ApprovalFocus) -> None:
    asking.typed(LATER + READY_AFTER_S / 2)

    assert not asking.takes_keys(LATER + 1)
    asking.toggle()
    assert asking.takes_keys(LATER + 1)


def test_who_has_something_in_the_line_is_not_interrupted() -> None:
    asking = ApprovalFocus()
    assert asking.update(["c1"], LATER, line_is_empty=False)

    assert not asking.takes_keys(LATER + 10)
    asking.sent(LATER + 10)
    assert not asking.takes_keys(LATER + 10)
    assert asking.takes_keys(LATER + 10 + READY_AFTER_S)


def test_who_typed_a_moment_ago_is_asked_after_a_pause() -> None:
    asking = ApprovalFocus()
    asking.typed(LATER)
    asking.update(["c1"], LATER + 0.1, line_is_empty=True)
    assert not asking.takes_keys(LATER + 0.9)

    asking.update(["c1"], LATER + TYPING_S, line_is_empty=True)
    assert asking.takes_keys(LATER + TYPING_S + READY_AFTER_S)


def test_the_next_question_has_to_be_read_too(asking: ApprovalFocus) -> None:
    assert asking.takes_keys(LATER + 1)

    assert asking.update(["c2"], LATER + 1, line_is_empty=True)
    assert not asking.takes_keys(LATER + 1)
    assert not asking.update([], LATER + 2, line_is_empty=True)
    assert not asking.takes_keys(LATER + 3)


def test_no_key_is_an_answer_while_a_reason_is_written(asking: ApprovalFocus) -> None:
    asking.reason_for = "c1"
    assert not asking.takes_keys(LATER + 1)

    asking.update(["c2"], LATER + 1, line_is_empty=False)
    assert asking.reason_for is None


def test_a_key_that_stays_alone_is_an_answer(asking: ApprovalFocus) -> None:
    assert asking.pressed("a", "ad", LATER + 1) == ""
    assert (asking.settled(), asking.settled()) == ("a", None)
    asking.answered()
    assert not asking.takes_keys(LATER + 2)


def test_a_sentence_is_typing_whatever_letter_it_begins_with(asking: ApprovalFocus) -> None:
    assert asking.pressed("a", "ad", LATER + 1) == ""
    assert asking.pressed("l", "ad", LATER + 1.1) == "al"
    assert asking.settled() is None
    assert not asking.takes_keys(LATER + 1.2)


def test_a_letter_that_answers_nothing_begins_a_sentence(asking: ApprovalFocus) -> None:
    assert asking.pressed("w", "ad", LATER + 1) == "w"
    assert not asking.takes_keys(LATER + 1.1)
