"""Nodes whose sessions are in two databases: any node serves any session, and what is lost with one of them is small."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from support.cluster import Cluster, cluster, serving_nodes
from support.live_sessions import SCENARIO_MODEL, Desk, whole_log
from support.postgres import shared_server
from support.tcp_proxy import tcp_proxy

from makai.core import session_events as ev
from makai.core.errors import StorageUnavailable
from makai.server.cluster_sessions import ClusterSessions
from makai.sessions.log.shards import shard_of
from makai.sessions.requests import CreateSession, GetSession, ListNodes, ListSessions, SearchSessions
from makai.sessions.service import Sessions

NAMES = ("a", "b")
SLOW = "pace: 20ms\nrepeat: 100 word"


def an_id(shard: str) -> str:
    return next(made for _ in range(1000) if shard_of(NAMES, made := str(uuid4())) == shard)


async def session_in(sessions: Sessions, shard: str) -> Desk:
    wanted = CreateSession(session_id=an_id(shard), model_ref=SCENARIO_MODEL)
    return Desk(sessions, await sessions.dispatch(wanted))


async def begun(desk: Desk) -> Desk:
    await desk.send("Count to a hundred.")
    await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
    return desk


async def owner_of(node: ClusterSessions, session_id: str) -> str | None:
    owner = await node.store.owner(session_id)
    return owner.name if owner else None


@pytest.mark.timeout(180)
async def test_the_sessions_of_a_killed_node_are_resumed_in_every_shard(tmp_path: Path, database: str) -> None:
    shards = {"a": database, "b": shared_server().new_database()}
    nodes = Cluster(tmp_path, database, SLOW, shards)
    async with serving_nodes(tmp_path, database, SLOW, "killed", shards=shards) as (killed,):
        try:
            other = await nodes.start("other")
            made = dict[str, str]()
            for _ in range(100):
                session_id = await killed.session(tmp_path, mode="never_ask")
                made.setdefault(shard_of(NAMES, session_id), session_id)
                if made.keys() == set(NAMES):
                    break
            clients = [await begun(Desk(other, session_id)) for session_id in made.values()]
            listed = {summary.session_id for summary in await other.dispatch(ListSessions())}
            assert [await owner_of(other, session_id) for session_id in made.values()] == ["killed", "killed"]
            assert set(made.values()) <= listed
            assert [node.name for node in await other.dispatch(ListNodes())] == ["killed", "other"]

            await killed.kill()
            ends = await asyncio.gather(*(client.until_settled() for client in clients))
            assert [type(end) for end in ends] == [ev.RunFinished, ev.RunFinished]
            assert [await owner_of(other, session_id) for session_id in made.values()] == ["other", "other"]
            for client in clients:
                assert client.seen == await whole_log(other, client.session_id)
            found = await other.dispatch(SearchSessions(query="hundred", wait_s=30))
            assert {hit.session_id for hit in found.sessions} == set(made.values())
        finally:
            await nodes.close()


@pytest.mark.timeout(180)
async def test_a_run_goes_on_while_the_database_of_other_sessions_is_away(tmp_path: Path) -> None:
    server = shared_server()
    first, a, b = server.new_schema(), server.new_schema(), server.new_schema()
    async with tcp_proxy(server.port) as proxy:
        shards = {"a": a, "b": b.replace(f":{server.port}", f":{proxy.port}")}
        async with cluster(tmp_path, first, SLOW, shards) as nodes:
            node = await nodes.start("one")
            stays, goes = await begun(await session_in(node, "a")), await begun(await session_in(node, "b"))
            proxy.refuses = True
            proxy.cut()
            assert isinstance(await stays.until_settled(), ev.RunFinished)
            assert stays.seen == await whole_log(node, stays.session_id)
            with pytest.raises(StorageUnavailable, match="Sessions in the shard 'b' cannot be stored or read"):
                await node.dispatch(ListSessions())
            assert await node.is_ready()
            assert isinstance(await (await session_in(node, "a")).run("Again."), ev.RunFinished)

            proxy.refuses = False
            assert isinstance(await goes.until_settled(), ev.RunFinished)
            assert goes.seen == await whole_log(node, goes.session_id)
            summary = await node.dispatch(GetSession(goes.session_id))
            assert summary is not None
            assert await owner_of(node, goes.session_id) == "one"
