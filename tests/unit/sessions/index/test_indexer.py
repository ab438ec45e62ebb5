"""The index follows the log, whatever happens to it: what is found is what the log has."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.indexes import DAY_MS, contents, created, exchange, indexing, tool_call
from support.log_events import NOW_MS, pending, steps

from makai.core import session_events as ev
from makai.core.usage import Usage
from makai.sessions.index.base import SearchAnswer, SearchHit, SearchMatch, UsageRow
from makai.sessions.index.indexer import INDEX_NAME
from makai.sessions.index.sqlite import VERSION
from makai.sessions.log.base import EventLog, Pending
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import SearchSessions


async def add(log: EventLog, session_id: str, *events: list[Pending]) -> None:
    await log.append(session_id, [one for some in events for one in some], await log.last(session_id))


async def test_everything_that_was_said_and_done_is_found(log: EventLog, tmp_path: Path) -> None:
    await add(log, "one", created("Tea time", cwd="/tea", harness="native"), exchange("Which kettle?", "The blue one."))
    await add(log, "one", tool_call("brew --oolong", "steeping"))
    async with indexing(log, tmp_path) as index:
        answer = await index.search("KETTLE")
        found = {word: await index.found(word) for word in ("tea", "blue", "oolong", "steep", "command", "coffee")}

    match = SearchMatch(event_id=3, kind="user", text="Which kettle?", marks=((6, 12),))
    hit = SearchHit(
        session_id="one",
        title="Tea time",
        cwd="/tea",
        harness="native",
        model_ref="acme/one",
        updated_ms=NOW_MS,
        archived=False,
        matches=(match,),
    )
    assert answer == SearchAnswer(hits=(hit,), complete=True)
    assert found == {word: [] if word == "coffee" else ["one"] for word in found}


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ("fix parser", True),
        ("parser FIX", True),
        ("fix the pars", True),
        ("par fix", False),
        ('"the old parser"', True),
        ('"old the"', False),
        ("resume", True),
        ("RÉSUMÉ", True),
        ("検索", True),
        ("索検", False),
        ("한국", True),
        ("log.py", True),
        ("src/log", True),
        ("NEAR(fix", False),
        ('fix"parser', True),
        ("fix -parser", True),
        ("^fix", True),
        ("body:fix", False),
        ("'; DROP TABLE words; --", False),
        ("*", False),
        ('"', False),
        ("", False),
    ],
)
async def test_people_search_with_words_and_phrases_and_never_meet_a_syntax(
    tmp_path: Path, query: str, is_found: bool
) -> None:
    log = MemoryLog()
    text = "Fix the old parser in src/log.py, update the résumé. 全文検索は速い, 한국어."
    await add(log, "one", created(), exchange(text, "Done."))
    async with indexing(log, tmp_path) as index:
        assert await index.found(query) == (["one"] if is_found else [])


async def test_titles_and_new_sessions_come_first_and_a_hit_shows_three_matches(tmp_path: Path) -> None:
    log = MemoryLog()
    old = NOW_MS - 300 * DAY_MS
    await add(log, "old", created(ts=old), *[exchange(f"tea {n}", "x", ts=old, run_id=f"r{n}") for n in range(5)])
    await add(log, "tool", created(), tool_call("make tea", "x"))
    await add(log, "title", created("Tea"), exchange("tea, please", "Here is tea.", run_id="r"))
    async with indexing(log, tmp_path) as index:
        hits = (await index.search("tea")).hits
        limited = await index.found("tea", limit=1)

    assert [hit.session_id for hit in hits] == ["title", "tool", "old"]
    assert [match.kind for match in hits[0].matches] == ["title", "user", "assistant"]
    assert [match.text for match in hits[2].matches] == ["tea 4", "tea 3", "tea 2"]
    assert limited == ["title"]


async def test_a_search_keeps_to_its_folder_its_session_and_what_is_archived(log: EventLog, tmp_path: Path) -> None:
    for name, cwd in (("one", "/a"), ("two", "/b"), ("three", None)):
        await add(log, name, created(cwd=cwd), exchange("tea", "x"))
    async with indexing(log, tmp_path) as index:
        assert set(await index.found("tea")) == {"one", "two", "three"}
        await add(log, "two", pending(ev.SessionArchived(archived=True), run_id=None))
        assert set(await index.found("tea")) == {"one", "three"}
        assert await index.found("tea", archived="only") == ["two"]
        assert set(await index.found("tea", archived="with")) == {"one", "two", "three"}
        assert await index.found("tea", cwd="/a") == ["one"]
        assert await index.found("tea", session_id="three") == ["three"]
        assert await index.found("tea", session_id="gone") == []


async def test_a_session_is_found_by_its_last_title_only(log: EventLog, tmp_path: Path) -> None:
    await add(log, "one", created("Coffee"))
    async with indexing(log, tmp_path) as index:
        assert await index.found("coffee") == ["one"]
        await add(log, "one", pending(ev.TitleChanged(title="Milk"), ev.TitleChanged(title="Tea"), run_id=None))
        assert [await index.found(word) for word in ("coffee", "milk", "tea")] == [[], [], ["one"]]
        await add(log, "one", pending(ev.TitleChanged(title=""), run_id=None))
        assert await index.found("tea") == []


async def test_what_is_added_is_found_by_the_next_search_and_after_a_restart(log: EventLog, tmp_path: Path) -> None:
    await add(log, "one", created(), exchange("tea", "x"))
    async with indexing(log, tmp_path) as index:
        assert await index.found("tea") == ["one"]
        await add(log, "two", created(), exchange("tea", "y"))
        assert set(await index.found("tea")) == {"one", "two"}
    await add(log, "one", exchange("coffee", "x"))
    await log.delete("two")
    await add(log, "three", created(), steps(3_000), exchange("milk", "x"))
    async with indexing(log, tmp_path) as index:
        assert [await index.found(word) for word in ("tea", "coffee", "milk")] == [["one"], ["one"], ["three"]]


async def test_a_session_made_again_under_its_old_id_has_nothing_of_the_old_one(log: EventLog, tmp_path: Path) -> None:
    await add(log, "one", created(), exchange("coffee", "x"), exchange("more coffee", "x"))
    async with indexing(log, tmp_path) as index:
        assert await index.found("coffee") == ["one"]
    await log.delete("one")
    await add(log, "one", created(ts=NOW_MS + 5), exchange("tea", "x", ts=NOW_MS + 5))
    async with indexing(log, tmp_path) as index:
        assert [await index.found(word) for word in ("coffee", "tea")] == [[], ["one"]]


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob(f"{INDEX_NAME}*"))


async def test_the_words_of_a_deleted_session_are_erased_from_the_file(tmp_path: Path) -> None:
    log = MemoryLog()
    secret, others = "xylophonist", [f"word{number}" for number in range(200)]
    await add(log, "kept", created(), exchange(" ".join(others), "x"))
    await add(log, "gone", created(), exchange(f"the {secret} {' '.join(others[:50])}", f"{secret}!"))
    async with indexing(log, tmp_path) as index:
        assert await index.found(secret) == ["gone"]
        await add(log, "kept", *[exchange(f"more {number}", "x", run_id=f"r{number}") for number in range(20)])
        assert await index.found("more 7") == ["kept"]
        assert secret.encode() in bytes_of(tmp_path)
        await log.delete("gone")
        await index.indexer.forget("gone")
        assert secret.encode() not in bytes_of(tmp_path)
        assert [await index.found(secret), await index.found("word7")] == [[], ["kept"]]
    assert secret.encode() not in bytes_of(tmp_path)


async def test_what_was_deleted_while_nothing_indexed_is_erased_at_the_next_start(tmp_path: Path) -> None:
    log = MemoryLog()
    await add(log, "gone", created(), exchange("xylophonist", "x"))
    async with indexing(log, tmp_path) as index:
        assert await index.found("xylophonist") == ["gone"]
    await log.delete("gone")
    async with indexing(log, tmp_path) as index:
        assert await index.found("xylophonist") == []
    assert b"xylophonist" not in bytes_of(tmp_path)


async def test_forgetting_makes_no_index_where_there_is_none(tmp_path: Path) -> None:
    async with indexing(MemoryLog(), tmp_path) as index:
        await index.indexer.forget("one")
    assert bytes_of(tmp_path) == b""


def no_database(path: Path) -> None:
    path.write_bytes(b"This is no database. " * 1_000)


def damaged_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4_096:] = b"\xff" * (len(data) - 4_096)
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def other_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM entry")
        connection.execute(f"PRAGMA user_version={VERSION + 1}")
        connection.commit()


@pytest.mark.parametrize("harm", [no_database, damaged_pages, cut_short, other_version, Path.unlink])
async def test_an_index_that_is_of_no_use_is_built_again(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    log = MemoryLog()
    await add(log, "one", created("Tea"), exchange("tea", "x"))
    async with indexing(log, tmp_path) as index:
        assert await index.found("tea") == ["one"]
    whole = contents(tmp_path)
    harm(tmp_path / INDEX_NAME)
    async with indexing(log, tmp_path) as index:
        wanted = SearchSessions(query="tea", wait_s=30)
        async with asyncio.timeout(30):  # damage is found by the search itself at the latest
            while not (answer := await index.indexer.search(wanted)).complete:
                pass
        assert [hit.session_id for hit in answer.hits] == ["one"]
    assert contents(tmp_path) == whole


def row(day: str, **fields: object) -> UsageRow:
    counts = {"runs": 1, "input": 10, "output": 2, "cache_read": 0, "cache_write": 0, "cost_usd": None}
    place = {"model_ref": "acme/one", "harness": "native", "cwd": None}
    return msgspec.convert({"day": day, **place, **counts, **fields}, UsageRow)


async def test_usage_is_summed_by_day_model_agent_and_folder(log: EventLog, tmp_path: Path) -> None:
    priced = Usage(input=1, output=2, cache_read=3, cache_write=4, cost_usd=0.5)
    day, before = NOW_MS, NOW_MS - DAY_MS  # 2023-11-14 22:13 UTC
    await add(log, "one", created(ts=before), exchange("a", "b", ts=before), exchange("c", "d", ts=day, run_id="2"))
    await add(log, "two", created(ts=day), exchange("e", "f", ts=day, usage=priced))
    await add(log, "two", pending(ev.HarnessChanged(harness="codex"), run_id=None, ts=day))
    await add(log, "two", exchange("g", "h", ts=day, run_id="3", usage=priced))
    async with indexing(log, tmp_path) as index:
        rows = (await index.usage(days=2)).rows
        east = (await index.usage(days=1, tz_minutes=120)).rows
        today = (await index.usage(days=1)).rows
        one = (await index.usage(days=30, session_id="one")).rows
    mixed = row("2023-11-14", runs=2, input=11, output=4, cache_read=3, cache_write=4, cost_usd=0.5)
    codex = row("2023-11-14", harness="codex", input=1, cache_read=3, cache_write=4, cost_usd=0.5)
    assert rows == (codex, mixed, row("2023-11-13"))
    assert today == (codex, mixed)
    assert [found.day for found in east] == ["2023-11-15", "2023-11-15"]
    assert one == (row("2023-11-14"), row("2023-11-13"))


async def test_counts_that_no_database_holds_stop_neither_the_search_nor_the_sums(tmp_path: Path) -> None:
    log = MemoryLog()
    absurd = Usage(input=10**30, output=2**53, cache_read=-(10**30))
    await add(log, "one", created(), exchange("tea", "x", usage=absurd))
    await add(log, "one", *[exchange("tea", "x", run_id=f"r{n}", usage=absurd) for n in range(1_100)])
    async with indexing(log, tmp_path) as index:
        (row,) = (await index.usage(days=1)).rows
        assert await index.found("tea") == ["one"]
    most = 1_101 * 2**53
    assert (row.runs, row.input, row.output, row.cache_read) == (1_101, most, most, 0)


async def test_the_history_that_a_fork_copied_is_counted_once(log: EventLog, tmp_path: Path) -> None:
    await add(log, "origin", created(), exchange("a", "b"))
    # A log lets no time run backwards: what is copied has the time of the fork.
    await add(log, "fork", created(ts=NOW_MS + 9, forked_from="origin", forked_at=5), exchange("a", "b"))
    await add(log, "fork", exchange("c", "d", ts=NOW_MS + 10, run_id="run-2"))
    async with indexing(log, tmp_path) as index:
        assert (await index.usage()).rows == (row("2023-11-14", runs=2, input=20, output=4),)
        assert set(await index.found("a")) == {"origin", "fork"}


WORDS = st.sampled_from(["tea", "coffee", "検索", "Füße", ""])
EVENTS = st.one_of(
    st.builds(lambda text: ev.TitleChanged(title=text), WORDS),
    st.builds(lambda text: ev.UserInput(input_id="i", content=text), WORDS),
    st.builds(lambda text: ev.AssistantText(content_index=0, text=text), WORDS),
    st.builds(lambda text: ev.AssistantTextDelta(content_index=0, delta=text or "."), WORDS),
    st.builds(lambda text: ev.ToolCalled(call_id="c", name="n", arguments_json=text), WORDS),
    st.builds(lambda n: ev.RunStarted(run_number=n, model_ref=f"m{n}"), st.integers(1, 3)),
    st.builds(lambda n: ev.RunFinished(stop_reason="end_turn", usage=Usage(input=n)), st.integers(0, 9)),
    st.just(ev.HarnessChanged(harness="codex")),
    st.builds(lambda yes: ev.SessionArchived(archived=yes), st.booleans()),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["one", "two", "three"]), st.lists(EVENTS, min_size=1, max_size=5), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=20)
@given(STEPS)
def test_an_index_that_followed_the_log_is_the_one_that_is_built_of_it_afterwards(
    changes: list[tuple[str, list[ev.SessionEvent], bool]],
) -> None:
    async def run(live: Path, rebuilt: Path) -> None:
        log = MemoryLog()
        async with indexing(log, live) as index:
            for time, (session_id, events, is_deleted) in enumerate(changes, NOW_MS):
                if await log.last(session_id) == 0:
                    await add(log, session_id, created(ts=time))
                await add(log, session_id, [Pending(time, "r", event) for event in events])
                if is_deleted:
                    await log.delete(session_id)
                await index.found("tea")
        async with indexing(log, rebuilt) as index:
            await index.found("tea")

    with tempfile.TemporaryDirectory() as live, tempfile.TemporaryDirectory() as rebuilt:
        asyncio.run(run(Path(live), Path(rebuilt)))
        assert contents(Path(live)) == contents(Path(rebuilt))
