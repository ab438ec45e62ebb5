"""The index in PostgreSQL finds what the one in SQLite finds, and nodes can share it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.indexes import IndexTrial, created, exchange, indexing, tool_call
from support.log_events import NOW_MS
from support.many_sessions import COMMON, Author
from support.postgres import shared_server
from support.stores import PostgresStore

from makai.core import session_events as ev
from makai.core.errors import StorageUnavailable
from makai.sessions.index import extraction, indexer
from makai.sessions.index.base import IndexCursor, IndexPage, SearchScope, SessionIndex
from makai.sessions.index.postgres import PostgresIndex
from makai.sessions.index.search_text import parsed
from makai.sessions.index.sqlite import SqliteIndex
from makai.sessions.log.base import EventLog, Pending, SessionSummary
from makai.sessions.log.postgres.connecting import Database
from makai.sessions.requests import SearchSessions

SESSIONS = 80
SCOPE = SearchScope(limit=1_000, now_ms=NOW_MS + 10**9)
SPECIAL = (
    "Füße",
    "résumé",
    "re\u0301sume\u0301",
    "naïve",
    "ΣΊΣΥΦΟΣ",
    "йод",
    "全文検索は速い",
    "検索エンジン",
    "한국어",
    "สวัสดี",
    "src/log.py",
    "foo_bar",
    "don't",
    "x=1;y=2",
    "🚀launch",
    "a" * 150,
    "a" * 150 + "b",
)
QUERIES = ("fusse", "fuße", "resume", "RÉSUMÉ", "σισυφος", "йод", "иод", "検索", "索検", "全文", "ン", "한국", "สวัสดี")
MORE_QUERIES = (
    "log.py",
    "src/log",
    "foo_bar",
    "bar",
    "don't",
    "dont",
    "y=2",
    "launch",
    "byte",
    "a" * 150,
    "a" * 151,
    "*",
)


def page(number: int, pending: Sequence[Pending], after: IndexCursor | None = None) -> IndexPage:
    before = after or IndexCursor(created_ms=NOW_MS)
    logged = [
        ev.Logged(event_id=event_id, ts=one.ts, run_id=one.run_id, event=one.event)
        for event_id, one in enumerate(pending, before.last + 1)
    ]
    updated_ms = NOW_MS + number * 1_000
    summary = SessionSummary(session_id=f"s-{number}", created_ms=NOW_MS, updated_ms=updated_ms, events=len(logged))
    return extraction.page_of(summary, before, logged)


@pytest.fixture
def database() -> str:
    return shared_server().new_database()


@pytest.fixture
async def index(database: str) -> AsyncIterator[PostgresIndex]:
    opened = PostgresIndex(Database(database))
    yield opened
    await opened.close()


def texts(chance: random.Random, author: Author) -> list[Pending]:
    """A session with words of every script, side by side with plain ones."""
    said = [f"{author.text(3)} {chance.choice(SPECIAL)}, {chance.choice(SPECIAL)} {author.text(3)}" for _ in range(4)]
    return [*author.session(chance.randrange(100), NOW_MS, exchanges=3), *exchange(*said[:2]), *exchange(*said[2:])]


def queries(chance: random.Random, author: Author) -> list[str]:
    words = [*COMMON, *author.words[:3_000], *SPECIAL]
    pairs = [" ".join(chance.choices(words, k=2)) for _ in range(60)]
    phrases = [f'"{" ".join(chance.choices(COMMON, k=2))}"' for _ in range(60)]
    beginnings = [chance.choice(words)[: chance.randint(1, 4)] for _ in range(60)]
    typed = [*QUERIES, *MORE_QUERIES, *SPECIAL, *COMMON[:20], *pairs, *phrases, *beginnings]
    return [query for query in typed if parsed(query).terms]


async def test_every_query_finds_what_it_finds_in_sqlite(index: PostgresIndex) -> None:
    chance, author = random.Random(5), Author(5)
    pages = [page(number, texts(chance, author)) for number in reversed(range(SESSIONS))]
    reference: SessionIndex = SqliteIndex(None)
    for one in (index, reference):
        await one.add(pages, is_backlog=True)
    found = 0
    for query in queries(chance, author):
        here, there = [await one.find(parsed(query), SCOPE) for one in (index, reference)]
        assert (query, here) == (query, there)
        found += bool(here)
    await reference.close()
    assert found > 100


async def test_a_page_that_two_nodes_feed_is_stored_once(index: PostgresIndex, database: str) -> None:
    other = PostgresIndex(Database(database))
    first = page(1, [*created("Tea"), *exchange("green", "x")])
    second = page(1, exchange("black\0tea", "x"), first.cursor)
    await index.add([first], is_backlog=False)
    await other.add([first], is_backlog=True)
    await other.add([second], is_backlog=False)
    await index.add([second], is_backlog=False)
    await index.add([page(2, exchange("later", "x"), first.cursor)], is_backlog=False)
    assert await index.cursors(["s-1", "s-2", "s-3"]) == {"s-1": second.cursor} == await other.cursors()
    (row,) = await other.usage(0, 0, None)
    assert (row.runs, row.input) == (2, 20)
    assert [hit.session_id for hit in await index.find(parsed("black"), SCOPE)] == ["s-1"]
    await other.close()


async def test_words_of_a_deleted_session_leave_the_tables_and_the_index(index: PostgresIndex, database: str) -> None:
    name = database.rpartition("/")[2]
    words = "SELECT position('xylophonist'::bytea IN pg_read_binary_file(pg_relation_filepath('index_entry_words')))"
    rows = "SELECT (SELECT count(*) FROM index_text) + (SELECT count(*) FROM index_entry WHERE words @@ 'xylophonist')"

    async def stored() -> tuple[bool, int]:
        shared_server().sql("CHECKPOINT")
        return shared_server().sql(words, name) != "0", int(shared_server().sql(rows, name))

    await index.add([page(1, tool_call("xylophonist", "x"))], is_backlog=False)
    await index.erase()
    shared_server().sql("VACUUM index_entry", name)  # it moves new words from the list of pending ones
    assert await stored() == (True, 3)
    await index.forget(["s-1", "unknown"])
    await index.erase()
    assert await stored() == (False, 0)


async def test_an_index_of_an_older_makai_is_built_again_and_that_of_a_newer_one_is_kept(
    index: PostgresIndex, database: str, tmp_path: Path
) -> None:
    await index.cursors()
    name = database.rpartition("/")[2]
    store = PostgresStore(tmp_path)
    store.url = database
    log = await store.open()
    await log.append("one", [*created(), *exchange("tea", "x")], 0)
    shared_server().sql("UPDATE index_format SET version = 0; DROP TABLE index_text", name)
    async with indexing(log, tmp_path) as trial:
        assert await trial.found("tea") == ["one"]
    shared_server().sql("UPDATE index_format SET version = 99", name)
    newer = PostgresIndex(Database(database))
    with pytest.raises(StorageUnavailable, match="newer makai"):
        await newer.find(parsed("tea"), SCOPE)
    await newer.close()
    await log.close()


async def test_a_database_that_is_away_is_told_without_its_password() -> None:
    index = PostgresIndex(Database("postgres://makai:hidden@127.0.0.1:1/makai"))
    with pytest.raises(StorageUnavailable) as raised:
        await index.find(parsed("tea"), SCOPE)
    await index.close()
    assert "hidden" not in f"{raised.value} {raised.value.hint}"


async def asked(trial: IndexTrial, query: str, wait_s: float) -> tuple[list[str], bool]:
    answer = await trial.indexer.search(SearchSessions(query=query, wait_s=wait_s))
    return [hit.session_id for hit in answer.hits], answer.complete


async def test_a_node_finds_what_another_one_indexed_and_catches_up_for_one_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "COMPARE_EVERY_S", 0.05)
    monkeypatch.setattr(indexer, "COMPARE_SHARE", 1)
    store = PostgresStore(tmp_path)
    here, there = await store.open("here"), await store.open("there")

    async def write(log: EventLog, session_id: str, text: str) -> None:
        generation = (await log.claim(session_id)).generation
        last = await log.last(session_id)
        new = [] if last else created()
        await log.append(session_id, [*new, *exchange(text, "x")], last, generation)

    async with indexing(here, tmp_path) as trial:
        async with indexing(there, tmp_path) as other:
            await write(there, "theirs", "green tea")
            await write(here, "mine", "black tea")
            assert set(await trial.found("tea")) == {"mine", "theirs"} == set(await other.found("tea"))
        third = PostgresIndex(here.database)
        async with asyncio.timeout(30):
            while await third.begin_compare(60) is None:  # noqa: ASYNC110 while it compares, the others do not
                await asyncio.sleep(0.01)
        await write(there, "theirs", "coffee")  # nothing indexes on that node any more
        assert await asked(trial, "coffee", 0.0) == ([], False)
        await third.end_compare(None)
        await third.close()
        assert await asked(trial, "coffee", 30.0) == (["theirs"], True)
        # The session moves to the first node, which continues where the other one stopped.
        await there.close()
        await write(here, "theirs", "milk")
        assert await trial.found("milk") == ["theirs"] == await trial.found("green")
        rows = (await trial.usage()).rows
    await here.close()
    assert sum(row.runs for row in rows) == 4
