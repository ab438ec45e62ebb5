"""What `makai harness run` prints."""

from __future__ import annotations

import io

import pytest

from makai.cli.console import plain
from makai.cli.harness_output import ProgressBoard, cost_text, event_line, result_lines, results_table
from makai.cli.harness_task import exit_code_of
from makai.client.runner.tasks import RunTask
from makai.harness.contract.events import (
    AgentErrorEvent,
    AssistantTextEvent,
    CostData,
    Event,
    InitEvent,
    ResultEvent,
    SystemEvent,
    ToolProgressEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from makai.harness.contract.result import QualityReport, Result

WORSE = Result(
    status="completed",
    provider_name="stub",
    worktree_path="/w",
    commit_sha="a" * 40,
    cost=CostData(total_cost_usd=1.5),
    quality_report=QualityReport(baseline_captured=True, test_delta=2, lint_delta=-1, blocked_promotion=True),
)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (InitEvent(session_id="s"), "session s"),
        (AssistantTextEvent(text=" two\nlines\n"), "two\nlines"),
        (ToolUseEvent(tool_name="Bash", input={"description": "d", "command": "ls\n-l"}), "→ Bash ls -l"),
        (ToolUseEvent(tool_name="Plan", input={"a": 1}), '→ Plan {"a":1}'),
        (ToolUseEvent(tool_name="Plan"), "→ Plan"),
        (ToolResultEvent(content="no\n", is_error=True), "failed: no"),
        (ToolResultEvent(content="yes"), ""),
        (ToolProgressEvent(tool_name="Bash", elapsed_seconds=1.0), ""),
        (SystemEvent(subtype="recovered", message="m"), "[recovered] m"),
        (ResultEvent(success=True, message="m"), ""),
        (AgentErrorEvent(message="died"), "failed: died"),
    ],
)
def test_an_event_is_a_line_for_people(event: Event, line: str) -> None:
    assert event_line(event, plain) == line


def test_a_cost_that_is_not_known_is_not_shown_as_no_cost() -> None:
    result = Result(status="completed", provider_name="codex", cost=CostData(input_tokens=10, output_tokens=5))

    assert cost_text(result) == "-"
    assert result_lines(result) == ["", "completed"]


def test_a_result_says_what_to_do_next() -> None:
    stopped = Result(
        status="stopped", provider_name="stub", worktree_path="/w", failure_mode="timeout", error="Too long."
    )

    assert result_lines(stopped) == [
        *("", "stopped", "timeout: Too long.", "worktree: /w", "continue:   makai harness run --resume /w")
    ]
    assert result_lines(WORSE) == [
        *("", "completed, $1.50", "checks: tests +2, lint -1", f"worktree: /w at {'a' * 12}"),
        *("look at it: git -C /w log --stat -3", "remove it:  git worktree remove /w", "The work is not promoted."),
    ]
    assert [exit_code_of(result) for result in (stopped, WORSE)] == [130, 1]
    assert exit_code_of(Result(status="completed", provider_name="stub", work_result="failed")) == 1
    assert exit_code_of(Result(status="completed", provider_name="stub")) == 0


def test_several_results_are_a_table() -> None:
    assert results_table({"a": WORSE, "bb": Result(status="failed", provider_name="x", failure_mode="timeout")}) == [
        "TASK  STATUS     WORK  CHECKS             COST   COMMIT        WORKTREE",
        "a     completed  -     tests +2, lint -1  $1.50  aaaaaaaaaaaa  /w",
        "bb    timeout    -     -                  -      -             -",
    ]


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "written"),
    [
        (io.StringIO(), "a: working\nb: completed\n"),
        (
            FakeTerminal(),
            "\r\x1b[2Ka  working\n\r\x1b[2Kb  waiting\n\x1b[2A\r\x1b[2Ka  working\n\r\x1b[2Kb  completed\n",
        ),
    ],
)
def test_progress_is_drawn_again_on_a_terminal_and_a_line_per_change_elsewhere(
    stream: io.StringIO, written: str
) -> None:
    board = ProgressBoard([RunTask(name="a"), RunTask(name="b")], stream, as_json=False)

    board.show("a", "working")
    board.show("a", "working")
    board.done("b", Result(status="completed", provider_name="x"))

    assert stream.getvalue() == written
