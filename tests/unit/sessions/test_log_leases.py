"""Every log: only the newest owner of a store appends to it, and readers are woken by what changes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.live_sessions import new_session
from support.log_events import steps
from support.stores import SqliteStore, Store
from support.troubled_log import TroubledLog

from makai.core.config import StoreConfig
from makai.core.errors import InvalidRequest, OwnershipLost
from makai.core.session_events import AssistantTextDelta, RunFinished
from makai.sessions.log import store as log_store
from makai.sessions.log.base import EventLog
from makai.sessions.log.opening import open_log
from makai.sessions.requests import GetState


@asynccontextmanager
async def two_owners(store: Store) -> AsyncIterator[tuple[EventLog, EventLog]]:
    """One that still believes that it owns the store, and its successor."""
    former = await store.open()
    await former.append("one", steps(2), 0)
    newest = await store.open()
    yield former, newest
    await newest.close()
    await former.close()


async def test_each_owner_has_a_higher_generation_and_another_name(store: Store) -> None:
    owners = []
    for _ in range(3):
        log = await store.open()
        owners.append(log.lease)
        await log.close()

    assert [lease.generation for lease in owners] == [1, 2, 3]
    assert len({lease.holder for lease in owners}) == 3


async def test_an_append_of_another_generation_is_refused(log: EventLog) -> None:
    generation = log.lease.generation
    assert await log.append("one", steps(1), 0, generation) == (1, 1)
    for other in (generation - 1, generation + 1):
        with pytest.raises(OwnershipLost):
            await log.append("one", steps(1), 1, other)
    assert await log.last("one") == 1


@pytest.mark.proof("D8")
async def test_a_former_owner_appends_nothing_after_its_successor_started(store: Store) -> None:
    async with two_owners(store) as (former, newest):
        assert await newest.append("one", steps(1), 2) == (3, 3)

        for expected_last in (2, 3):
            with pytest.raises(OwnershipLost) as refused:
                await former.append("one", steps(1), expected_last)
        assert refused.value.hint == "Nothing was stored. Start this command again to continue with the other process."
        with pytest.raises(OwnershipLost):
            await former.append("two", steps(1), 0)

        assert [record.event_id for record in await newest.read_raw("one")] == [1, 2, 3]
        assert await newest.last("two") == 0
        assert await newest.append("one", steps(1), 3) == (4, 4)


async def test_a_former_owner_creates_no_session_after_its_successor_chose_the_place_of_its_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, loop, next_key = SqliteStore(tmp_path), asyncio.get_running_loop(), log_store.next_key
    former = await store.open()

    def next_key_before_an_append(connection: sqlite3.Connection) -> int:
        found = next_key(connection)
        appended = asyncio.run_coroutine_threadsafe(former.append("one", steps(1), 0), loop)
        assert isinstance(appended.exception(30), OwnershipLost)
        return found

    monkeypatch.setattr(log_store, "next_key", next_key_before_an_append)
    newest = await store.open()

    assert await newest.append("two", steps(1), 0) == (1, 1)
    await asyncio.gather(newest.close(), former.close())


async def test_a_former_owner_reads_what_its_successor_wrote(store: Store) -> None:
    async with two_owners(store) as (former, newest):
        await newest.append("one", steps(3), 2)
        with pytest.raises(OwnershipLost):
            await former.append("one", steps(1), 2)

        assert await former.last("one") == 5
        assert await former.read_raw("one") == await newest.read_raw("one")


CHANGES: dict[str, Callable[[EventLog], Awaitable[object]]] = {
    "delete": lambda log: log.delete("one"),
    "revoke": lambda log: log.revoke("/project", "Bash(ls:*)"),
    "trust": lambda log: log.trust("/project", True),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_former_owner_changes_nothing_beside_the_events(store: Store, change: str) -> None:
    async with two_owners(store) as (former, newest):
        with pytest.raises(OwnershipLost):
            await CHANGES[change](former)

        assert (await newest.last("one"), await newest.is_trusted("/project")) == (2, False)


async def test_a_watcher_is_woken_after_each_change_of_its_session(log: EventLog) -> None:
    news = asyncio.Event()
    woken: list[int] = []
    unwatch = log.watch("one", news.set)
    await log.append("two", steps(1), 0)
    for last in range(3):
        news.clear()
        await log.append("one", steps(1), last)
        async with asyncio.timeout(10):
            await news.wait()
        woken.append(await log.last("one"))
    news.clear()
    await log.delete("one")
    async with asyncio.timeout(10):
        await news.wait()

    assert woken == [1, 2, 3]
    unwatch()
    unwatch()
    news.clear()
    await log.append("one", steps(1), 0)
    await log.append("two", steps(1), 1)  # whatever the former append woke has run
    assert not news.is_set()


async def test_a_watcher_is_woken_when_the_log_is_closed(store: Store) -> None:
    log, news = await store.open(), asyncio.Event()
    log.watch("one", news.set)

    await log.close()

    assert news.is_set()


# With several nodes the other one is asked, and this one does not read for it: the tests of the cluster show it.
@pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
async def test_a_session_that_another_process_took_over_says_so_and_is_read_again(store: Store, tmp_path: Path) -> None:
    log = await store.open()
    async with new_session(tmp_path, "say: One.\n---\nsay: Two.", log) as (sessions, client):
        await client.run("Hi")
        newest = await store.open()
        last = await newest.last(client.session_id)
        await newest.append(client.session_id, steps(2), last)

        for _ in range(2):  # not by an error about an event number, however often it is tried
            with pytest.raises(OwnershipLost, match="Another process has taken over these sessions"):
                await client.send("Again")

        assert (await sessions.dispatch(GetState(client.session_id))).last_event_id == last + 2
        await newest.close()


async def test_a_session_whose_log_is_ahead_is_read_again_and_continues(tmp_path: Path) -> None:
    log = TroubledLog()
    async with new_session(tmp_path, "say: One.\n---\nsay: Two.", log) as (_, client):
        await client.run("Hi")
        await log.append(client.session_id, steps(1), await log.last(client.session_id))

        with pytest.raises(OwnershipLost, match="Another process changed this session; nothing was stored") as refused:
            await client.send("Again")
        assert refused.value.hint == "It was read again. Look at its newest events, then try again."

        assert isinstance(await client.run("Again"), RunFinished)
        assert [logged.event_id for logged in client.seen] == [*range(1, await log.last(client.session_id) + 1)]


async def test_a_run_that_lost_its_log_is_stopped_and_resumed_from_the_log(tmp_path: Path) -> None:
    log = TroubledLog()
    async with new_session(tmp_path, "pace: 2ms\nrepeat: 1000 word\n---\nsay: Done.", log) as (_, client):
        await client.send("Hi")
        await client.until(lambda logged: isinstance(logged.event, AssistantTextDelta))
        await log.append(client.session_id, steps(1), await log.last(client.session_id))

        assert isinstance(await client.until_settled(), RunFinished)
        assert "run_resumed" in client.kinds()
        assert [logged.event_id for logged in client.seen] == [*range(1, await log.last(client.session_id) + 1)]


@pytest.mark.sqlite_file("a configuration without a store means the file")
async def test_the_log_of_a_home_is_the_one_its_configuration_names(tmp_path: Path) -> None:
    for text in ("", '[store]\nurl = "sqlite"\n'):
        (tmp_path / "config.toml").write_text(text)
        log = await open_log(tmp_path)
        await log.close()
    assert (tmp_path / "sessions.db").exists()


@pytest.mark.parametrize("url", ["mysql://localhost/makai", "sqlite:other.db", ""])
async def test_a_store_that_is_not_supported_is_refused_with_what_is(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidRequest, match="this version supports sqlite and postgres") as refused:
        await open_log(tmp_path, StoreConfig(url=url))
    assert refused.value.hint == (
        'Write url = "sqlite" or url = "postgres://…" in [store] of config.toml, or leave it out.'
    )
    assert not (tmp_path / "sessions.db").exists()
