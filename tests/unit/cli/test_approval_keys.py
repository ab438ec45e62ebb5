"""One set of keys: what a line answers, and what a question offers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from makai.cli.approval_keys import DENY_KEY, GRANT_KEYS, answer_in, key_lines, offered_keys

RULE = "Bash(make:*)"
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
    assert answer_in(line, RULE, is_long=True) == answer


def test_a_question_takes_only_what_it_offers() -> None:
    assert [answer_in(key, "", is_long=False) for key in "ysanv"] == ["once", None, None, "deny", None]
    assert (offered_keys("", is_long=False), offered_keys(RULE, is_long=True)) == ("yne", "ynevsa")


def test_a_rule_is_shown_with_nothing_hidden() -> None:
    lines = key_lines("Bash(rm \u202e:*)", is_long=False)
    assert lines[1:] == [
        [("s", "allow for this session: Bash(rm \\u202e:*)")],
        [("a", "allow always: Bash(rm \\u202e:*)")],
    ]


def test_the_page_has_the_same_keys() -> None:
    of_page = dict(re.findall(r'^  (\w): "(\w+)",', PAGE_KEYS.read_text(encoding="utf-8"), re.MULTILINE))
    assert of_page == GRANT_KEYS | {DENY_KEY: "deny"}
