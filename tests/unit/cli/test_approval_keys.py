"""One set of keys: what a line answers, and what a question offers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from makai.cli.approval_keys import DENY_KEY, GRANT_KEYS, Widths, answer_in, key_lines, offered_keys
from makai.core.confinement import OfferedGrant
from makai.core.session_events import ApprovalOption, ApprovalRequested

NONE = Widths(())
ONE = Widths((OfferedGrant(rule="Bash(make:*)", label="make"),))
SEVERAL = Widths.of(
    ApprovalRequested(
        call_id="c",
        name="edit",
        arguments_json="{}",
        digest="d",
        grant="Edit(./a\u202e)",
        grants=(
            OfferedGrant(rule="Edit(./a\u202e)", label="edits of this file"),
            OfferedGrant(rule="Edit", label="all edits of this session", session_only=True),
        ),
    )
)
PAGE_KEYS = Path(__file__).parents[3] / "web" / "src" / "lib" / "approval_keys.ts"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", "once"), (" Y ", "once"), ("yes", "once"), ("s", "session"), ("session", "session"),
        ("a", "always"), ("always", "always"), ("n", "deny"), ("no", "deny"), ("\x1b", "stop"), ("esc", "stop"),
        ("v", "view"), ("", None), ("also look", None), ("yes, but", None), ("ya", None), ("d", None), ("A b", None),
        ("yy", None), ("y\u200b", None), ("y\x1b[D", None), ("\u0443", None),
    ],
)  # fmt: skip
def test_a_line_is_an_answer_only_as_a_whole(line: str, answer: str | None) -> None:
    assert answer_in(line, ONE, is_long=True) == answer


def test_a_question_takes_only_what_it_offers() -> None:
    assert [answer_in(key, NONE, is_long=False) for key in "ysanv"] == ["once", None, None, "deny", None]
    assert (offered_keys(NONE, is_long=False), offered_keys(ONE, is_long=True)) == ("yne", "ynevsa")


def test_another_agents_own_wider_permission_is_offered_in_its_words_for_the_session() -> None:
    once = ApprovalOption(id="1", label="Yes", kind="allow_once")
    wider = ApprovalOption(id="2", label="Yes, and \u202edo not ask", kind="allow_always")
    asked = ApprovalRequested(call_id="c", name="Bash", arguments_json="{}", digest="d", options=(once, wider))
    widths = Widths.of(asked)

    assert key_lines(widths, is_long=False)[1:] == [[("s", "allow for this session: Yes, and \\u202edo not ask")]]
    assert [answer_in(key, widths, is_long=False) for key in "ysa"] == ["once", "session", None]
    assert widths.rule == ""


def test_a_digit_chooses_the_rule_that_is_saved_and_rules_are_shown_with_nothing_hidden() -> None:
    chosen = SEVERAL.choose(2)

    assert key_lines(SEVERAL, is_long=False)[1:] == [
        [("s", "allow for this session: Edit(./a\\u202e)")],
        [("a", "allow always: Edit(./a\\u202e)")],
        [("2", "or choose all edits of this session: Edit")],
    ]
    assert key_lines(chosen, is_long=False)[1:] == [
        [("s", "allow for this session: Edit")],
        [("1", "or choose edits of this file: Edit(./a\\u202e)")],
    ]
    assert [answer_in(key, SEVERAL, is_long=False) for key in ("1", "2", "3", "0", "a")] == [1, 2, None, None, "always"]
    assert (answer_in("a", chosen, is_long=False), answer_in("1", ONE, is_long=False)) == (None, None)
    assert (SEVERAL.rule, chosen.rule, offered_keys(SEVERAL, is_long=False)) == ("Edit(./a\u202e)", "Edit", "ynesa2")


def test_the_page_has_the_same_keys() -> None:
    of_page = dict(re.findall(r'^  (\w): "(\w+)",', PAGE_KEYS.read_text(encoding="utf-8"), re.MULTILINE))
    assert of_page == GRANT_KEYS | {DENY_KEY: "deny"}
