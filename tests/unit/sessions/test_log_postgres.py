"""The log in PostgreSQL: what is stored once however its connection ends, and who may append."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from support.log_events import NOW_MS, pending, steps, words
from support.postgres import shared_server
from support.postgres_trials import contended, opened, until
from support.tcp_proxy import tcp_proxy

from makai.core import session_events as ev
from makai.core.config import StoreConfig
from makai.core.errors import InvalidRequest, LogDamaged, OwnershipLost, SessionElsewhere, StorageUnavailable
from makai.sessions.log.base import LogProblem, Pending, StoredToken
from makai.sessions.log.opening import open_log
from makai.sessions.log.postgres import schema
from makai.sessions.log.postgres.connecting import Database
from makai.sessions.log.postgres.log import PostgresLog
from makai.sessions.log.postgres.membership import NodeSettings
from makai.sessions.log.sqlite import SqliteLog

WAIT_S = 90.0
LOST = "the answer to this is lost"


@pytest.fixture
def url() -> str:
    return shared_server().new_schema()


async def test_two_nodes_that_append_at_once_never_get_the_same_number(url: str) -> None:
    await contended(url, 100)


async def test_an_answer_that_is_lost_is_looked_up_and_the_events_are_stored_once(url: str) -> None:
    server = shared_server()
    async with tcp_proxy(server.port) as proxy, opened(url.replace(f":{server.port}", f":{proxy.port}")) as log:
        for expected_last in (0, 1):
            proxy.lose_answer_to(LOST.encode())
            assert await log.append("new", steps(1, LOST), expected_last) == (expected_last + 1, expected_last + 1)

        assert proxy.lost_answers == 2
        assert await log.append("new", steps(1), 2) == (3, 3)
        assert [record.event_id for record in await log.read_raw("new")] == [1, 2, 3]
        assert (await log.check()).problems == ()


async def test_an_append_whose_answer_was_lost_is_a_success_also_after_another_node_took_over(url: str) -> None:
    server = shared_server()
    async with (
        tcp_proxy(server.port) as proxy,
        opened(url, "other") as other,
        opened(url.replace(f":{server.port}", f":{proxy.port}"), lease_s=3) as log,
    ):
        await log.append("one", steps(1), 0)
        proxy.lose_answer_to(LOST.encode())
        proxy.refuses = True  # new connections only
        append = asyncio.create_task(log.append("one", steps(1, LOST), 1))

        async def is_lost() -> bool:
            return proxy.lost_answers == 1

        async def is_taken_over() -> bool:
            with suppress(SessionElsewhere):
                await other.claim("one")
                return True
            return False

        await until(is_lost)
        proxy.cut()  # the connection that renews the lease, too
        await until(is_taken_over)
        assert await other.append("one", steps(1), 2) == (3, 3)
        proxy.refuses = False

        async with asyncio.timeout(WAIT_S):
            assert await append == (2, 2)


async def test_an_append_whose_caller_is_cancelled_is_stored_and_its_connection_stays(url: str) -> None:
    async with opened(url) as log, await psycopg.AsyncConnection.connect(url) as other:
        await log.append("one", steps(1), 0)
        await other.execute("SELECT FROM session FOR UPDATE")
        append = asyncio.create_task(log.append("one", steps(1), 1))

        async def waits() -> bool:
            found = await other.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            return await found.fetchone() == (1,)

        await until(waits)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        await other.rollback()

        assert await log.append("one", steps(1), 2) == (3, 3)


async def test_an_append_under_a_claim_that_another_node_took_over_stores_nothing(url: str) -> None:
    async with opened(url) as one, opened(url, "two") as two:
        await one.append("one", steps(2), 0)
        await one.append("free", steps(2), 0)
        former = (await one.claim("one")).generation
        await one.release(["one"])
        newer = (await two.claim("one")).generation
        assert newer > former
        assert await two.append("one", steps(1), 2, newer) == (3, 3)

        for expected_last in (2, 3):
            with pytest.raises(OwnershipLost):
                await one.append("one", steps(1), expected_last, former)
        assert await one.append("free", steps(1), 2) == (3, 3)
        assert (await one.last("one"), await two.last("one")) == (3, 3)


async def test_a_session_that_is_deleted_and_made_again_has_a_generation_that_no_former_one_had(url: str) -> None:
    async with opened(url) as log:
        await log.append("one", steps(1), 0)
        former = (await log.claim("one")).generation
        await log.delete("one")
        await log.append("one", steps(1), 0)

        assert (await log.claim("one")).generation > former
        with pytest.raises(OwnershipLost):
            await log.append("one", steps(1), 1, former)


PAUSED = """
import asyncio, sys
from makai.core.errors import MakaiError
from makai.core.session_events import ToolProgress
from makai.sessions.log.base import Pending
from makai.sessions.log.postgres.log import PostgresLog
from makai.sessions.log.postgres.membership import NodeSettings

