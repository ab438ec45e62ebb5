"""Whatever a model writes into a call: a question shows all of it, to its end, and nothing of it acts or hides."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.approval_text import approval_text
from makai.core.session_events import ApprovalRequested, FileDiff
from makai.core.visible_text import exact

HOSTILE = st.text(
    st.sampled_from("ab $;\n\t\r\x00\x1b\x07\x9b\u00ad\u200b\u200d\u202e\u2066\u2069\u2028\ufeff\u3164\u05d0\U000e0041")
    | st.characters(exclude_categories=["Cs"]),
    max_size=300,
)
VALUES = HOSTILE | st.integers() | st.lists(HOSTILE, max_size=3) | st.dictionaries(HOSTILE, HOSTILE, max_size=3)


def _shown(name: str, arguments: dict[str, Any], **more: Any) -> str:
    given, title = json.dumps(arguments), arguments.get("title", "")
    asked = ApprovalRequested(call_id="c", name=name, arguments_json=given, digest="d", title=title, **more)
    text = approval_text(asked, "/w")
    lines = [text.question, *(line.text for line in text.lines), text.rule]
    assert all(character.isprintable() for line in lines for character in line)
    return "\n".join(lines)


@pytest.mark.proof("T3")
@given(command=HOSTILE, more=st.dictionaries(HOSTILE, VALUES, max_size=4))
def test_a_command_is_shown_whole_with_every_other_argument(command: str, more: dict[str, Any]) -> None:
    text = _shown("shell", {**more, "command": command}, grant=command)

    assert exact(command) in text
    for name, value in more.items():
        if name not in ("command", "directory", "timeout_s"):
            assert exact(name).replace("\n", "\\n") in text
            assert not isinstance(value, int) or str(value) in text


@pytest.mark.proof("T3")
@given(arguments=st.dictionaries(HOSTILE, HOSTILE, max_size=5))
def test_every_argument_of_another_tool_is_shown_to_its_end(arguments: dict[str, str]) -> None:
    text = _shown("mcp__x__y", {**arguments, "title": "Do \u202eit"})

    for value in arguments.values():
        last = value.split("\n")[-1]
        assert exact(last) in text or json.dumps(last, ensure_ascii=False)[1:-1] in text or "\\" in exact(last)


@given(old=HOSTILE, new=HOSTILE, path=HOSTILE)
def test_every_line_that_a_change_adds_is_shown(old: str, new: str, path: str) -> None:
    text = _shown("write", {"path": path}, diffs=(FileDiff(path=path, old_text=old, new_text=new),))

    for line in set(new.split("\n")) - set(old.split("\n")):
        assert "→   ".join(map(exact, line.split("\t"))) in text
