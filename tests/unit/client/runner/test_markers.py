"""What a run says about itself in its text."""

from __future__ import annotations

import pytest

from makai.client.runner.markers import MAX_SUMMARY_CHARS, MarkerScanner
from makai.harness.contract.events import AssistantTextEvent, Event, ResultEvent, ToolResultEvent, ToolUseEvent


def scanned(*events: Event | str) -> MarkerScanner:
    scanner = MarkerScanner()
    for event in events:
        scanner.feed(AssistantTextEvent(text=event) if isinstance(event, str) else event)
    return scanner


@pytest.mark.req("DM-RES-002")
@pytest.mark.parametrize(
    ("pieces", "verdict"),
    [
        (["WORK_RESULT:passed"], "passed"),
        (["All good.\nWORK_RESULT: failed\n"], "failed"),
        (["work_result unknown"], "unknown"),
        (["**WORK_RESULT: passed**"], "passed"),
        (["WORK_RESULT: `passed`."], "passed"),
        (["done", "WORK_RESULT: passed", "bye"], "passed"),
        (["WORK_RESULT: failed", "WORK_RESULT: passed"], "passed"),
        (["WORK_RESULT: failed, then WORK_RESULT: passed"], "passed"),
        (["WORK_RESULT: passed", "x" * 500], "passed"),
        (["End with WORK_RESULT: passed|failed|unknown"], None),
        (["End with WORK_RESULT: passed/failed"], None),
        (["MY_WORK_RESULT: passed"], None),
        (["WORK_RESULT: passedly"], None),
        (["WORK_RESULT:", "x" * 200, "passed"], None),
        (["nothing"], None),
        ([], None),
    ],
)
def test_the_last_marker_of_the_text_is_the_verdict(pieces: list[str], verdict: str | None) -> None:
    assert scanned(*pieces).work_result == verdict


@pytest.mark.req("DM-RES-002")
@pytest.mark.parametrize("cut", range(1, len("WORK_RESULT: failed")))
def test_a_marker_split_over_events_is_found(cut: int) -> None:
    marker = "WORK_RESULT: failed"

    assert scanned("Ends with\n", marker[:cut], marker[cut:], "\nbye").work_result == "failed"
    assert scanned("Ends", *marker).work_result == "failed"


def test_a_marker_of_a_tool_is_no_verdict_and_that_of_the_result_counts_without_another() -> None:
    tool = ToolResultEvent(content="WORK_RESULT: passed")

    assert scanned(tool).work_result is None
    assert scanned("hm", ResultEvent(success=True, message="WORK_RESULT: passed")).work_result == "passed"
    assert scanned("WORK_RESULT: failed", ResultEvent(success=True, message="WORK_RESULT: passed")).work_result == (
        "failed"
    )


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("see https://github.com/o/r/pull/12.", "https://github.com/o/r/pull/12"),
        ("https://git.example.org/a/b/c/-/merge_requests/7\n", "https://git.example.org/a/b/c/-/merge_requests/7"),
        ("https://bitbucket.org/o/r/pull-requests/3", "https://bitbucket.org/o/r/pull-requests/3"),
        ("https://github.com/o/r/pulls and https://github.com/o/r/issues/3", ""),
        ("http://github.com/o/r/pull/12", ""),
    ],
)
def test_the_url_of_a_pull_request_is_found_in_text_and_tool_results(said: str, url: str) -> None:
    assert scanned(said).pull_request_url == url
    assert scanned(ToolResultEvent(content=said)).pull_request_url == url
    assert scanned(ResultEvent(success=True, message=said)).pull_request_url == url
    assert scanned(ToolUseEvent(tool_name="Bash", input={"command": said})).pull_request_url == ""


def test_the_first_pull_request_counts() -> None:
    scanner = scanned("https://github.com/o/r/pull/1", "https://github.com/o/r/pull/2")

    assert scanner.pull_request_url == "https://github.com/o/r/pull/1"


def test_the_summary_is_the_message_of_the_result_else_the_last_text_and_is_cut() -> None:
    assert scanned("one", "two\nlines", " ").summary == "two lines"
    assert scanned("one", ResultEvent(success=True, message="Done.")).summary == "Done."
    assert scanned("x" * 1000).summary == "x" * (MAX_SUMMARY_CHARS - 1) + "…"
    assert scanned().summary == ""