async def main():
    log = await PostgresLog.open(sys.argv[1], NodeSettings(name="paused", lease_s=3))
    generation = (await log.claim("one")).generation
    event = [Pending(1, None, ToolProgress(call_id="c", text="t"))]
    await log.append("one", event, 0, generation)
    print("ready", flush=True)
    sys.stdin.readline()  # blocks the event loop: this process does nothing until it is woken
    for session_id, last in (("one", 1), ("one", 2), ("new", 0)):
        try:
            print(await log.append(session_id, event, last, generation), flush=True)
        except MakaiError as error:
            print(type(error).__name__, flush=True)
    print(len(await log.read_raw("one")), flush=True)

asyncio.run(main())
"""


async def test_a_paused_node_that_wakes_up_after_its_lease_writes_nothing(url: str) -> None:
    async with opened(url, "other") as log:

        async def is_free() -> bool:
            return await log.owner("one") is None

        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PAUSED, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            async with asyncio.timeout(WAIT_S):
                assert await child.stdout.readline() == b"ready\n"
                child.send_signal(signal.SIGSTOP)
                await until(is_free)
                assert await log.append("one", steps(1), 1) == (2, 2)
                child.send_signal(signal.SIGCONT)
                child.stdin.write(b"\n")
                said = (await child.stdout.read()).split(b"\n")
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()

        assert said == [b"OwnershipLost", b"OwnershipLost", b"OwnershipLost", b"2", b""]
        assert (await log.last("one"), await log.last("new")) == (2, 0)


async def test_a_node_that_cannot_reach_the_database_loses_its_lease_at_once_and_joins_again(url: str) -> None:
    server, lost = shared_server(), asyncio.Event()
    async with (
        tcp_proxy(server.port) as proxy,
        opened(url, "other") as other,
        opened(url.replace(f":{server.port}", f":{proxy.port}"), lease_s=3) as log,
    ):
        log.on_lease_lost(lambda concerns: lost.set())
        await log.append("one", steps(1), 0)
        former, generation = log.node, (await log.claim("one")).generation
        assert not log.is_read_only

        proxy.refuses = True
        proxy.cut()
        async with asyncio.timeout(WAIT_S):
            await lost.wait()
        assert log.is_read_only
        for refused in (log.append("one", steps(1), 1, generation), log.claim("one"), log.trust("/", True)):
            with pytest.raises(OwnershipLost, match="lost its connection to the database"):
                await refused
        with pytest.raises(StorageUnavailable, match="Make sure that the database runs"):
            await log.read("one")
        assert await other.append("one", steps(1), 1) == (2, 2)

        proxy.refuses = False

        async def joined() -> bool:
            return log.node.node_id != former.node_id and not log.is_read_only

        await until(joined)
        with pytest.raises(OwnershipLost):
            await log.append("one", steps(1), 2, generation)
        assert await log.last("one") == 2
        assert {node.name for node in await other.nodes()} == {"one", "other"}
        assert await log.append("mine", steps(1), 0) == (1, 1)


async def test_nodes_that_start_at_once_make_the_tables_once(url: str) -> None:
    logs = await asyncio.gather(*(PostgresLog.open(url, NodeSettings(name=f"node {each}")) for each in range(4)))

    assert sorted(log.lease.generation for log in logs) == [1, 2, 3, 4]
    assert [node.name for node in await logs[0].nodes()] == [f"node {each}" for each in range(4)]
    for log in logs:
        await log.close()


async def test_tables_of_a_newer_makai_are_refused(url: str) -> None:
    async with opened(url):
        pass
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("UPDATE format SET version = version + 1")

    with pytest.raises(StorageUnavailable, match="written by a newer makai") as refused:
        await PostgresLog.open(url, NodeSettings(name="one"))
    assert str(len(schema.MIGRATIONS) + 1) in refused.value.message


@pytest.mark.parametrize(
    "url",
    [
        "postgres://makai:pass%20word@127.0.0.1:1/makai",
        "postgres://makai:pass%20word@127.0.0.1:port/makai",
        "postgresql://makai@127.0.0.1:1/makai?password=pass%20word",
    ],
    ids=["refused connection", "no address", "password as a parameter"],
)
async def test_no_error_about_a_database_shows_its_password(tmp_path: Path, url: str) -> None:
    config = StoreConfig(url=url)
    with pytest.raises((StorageUnavailable, InvalidRequest)) as refused:
        await open_log(tmp_path, config)

    for shown in (str(refused.value), repr(refused.value), repr(config)):
        assert "word" not in shown
    log = await SqliteLog.open(tmp_path)  # the lock of the folder was released
    await log.close()


def test_the_address_of_a_database_sets_what_it_does_not_say() -> None:
    database = Database("postgres://makai:secret@one,two/makai?connect_timeout=9")

    settings = database.settings
    assert (settings["host"], settings["connect_timeout"], settings["target_session_attrs"]) == (
        "one,two",
        "9",
        "read-write",
    )
    assert "secret" not in repr(database)


MIXED: list[list[Pending]] = [
    pending(ev.SessionCreated(model_ref="m", cwd="/ä", title="Ünï 😀")),
    [*words("a", "b"), *steps(2, 'a "quoted" \\ \u2028 line')],
    pending(ev.ApprovalRequested(call_id="c", name="shell", arguments_json="{}", digest="d"), ts=NOW_MS - 5),
    pending(ev.ApprovalDecided(call_id="c", decision="approve", by="me", scope="always", grant="Edit")),
    pending(ev.TitleChanged(title="Other"), ev.SessionArchived(archived=True), ts=NOW_MS + 7),
]


async def test_the_bytes_are_those_that_sqlite_stores(url: str, tmp_path: Path) -> None:
    async with opened(url) as log:
        other = await SqliteLog.open(tmp_path)
        for events in MIXED:
            last = await other.last("one")
            assert await log.append("one", events, last) == await other.append("one", events, last)
        async with opened(url, "fresh") as fresh:
            assert await fresh.read_raw("one") == await other.read_raw("one")
            assert await fresh.read_raw("one", deltas=False) == await other.read_raw("one", deltas=False)
            assert await fresh.sessions() == await other.sessions()
            assert await fresh.grants(None) == await other.grants(None)
        await other.close()


async def test_damage_is_found_and_never_passed_on(url: str) -> None:
    token = StoredToken(token_id="t", name="n", scope="admin", digest="d", created_ms=1, expires_ms=2)
    async with opened(url) as log, await psycopg.AsyncConnection.connect(url, autocommit=True) as database:
        for session_id in ("changed", "lost", "row", "sound"):
            await log.append(session_id, steps(3), 0)
        await log.put_token(token)
        assert await log.check() == await log.check()
        key = "(SELECT session_key FROM session WHERE session_id = '{}')"
        for statement in (
            f"UPDATE event SET line = '{{}}' WHERE session_key = {key.format('changed')} AND event_id = 2",
            f"DELETE FROM event WHERE session_key = {key.format('lost')} AND event_id = 2",
            "UPDATE session SET updated_ms = 5 WHERE session_id = 'row'",
            "UPDATE token SET token_id = 'u'",
        ):
            assert (await database.execute(statement.encode())).rowcount == 1

        async with opened(url, "fresh") as fresh:
            for session_id in ("changed", "lost"):
                with pytest.raises(LogDamaged) as damaged:
                    await fresh.read(session_id)
                assert (damaged.value.session_id, damaged.value.event_id) == (session_id, 2)
            assert [one.session_id for one in await fresh.sessions() if one.damaged] == ["row"]
            assert await fresh.tokens() == []
            report = await fresh.check()
        assert (report.sessions, report.events) == (4, 12)
        assert report.problems == (
            LogProblem("", None, "1 tokens are damaged"),
            LogProblem("changed", 2, "damaged or missing"),
            LogProblem("lost", 2, "damaged or missing"),
            LogProblem("row", None, "its entry in the list of sessions is damaged"),
        )


async def test_the_events_of_a_deleted_session_are_removed(url: str) -> None:
    async with opened(url) as log, await psycopg.AsyncConnection.connect(url, autocommit=True) as database:
        for _ in range(2):
            await log.append("one", steps(5000), 0)
            await log.delete("one")

        async def is_empty() -> bool:
            found = await database.execute("SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM deleted)")
            return await found.fetchone() == (0,)

        await until(is_empty)
