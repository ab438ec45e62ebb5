"""Sessions, grants and repairs in words."""

from __future__ import annotations

import click
import msgspec
import pytest

from makai.cli.session_admin import grant_lines, report_lines
from makai.cli.session_list import age, session_table, short_ids
from makai.core.usage import Usage
from makai.sessions.log.base import LogProblem, LogReport, SessionSummary, StoredGrant

NOW_MS = 1_000_000_000
ONE = SessionSummary(
    session_id="3f2c9a1b-0000-4000-8000-000000000001",
    title="Fix\x1b the parser",
    model_ref="openai/openai-responses@gpt-6",
    cwd="/home/ada/parser",
    status="finished",
    updated_ms=NOW_MS - 3 * 3_600_000,
    usage=Usage(cost_usd=0.125),
)
TWO = SessionSummary(
    session_id="3f2c9a1b-0000-4000-8000-000000000002",
    model_ref="odd",
    status="awaiting_approval",
    pending_approvals=1,
    updated_ms=NOW_MS,
)


def test_the_table_has_a_line_per_session_and_what_terminals_obey_is_shown() -> None:
    assert session_table([ONE, TWO], now_ms=NOW_MS) == [
        "ID                                    CHANGED   STATUS         MODEL         COST     TITLE",
        "3f2c9a1b-0000-4000-8000-000000000001  3 h ago   finished       openai/gpt-6  $0.1250  Fix\\x1b the parser",
        "3f2c9a1b-0000-4000-8000-000000000002  just now  waits for you  odd           -        (no title)",
    ]


def test_lines_are_cut_to_the_terminal_and_folders_are_shown_on_demand() -> None:
    lines = session_table([ONE], now_ms=NOW_MS, folders=True, width=60)

    assert lines == [
        "ID        CHANGED  STATUS    MODEL         COST     FOLDER …",
        "3f2c9a1b  3 h ago  finished  openai/gpt-6  $0.1250  /home/a…",
    ]


def test_a_damaged_session_says_what_to_do() -> None:
    lines = session_table([SessionSummary(session_id="s" * 12, damaged=True)], now_ms=NOW_MS, paint=click.style)

    assert lines[1] == click.style("ssssssss  -        damaged  -      -     run `makai sessions repair`", fg="red")


def test_ids_are_cut_where_no_other_one_begins_so() -> None:
    ids = ["aaaaaaaaaa1", "aaaaaaaaaa2", "bbbbbbbbbbbb", "short"]
    whole = {name: name for name in ids}
    assert short_ids(ids, ["bbbbbbbbbb-known"]) == whole | {"bbbbbbbbbbbb": "bbbbbbbbbbb"}


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "just now"),
        (59_999, "just now"),
        (60_000, "1 min ago"),
        (3_600_000, "1 h ago"),
        (7_776_000_000, "90 d ago"),
    ],
)
def test_ages_are_told_in_one_unit(ms: int, text: str) -> None:
    assert age(ms) == text


def test_grants_are_told_by_folder() -> None:
    def grant(folder: str, rule: str, allow: bool) -> StoredGrant:
        return StoredGrant(folder=folder, rule=rule, allow=allow, session_id="0123456789", event_id=1, ts=1, by="run")

    assert grant_lines([grant("/a", "Bash(ls:*)", True), grant("/a", "Read", False), grant("", "Edit", True)]) == [
        "/a",
        "  allow  Bash(ls:*)  (by run, session 01234567)",
        "  deny   Read  (by run, session 01234567)",
        "",
        "(no folder)",
        "  allow  Edit  (by run, session 01234567)",
    ]


def test_a_report_says_what_was_found_and_what_was_done() -> None:
    whole = LogReport(sessions=2, events=1_000, problems=())
    problems = (LogProblem("s-1", 7, "damaged or missing"), LogProblem("", None, "a bad page"))
    damaged = LogReport(sessions=2, events=1_000, problems=problems)
    repaired = msgspec.structs.replace(damaged, kept_as="/home/ada/.makai/sessions.db.damaged-1")

    assert report_lines(whole, "Do this.") == ["2 sessions with 1,000 events: no damage found."]
    assert report_lines(damaged, "Do this.") == [
        "2 sessions with 1,000 events: 2 problems.",
        "  session s-1, event 7: damaged or missing",
        "  the log: a bad page",
        "Do this.",
    ]
    assert report_lines(repaired, "")[-2:] == [
        "Repaired: every session can be read again; notices replace the damaged events.",
        "What was damaged is kept as /home/ada/.makai/sessions.db.damaged-1.",
    ]
