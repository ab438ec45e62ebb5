"""A log in several databases: which database is which, and what one that is away takes along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.log_events import NOW_MS, pending, steps
from support.postgres import shared_server
from support.postgres_trials import opened, until
from support.tcp_proxy import tcp_proxy

from makai.core import session_events as ev
from makai.core.config import StoreConfig
from makai.core.errors import InvalidRequest, OwnershipLost, SessionElsewhere, StorageUnavailable
from makai.providers.logins import read_config
from makai.sessions.log.base import LogProblem, Pending, SessionFilter
from makai.sessions.log.nodes import process_of
from makai.sessions.log.opening import open_log, store_of
from makai.sessions.log.postgres.membership import NodeSettings
from makai.sessions.log.postgres.sharded import ShardedLog
from makai.sessions.log.shards import shard_of

IN_A, IN_B = "one", "s"


def new(*names: str) -> dict[str, str]:
    return {name: shared_server().new_schema() for name in names}


@asynccontextmanager
async def sharded(
    url: str, shards: Mapping[str, str], name: str = "one", lease_s: float = 60
) -> AsyncIterator[ShardedLog]:
    log = await ShardedLog.open(url, shards, NodeSettings(name=name, lease_s=lease_s))
    try:
        yield log
    finally:
        await log.close()


async def refusal(url: str, shards: Mapping[str, str]) -> str:
    with pytest.raises(InvalidRequest) as refused:
        await ShardedLog.open(url, shards, NodeSettings(name="refused"))
    return refused.value.message


def decided(ts: int, decision: ev.Decision) -> list[Pending]:
    answer = ev.ApprovalDecided(call_id="c", decision=decision, by="me", scope="always", grant="Edit")
    return pending(ev.SessionCreated(model_ref="m", cwd="/project"), answer, ts=ts)


async def test_a_session_is_in_the_shard_of_its_id_and_lists_join_all_of_them() -> None:
    first, shards = shared_server().new_schema(), new("a", "b")
    assert (shard_of(shards, IN_A), shard_of(shards, IN_B)) == ("a", "b")
    async with sharded(first, shards) as log, sharded(first, shards, "two") as other:
        await log.append(IN_A, decided(NOW_MS, "approve"), 0)
        await log.append(IN_B, decided(NOW_MS + 1, "deny_continue"), 0)
        assert [summary.session_id for summary in await other.sessions()] == [IN_B, IN_A]
        assert [summary.session_id for summary in await other.sessions(SessionFilter(limit=1))] == [IN_B]
        assert [(grant.allow, grant.session_id) for grant in await other.grants("/project")] == [(False, IN_B)]
        assert await other.revoke("/project", "Edit")
        assert await log.grants(None) == []
        assert [node.name for node in await log.nodes()] == ["one", "two"]
        assert len({process_of(part.node.node_id) for part in log.parts}) == 1

        for session_id, shard in ((IN_A, "a"), (IN_B, "b")):
            with pytest.raises(SessionElsewhere) as elsewhere:
                await other.claim(session_id)
            part = other.part_of(elsewhere.value.node_id)
            assert part.database.shard == shard
            owner = await part.find_node(elsewhere.value.node_id)
            assert owner is not None
            assert owner.name == "one"
            assert owner == await other.owner(session_id)
            await part.put_relayed(f"request in {shard}", owner.node_id, b"frame", 60)
            mine = log.part_of(owner.node_id)
            assert mine.node == owner
            assert await mine.take_relayed(10) == [(f"request in {shard}", b"frame")]
            await mine.answer_relayed(f"request in {shard}", b"answer")
            assert await part.relayed_answer(f"request in {shard}") == b"answer"


async def test_a_check_finds_sessions_that_are_in_the_database_of_another_shard() -> None:
    first, shards = shared_server().new_schema(), new("a", "b")
    async with sharded(first, shards) as log:
        await log.append(IN_A, decided(NOW_MS, "approve"), 0)
        sound = await log.check()
        assert (sound.sessions, sound.events, sound.problems) == (1, 2, ())
        for part in (part for part in log.parts if part.database.shard != "b"):
            await part.append(IN_B, decided(NOW_MS, "approve"), 0)
        report = await log.check()
    misplaced = LogProblem(IN_B, None, "it is in the database of another shard")
    assert (report.sessions, report.events, report.problems) == (3, 6, (misplaced, misplaced))


async def test_the_address_of_a_shard_can_come_from_a_variable_and_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[store]\nurl = "postgres://db/first"\nshards = { eu-1 = "postgres://db/1", eu-2 = "mysql://db" }\n'
    )
    monkeypatch.setenv("MAKAI_STORE_URL", "postgres://me:sesame@db/first")
    monkeypatch.setenv("MAKAI_STORE_SHARD_EU_1_URL", "postgres://me:sesame@db/1")
    store = store_of(tmp_path, read_config(file))
    assert (store.url, store.shards) == (
        "postgres://me:sesame@db/first",
        {"eu-1": "postgres://me:sesame@db/1", "eu-2": "mysql://db"},
    )
    assert repr(store) == "StoreConfig(url=[secret], eu-1=[secret], eu-2=[secret])"
    with pytest.raises(InvalidRequest, match="The shard 'eu-2' is not a database of PostgreSQL"):
        await open_log(tmp_path, store)
    with pytest.raises(InvalidRequest, match="Sessions in 'sqlite' cannot be divided among shards"):
        await open_log(tmp_path, StoreConfig(shards=store.shards))
    file.write_text('[store.shards]\nEU_1 = "postgres://me:sesame@db/1"\n')
    with pytest.raises(InvalidRequest) as refused:
        read_config(file)
    assert refused.value.message.endswith(
        "line 1: Expected `str` matching regex '^[a-z0-9-]{1,32}$' - at `key` in `$.store.shards`"
    )


async def test_another_map_is_refused_and_the_right_one_still_opens() -> None:
    first, shards = shared_server().new_schema(), new("a", "b")
    async with sharded(first, shards) as log:
        await log.append(IN_B, steps(1), 0)

        a, b = shards["a"], shards["b"]
        spare = shared_server().new_schema()
        assert await refusal(first, {**shards, "c": spare}) == (
            "The first database (`url` in [store]) belongs to a store with the shards a, b, and [store.shards] names "
            "a, b, c. The names of shards cannot be changed."
        )
        assert await refusal(first, {"a": b, "b": a}) == "The database of the shard 'a' is the shard 'b' of its store."
        assert await refusal(first, {"a": a, "b": spare}) == (
            "The address of the shard 'b' names another database than the one that holds its sessions."
        )
        assert await refusal(first, {"a": a, "b": a}) == "Two shards are the same database."
        assert await refusal(spare, shards) == (
            "The database of the shard 'a' belongs to another store than the one that `url` names."
        )
        assert await refusal(a, shards) == "The database of the shard 'a' is only a shard of its store."
        for url, part in ((first, "the first database"), (b, "the shard 'b'")):
            with pytest.raises(InvalidRequest, match=f"The database is {part} of a store with several databases"):
                await opened(url).__aenter__()
    async with sharded(first, shards) as log:
        assert await log.last(IN_B) == 1


async def test_a_database_that_is_used_without_shards_becomes_none() -> None:
    used, shards = shared_server().new_schema(), new("a", "b")
    async with opened(used) as log:
        assert await refusal(used, shards) == (
            "The first database (`url` in [store]) is used by a makai whose configuration has no shards."
        )
        await log.append("one", steps(1), 0)
    assert await refusal(used, shards) == (
        "The first database (`url` in [store]) has sessions of a store with one database."
    )
    assert await refusal(shared_server().new_schema(), {**shards, "b": used}) == (
        "The database of the shard 'b' has sessions of a store with one database."
    )


async def test_of_nodes_that_write_different_maps_at_once_those_of_one_map_win() -> None:
    first, shards = shared_server().new_schema(), new("a", "b")
    maps = [
        shards,
        {"a": shards["a"], "b": shared_server().new_schema()},
        {**shards, "c": shared_server().new_schema()},
    ]
    settings = [NodeSettings(name=f"node {number}", lease_s=60) for number in range(6)]
    logs = await asyncio.gather(
        *(ShardedLog.open(first, maps[number % 3], node) for number, node in enumerate(settings)),
        return_exceptions=True,
    )
    winners = {number % 3 for number, log in enumerate(logs) if isinstance(log, ShardedLog)}
    assert len(winners) == 1
    assert all(isinstance(log, ShardedLog | InvalidRequest) for log in logs)
    await asyncio.gather(*(log.close() for log in logs if isinstance(log, ShardedLog)))


async def test_a_shard_that_is_away_takes_only_its_own_sessions_along() -> None:
    server, first, shards = shared_server(), shared_server().new_schema(), new("a", "b")
    async with tcp_proxy(server.port) as proxy:
        shards["b"] = shards["b"].replace(f":{server.port}", f":{proxy.port}")
        async with sharded(first, shards, lease_s=3) as log:
            lost: list[dict[str, bool]] = []
            log.on_lease_lost(lambda concerns: lost.append({IN_A: concerns(IN_A), IN_B: concerns(IN_B)}))
            await log.append(IN_A, decided(NOW_MS, "approve"), 0)
            await log.append(IN_B, decided(NOW_MS + 1, "approve"), 0)
            assert [grant.session_id for grant in await log.grants(None)] == [IN_B]
            assert await log.revoke("/project", "Edit")
            await log.append(IN_B, decided(NOW_MS + 2, "deny_continue")[1:], 2)
            assert [grant.allow for grant in await log.grants("/project")] == [False]

            proxy.refuses = True
            proxy.cut()

            async def is_lost() -> bool:
                return bool(lost)

            await until(is_lost)
            assert lost == [{IN_A: False, IN_B: True}]
            assert await log.append(IN_A, steps(1), 2) == (3, 3)
            assert [grant.allow for grant in await log.grants("/project")] == [False]
            with pytest.raises(OwnershipLost, match="lost its connection to the shard 'b'"):
                await log.append(IN_B, steps(1), 3)
            with pytest.raises(StorageUnavailable) as away:
                await log.sessions()
            assert away.value.message == "Sessions in the shard 'b' cannot be stored or read."

            async with sharded(first, shards, "late", lease_s=3) as late:
                assert await late.last(IN_A) == 3
                proxy.refuses = False

                async def has_joined() -> bool:
                    return not late.is_read_only and not log.is_read_only

                await until(has_joined)
                assert await late.last(IN_B) == 3
                assert [summary.session_id for summary in await late.sessions()] == [IN_B, IN_A]
