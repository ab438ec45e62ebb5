"""The links between nodes are cut while the store can be reached, and the other way round."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from support.cluster import StallingProxy, cluster, free_port
from support.live_sessions import Desk, desk, whole_log
from support.machine import RecordMeasure
from support.postgres import PostgresServer, private_folder
from support.postgres import database as database

from makai.core import session_events as ev
from makai.server.cluster_sessions import ClusterSessions
from makai.sessions.commands import SetTitle
from makai.sessions.requests import RunCommand

ROUNDS = 10
MAX_LATE_S = 2.0


@pytest.mark.timeout(300)
async def test_followers_read_the_store_and_commands_go_through_it_while_a_link_drops_everything(
    tmp_path: Path, database: str, record_measure: RecordMeasure
) -> None:
    async with cluster(tmp_path, database) as nodes:
        port = free_port()
        first, second = await nodes.start("a", advertise=f"127.0.0.1:{port}"), await nodes.start("b")
        proxy = StallingProxy(nodes.ports["a"])
        await proxy.start(port)
        there = await desk(first)
        here = Desk(second, there.session_id)
        await here.run("Go.")
        proxy.stall()
        late_s = []
        for number in range(ROUNDS):
            title = f"title {number}"
            await first.dispatch(RunCommand(there.session_id, SetTitle(now=0, title=title)))
            stored_at = time.monotonic()
            await here.until(lambda logged, title=title: _title_of(logged) == title)  # type: ignore[misc]
            late_s.append(time.monotonic() - stored_at)
        asked_at = time.monotonic()
        await here.send("Through the store.", client_msg_id="1")
        answered_s = time.monotonic() - asked_at
        proxy.flow()
        await here.until_settled()
        assert here.seen == (await whole_log(first, here.session_id))[: len(here.seen)]
        await proxy.close()
    record_measure("cluster: link cut: latest event at a follower", f"<= {MAX_LATE_S:g} s", f"{max(late_s):.2f} s")
    record_measure("cluster: link cut: a command through the store", "-", f"{answered_s:.2f} s")
    assert max(late_s) <= MAX_LATE_S


def _title_of(logged: ev.Logged) -> str | None:
    return logged.event.title if isinstance(logged.event, ev.TitleChanged) else None


@pytest.mark.timeout(300)
async def test_a_node_is_ready_only_while_the_database_answers(tmp_path: Path, record_measure: RecordMeasure) -> None:
    server = PostgresServer(private_folder(), "fsync=off", "shared_buffers=32MB").start()
    try:
        async with cluster(tmp_path, server.new_database()) as nodes:
            node = await nodes.start("a")
            assert await node.is_ready()
            server.stop()
            assert not await node.is_ready()
            await asyncio.to_thread(server.start)
            back_at = time.monotonic()
            await _until_ready(node)
            record_measure("cluster: ready after the database is back", "-", f"{time.monotonic() - back_at:.2f} s")
            assert await (await desk(node)).run("Go.")
    finally:
        server.remove()


async def _until_ready(node: ClusterSessions) -> None:
    for _ in range(600):
        if await node.is_ready():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the node does not become ready")
