"""What `makai sessions search` and `makai usage` print."""

from __future__ import annotations

import msgspec
import pytest

from makai.cli.session_search import UsageKey, hit_lines, usage_lines
from makai.sessions.index.base import SearchHit, SearchMatch, UsageRow

HIT = SearchHit(
    session_id="0123456789",
    title="Tea\ntime",
    cwd="/tea",
    harness="native",
    model_ref="acme/one",
    updated_ms=0,
    archived=True,
    matches=(
        SearchMatch(event_id=3, kind="user", text="😀 Which kettle?", marks=((9, 15),)),
        SearchMatch(event_id=5, kind="tool", text="kettle --on", marks=((0, 6),)),
    ),
)


def test_a_hit_shows_what_was_found_in_its_context() -> None:
    plain = msgspec.structs.replace(HIT, session_id="99", title="", cwd=None, archived=False, matches=())
    assert hit_lines([HIT, plain], 60_000, lambda text, **style: f"<{text}>") == [
        "01234567  <Tea time>  (1 min ago, /tea, archived)",
        "  you:   😀 Which <kettle>?",
        "  tool:  <kettle> --on",
        "",
        "99  <(no title)>  (1 min ago)",
    ]


ROW = UsageRow(
    day="2026-11-17",
    model_ref="acme/api@one",
    harness="native",
    cwd="/tea",
    runs=1,
    input=1_200,
    output=30,
    cache_read=4,
    cache_write=5,
    cost_usd=None,
)
OTHER = msgspec.structs.replace(
    ROW, day="2026-11-16", model_ref="", harness="acp:gemini", cwd=None, runs=1_000, cost_usd=2.5
)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("day", ["DAY", "2026-11-17", "2026-11-16", "all"]),
        ("model", ["MODEL", "(the agent's own)", "acme/one", "all"]),
        ("agent", ["AGENT", "gemini", "makai", "all"]),
        ("folder", ["FOLDER", "(no folder)", "/tea", "all"]),
    ],
)
def test_usage_is_a_table_of_days_or_of_the_most_expensive(by: UsageKey, names: list[str]) -> None:
    assert [line.split("  ")[0].strip() for line in usage_lines([ROW, OTHER], by)] == names


def test_usage_of_one_row_needs_no_sum_and_an_unknown_price_is_no_price() -> None:
    assert usage_lines([ROW], "day") == [
        "DAY         RUNS  INPUT  CACHED  OUTPUT  COST",
        "2026-11-17     1   1.2k       9      30     -",
    ]
