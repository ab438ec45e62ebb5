"""Nodes whose sessions are in two databases: a node is killed, and one of the databases is away for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.cluster import Cluster, StallingProxy, cluster, free_port, serving_nodes
from support.live_sessions import Desk, whole_log
from support.postgres import shared_server
from support.shard_trials import NAMES, SLOW, begun, owner_of, session_in
from support.tcp_proxy import tcp_proxy

from makai.core import session_events as ev
from makai.core.errors import StorageUnavailable
from makai.sessions.log.postgres.connecting import ANSWER_S
from makai.sessions.log.shards import shard_of
from makai.sessions.requests import ListSessions

MAX_SESSIONS = 100


@pytest.mark.timeout(300)
async def test_the_sessions_of_a_killed_node_are_resumed_in_every_shard(tmp_path: Path) -> None:
    shards = {name: shared_server().new_schema() for name in NAMES}
    nodes = Cluster(tmp_path, shards["a"], SLOW, shards)
    async with serving_nodes(tmp_path, shards["a"], SLOW, "killed", shards=shards) as (killed,):
        try:
            other = await nodes.start("other")
            made = dict[str, str]()
            for _ in range(MAX_SESSIONS):
                session_id = await killed.session(tmp_path, mode="never_ask")
                made.setdefault(shard_of(NAMES, session_id), session_id)
                if made.keys() == set(NAMES):
                    break
            clients = [await begun(Desk(other, made[name])) for name in NAMES]
            assert [await owner_of(other, made[name]) for name in NAMES] == ["killed", "killed"]

            await killed.kill()
            ends = await asyncio.gather(*(client.until_settled() for client in clients))
            assert [type(end) for end in ends] == [ev.RunFinished, ev.RunFinished]
            assert [await owner_of(other, made[name]) for name in NAMES] == ["other", "other"]
            assert [client.seen for client in clients] == [await whole_log(other, made[name]) for name in NAMES]
        finally:
            await nodes.close()


@pytest.mark.timeout(300)
async def test_a_run_continues_while_the_database_of_other_sessions_is_away(tmp_path: Path) -> None:
    server, lost = shared_server(), asyncio.Event()
    first, a, b = server.new_schema(), server.new_schema(), server.new_schema()
    async with tcp_proxy(server.port) as proxy:
        shards = {"a": a, "b": b.replace(f":{server.port}", f":{proxy.port}")}
        async with cluster(tmp_path, first, SLOW, shards) as nodes:
            node = await nodes.start("one")
            node.store.on_lease_lost(lambda concerns: lost.set())
            stays, goes = await begun(await session_in(node, "a")), await begun(await session_in(node, "b"))
            proxy.refuses = True
            proxy.cut()
            assert isinstance(await stays.until_settled(), ev.RunFinished)
            assert stays.seen == await whole_log(node, stays.session_id)
            with pytest.raises(StorageUnavailable, match="Sessions in the shard 'b' cannot be stored or read"):
                await node.dispatch(ListSessions())
            await lost.wait()
            assert await node.is_ready()
            assert isinstance(await (await session_in(node, "a")).run("Again."), ev.RunFinished)

            proxy.refuses = False
            assert isinstance(await goes.until_settled(), ev.RunFinished)
            assert goes.seen == await whole_log(node, goes.session_id)
            assert await owner_of(node, goes.session_id) == "one"


@pytest.mark.timeout(300)
async def test_a_database_that_does_not_answer_delays_no_takeover_in_the_others(tmp_path: Path) -> None:
    server, port = shared_server(), free_port()
    shards = {name: server.new_schema() for name in NAMES}
    behind_proxy = {**shards, "b": shards["b"].replace(f":{server.port}", f":{port}")}
    proxy = StallingProxy(server.port)
    await proxy.start(port)
    for name in ("direct", "proxied"):
        (tmp_path / name).mkdir()
    async with (
        cluster(tmp_path / "direct", shards["a"], SLOW, shards) as direct,
        cluster(tmp_path / "proxied", shards["a"], SLOW, behind_proxy) as proxied,
    ):
        first, second = await direct.start("one"), await proxied.start("two")
        client = Desk(second, (await begun(await session_in(first, "a"))).session_id)
        proxy.stall()
        await first.close()
        async with asyncio.timeout(ANSWER_S - 2):  # so long the stalled database is waited for
            assert isinstance(await client.until_settled(), ev.RunFinished)
        assert await owner_of(second, client.session_id) == "two"
        assert client.seen == await whole_log(second, client.session_id)
        proxy.flow()
    await proxy.close()
