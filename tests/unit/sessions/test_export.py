"""A session as a file: readable, complete, and unable to get out of its place."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.session_trials import Trial

from makai.core import session_events as ev
from makai.core.content import Image, Text
from makai.core.usage import Usage
from makai.sessions.commands import Abort, ApproveCall, DenyCall, WithdrawInput
from makai.sessions.export import jsonl, markdown, usage_text
from makai.sessions.log.base import Record, SessionSummary
from makai.sessions.markdown_text import closed, code_span, diff_block, fenced, one_line, plain, quoted, visible

SUMMARY = SessionSummary(
    session_id="s-1",
    title="Fix the `parser`",
    model_ref="acme/acme-chat@one",
    cwd="/home/ada/parser",
    created_ms=1_000,
    updated_ms=2_000,
    usage=Usage(input=10, output=5, cost_usd=0.25),
)
NASTY = ["```", "~~~~", "```py\nx", "- a\n  ```\n  b", "<!-- open", "<script>", "> ```", "`" * 7, "    ```", "x ``` y"]


def records(trial: Trial) -> list[Record]:
    return [Record(logged.event_id, msgspec.json.encode(logged)) for logged in trial.log]


def said(trial: Trial) -> str:
    """The Markdown without its head."""
    return markdown(SUMMARY, records(trial)).partition("\n\n## ")[2]


def a_turn_that_calls(call: ev.ToolCalled) -> list[ev.SessionEvent]:
    return [ev.TurnStarted(turn=1), call, ev.TurnEnded(turn=1, stop_reason="tool_use")]


def test_a_conversation_reads_from_top_to_bottom(trial: Trial) -> None:
    trial.send("Say hello\nplease")
    trial.report(
        ev.TurnStarted(turn=1),
        ev.Reasoning(content_index=0, text="They want a greeting."),
        ev.AssistantTextDelta(content_index=1, delta="Hel"),
        ev.AssistantText(content_index=1, text="Hello, *you*."),
        ev.TurnEnded(turn=1, stop_reason="end_turn", usage=Usage(input=10, output=5)),
        ev.RunFinished(stop_reason="end_turn", usage=Usage(input=1000, cache_read=234, output=5, cost_usd=0.25)),
    )

    assert markdown(SUMMARY, records(trial)) == (
        "# Fix the \\`parser\\`\n\n"
        "- Session: `s-1`\n"
        "- Model: `acme/acme-chat@one`\n"
        "- Folder: `/home/ada/parser`\n"
        "- Began: 1970-01-01 00:00:01 UTC\n"
        "- Last change: 1970-01-01 00:00:02 UTC\n"
        "- Mode: ask\n"
        "- Sandbox: workspace-write\n"
        "- Used: 10 tokens in, 5 out, $0.2500\n\n"
        "## User, 1970-01-01 00:00:01 UTC\n\n> Say hello\n> please\n\n"
        "### Thinking\n\n> They want a greeting.\n\n"
        "## Assistant\n\nHello, *you*.\n\n"
        "*(end_turn; 1,234 tokens in, of these 234 from a cache, 5 out, $0.2500)*\n"
    )


def test_a_tool_call_shows_its_arguments_who_decided_its_diff_and_its_result(trial: Trial) -> None:
    diff = ev.FileDiff(path="a.py", old_text="x = 1\ny = 2\n", new_text="x = 1\ny = 3\n")
    trial.report(
        *a_turn_that_calls(
            ev.ToolCalled(call_id="c1", name="edit", arguments_json='{"path":"a.py"}', title="Edit a.py")
        ),
        ev.ApprovalRequested(
            call_id="c1", name="edit", arguments_json='{"path":"a.py"}', digest="d", diffs=(diff,), grant="Edit(a.py)"
        ),
    )
    assert "**Waits for a decision.**" in markdown(SUMMARY, records(trial))

    trial.do(ApproveCall(now=2_000, call_id="c1", by="ada", reason="looks right", scope="session"))
    trial.report(
        ev.ToolStarted(call_id="c1"),
        ev.ToolFinished(call_id="c1", content=(Text(text="Edited."),), diffs=(diff,), exit_code=0),
    )

    assert said(trial).partition("### ")[2] == (
        "Tool `edit`: Edit a.py\n\n"
        '```json\n{\n  "path": "a.py"\n}\n```\n\n'
        "```diff\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n```\n\n"
        "**Approved by ada**, session (rule `Edit(a.py)`): looks right\n\n"
        "Result (exit code 0):\n\n"
        "```text\nEdited.\n```\n"
    )


def test_a_denied_call_shows_what_it_would_have_changed(trial: Trial) -> None:
    diff = ev.FileDiff(path="new.txt", old_text=None, new_text="hi\n")
    trial.report(
        *a_turn_that_calls(
            ev.ToolCalled(call_id="c1", name="write", arguments_json="{broken", arguments_error="not JSON")
        ),
        ev.ApprovalRequested(call_id="c1", name="write", arguments_json="{broken", digest="d", diffs=(diff,)),
    )
    trial.do(DenyCall(now=2_000, call_id="c1", by="run", reason="no user is there"))
    text = markdown(SUMMARY, records(trial))

    assert "```\n{broken\n```\n\nThese arguments cannot be read: not JSON" in text
    assert "```diff\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hi\n```" in text
    assert "**Denied by run**: no user is there" in text


def test_notes_plans_failures_and_stops_are_told(trial: Trial) -> None:
    trial.send("Go")
    trial.report(
        ev.Notice(level="warning", code="rate_limited", message="Waiting 2 s."),
        ev.PlanUpdated(entries=(ev.PlanEntry(content="look", status="completed"), ev.PlanEntry(content="leap"))),
        ev.RunFailed(code="overloaded", message="Too busy.", hint="Try later.", usage=Usage(input=1, output=0)),
    )
    trial.send("Again")
    trial.do(Abort(now=3_000, by="ada", reason="enough"))

    assert [block for block in said(trial).strip().split("\n\n") if block.startswith((">", "-", "*"))] == [
        "> Go",
        "> **warning:** Waiting 2 s.",
        "- [x] look\n- [ ] leap",
        "> **The run failed** (overloaded): Too busy. Try later.",
        "*(1 tokens in, 0 out)*",
        "> Again",
        "> **Stopped by ada**: enough",
    ]


def test_results_say_what_is_not_in_them(trial: Trial) -> None:
    trial.report(
        *a_turn_that_calls(ev.ToolCalled(call_id="c1", name="shell", arguments_json="{}")),
        ev.ToolStarted(call_id="c1"),
        ev.ToolFinished(
            call_id="c1",
            content=(Image(data="AAAA", mime_type="image/png"),),
            is_error=True,
            exit_code=1,
            omitted_bytes=2048,
            spill_path="/tmp/out.txt",
        ),
    )

    assert said(trial).endswith(
        "Result (failed, exit code 1, 2,048 bytes left out, all of it in `/tmp/out.txt`):\n\n"
        "```text\n(image, image/png, 3 bytes)\n```\n"
    )


def test_input_that_no_run_has_read_yet_is_shown_until_it_is_read_or_withdrawn(trial: Trial) -> None:
    trial.send("first")
    for text in ("second", "third"):
        trial.send(text, delivery="queue")
    trial.do(WithdrawInput(now=trial.now, input_id="input-third"))

    waits = "## User, 1970-01-01 00:00:01 UTC (no run has read it yet)\n\n> second\n"
    assert said(trial).partition("> first\n\n")[2] == waits
    trial.answer("One")
    assert said(trial).count("> second") == 1
    assert "read it yet" not in said(trial)


def test_a_session_without_words_says_so(trial: Trial) -> None:
    assert markdown(SUMMARY, records(trial)).endswith("\n\nNothing was said yet.\n")


def test_what_a_newer_version_wrote_is_passed_over_in_markdown_and_kept_in_lines(trial: Trial) -> None:
    newer = Record(2, b'{"event_id":2,"ts":5,"event":{"type":"from_the_future","x":1}}')

    assert markdown(SUMMARY, [*records(trial), newer]).endswith("Nothing was said yet.\n")
    assert list(jsonl([newer])) == [newer.line + b"\n"]


def test_lines_are_the_log_with_what_terminals_obey_escaped(trial: Trial) -> None:
    trial.send("a\x1b[31m \x7f \x9b \u2028 \u202e é \\u")
    lines = list(jsonl(records(trial)))

    assert [msgspec.json.decode(line, type=ev.Logged) for line in lines] == trial.log
    text = b"".join(lines).decode()
    assert [character for character in "\x1b\x7f\x9b\u2028\u202e" if character in text] == []
    assert "é" in text


def blocks(text: str) -> list[tuple[str, str]]:
    """The top-level blocks of Markdown, as a parser of its own sees them."""
    tokens = MarkdownIt("commonmark").parse(text)
    return [(token.type, token.content) for token in tokens if token.level == 0 and token.nesting >= 0]


@pytest.mark.parametrize("place", [closed, quoted, fenced])
@given(st.lists(st.sampled_from(NASTY) | st.text("`~<!-> \n\tab?", max_size=12), max_size=5).map("\n".join))
def test_nothing_swallows_what_follows_it(place: Callable[[str], str], text: str) -> None:
    ends = blocks(f"{place(text)}\n\n## The end")[-1]

    assert ends == ("heading_open", "")


@given(st.text("`~ \nab", max_size=40))
def test_a_fenced_block_holds_exactly_its_text(text: str) -> None:
    (block,) = blocks(fenced(text))

    assert block == ("fence", text.removesuffix("\n") + "\n")


@given(st.text("`~ ab*_<", min_size=1, max_size=20).map(one_line).filter(bool))
def test_a_code_span_and_plain_words_mean_nothing_else(text: str) -> None:
    def inline(markdown_text: str) -> list[tuple[str, str]]:
        (paragraph,) = [token for token in MarkdownIt("commonmark").parse(f"x {markdown_text} x") if token.children]
        assert paragraph.children is not None
        return [(token.type, token.content) for token in paragraph.children]

    assert inline(code_span(text)) == [("text", "x "), ("code_inline", text), ("text", " x")]
    assert (
        "".join(content for kind, content in inline(plain(text)) if kind in ("text", "text_special")) == f"x {text} x"
    )


def test_an_open_fence_is_closed_and_html_without_end_is_text() -> None:
    assert closed("```py\nx = 1") == "```py\nx = 1\n```"
    assert closed("a\n<!-- b\n```html\n<!-- c\n```") == "a\n&lt;!-- b\n```html\n<!-- c\n```"
    assert closed("1. a\n   ```\n   b\n   ```") == "> 1. a\n>    ```\n>    b\n>    ```"


def test_what_would_be_obeyed_is_shown() -> None:
    assert visible("a\r\nb\rc\x1b[0m\t\u202e") == "a\nb\\u000dc\\u001b[0m\t\\u202e"
    assert one_line("a\n\x07b " + "c" * 300, 10) == "a \\u0007b…"


def test_a_diff_of_a_huge_file_is_quick_and_shows_the_place() -> None:
    lines = [f"line {number}" for number in range(50_000)]
    changed = [*lines[:40_000], "new", *lines[40_001:]]
    diff = ev.FileDiff(path="big", old_text="\n".join(lines), new_text="\n".join(changed))

    assert diff_block(diff) == (
        "```diff\n--- a/big\n+++ b/big\n@@ -39998,7 +39998,7 @@\n line 39997\n line 39998\n line 39999\n"
        "-line 40000\n+new\n line 40001\n line 40002\n line 40003\n```"
    )


def test_a_diff_of_line_ends_says_so() -> None:
    assert "(only line ends changed)" in diff_block(ev.FileDiff(path="a", old_text="x\r\n", new_text="x\n"))


def test_usage_is_told_in_few_words() -> None:
    assert usage_text(Usage(input=1, output=2)) == "1 tokens in, 2 out"
