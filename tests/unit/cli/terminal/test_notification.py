"""The user is called back only while looking elsewhere."""

from __future__ import annotations

import pytest

from makai.cli.terminal.notification import Notifier
from makai.core.config import NotifyKind, parse_config
from makai.core.errors import InvalidRequest


def asks(notifier: Notifier, now: float, question: str = "c1") -> str:
    return notifier.update(is_running=True, question=question, about="rm\n-r x\x1b", now=now)


def works(notifier: Notifier, now: float) -> str:
    return notifier.update(is_running=True, question=None, about="", now=now)


def rests(notifier: Notifier, now: float) -> str:
    return notifier.update(is_running=False, question=None, about="", now=now)


@pytest.mark.parametrize(
    ("kind", "call"), [("bell", "\a"), ("desktop", "\x1b]9;makai needs you: rm -r x\\x1b\x1b\\"), ("none", "")]
)
def test_a_question_calls_once_in_the_chosen_way(kind: NotifyKind, call: str) -> None:
    notifier = Notifier(kind)
    notifier.focus(False)

    assert [asks(notifier, 0), asks(notifier, 1), works(notifier, 2), asks(notifier, 3, "c2")] == [call, "", "", call]


def test_a_terminal_that_has_the_focus_stays_quiet() -> None:
    notifier = Notifier("bell")
    notifier.focus(True)

    assert [works(notifier, 0), asks(notifier, 100), rests(notifier, 200)] == ["", "", ""]


def test_without_reports_of_the_focus_questions_call_and_ten_seconds_without_a_key_count_as_looking_away() -> None:
    notifier = Notifier("bell")
    assert [works(notifier, 0), asks(notifier, 1.0), rests(notifier, 10.0)] == ["", "\a", "\a"]

    works(notifier, 20.0)
    notifier.touched(25.0)
    assert rests(notifier, 34.0) == ""


def test_the_end_of_a_long_run_calls_and_that_of_a_short_one_does_not() -> None:
    notifier = Notifier("desktop")
    notifier.focus(False)

    assert [works(notifier, 0), rests(notifier, 9.0), rests(notifier, 30.0)] == ["", "", ""]
    assert [works(notifier, 40), rests(notifier, 50)] == ["", "\x1b]9;makai is done.\x1b\\"]


def test_the_way_is_a_setting() -> None:
    assert parse_config('notify = "desktop"').notify == "desktop"
    with pytest.raises(InvalidRequest):
        parse_config('notify = "siren"')
