"""Nodes whose sessions are in two databases: any node serves any session. tests/faults/test_cluster_shards.py kills a
node and cuts a database off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.cluster import cluster
from support.live_sessions import Desk, whole_log
from support.postgres import shared_server
from support.shard_trials import NAMES, SLOW, begun, owner_of, session_in

from makai.core import session_events as ev
from makai.sessions.requests import ListNodes, ListSessions, SearchSessions


@pytest.mark.timeout(120)
async def test_sessions_of_both_shards_are_used_at_any_node_and_resumed_by_another(tmp_path: Path) -> None:
    shards = {name: shared_server().new_schema() for name in NAMES}
    async with cluster(tmp_path, shards["a"], SLOW, shards) as nodes:
        first, second = await nodes.start("one"), await nodes.start("two")
        ids = [(await session_in(first, name)).session_id for name in NAMES]
        here = [await begun(Desk(second, session_id)) for session_id in ids]

        assert [await owner_of(second, session_id) for session_id in ids] == ["one", "one"]
        assert {summary.session_id for summary in await second.dispatch(ListSessions())} == set(ids)
        assert [node.name for node in await second.dispatch(ListNodes())] == ["one", "two"]

        await first.close()
        ends = await asyncio.gather(*(client.until_settled() for client in here))
        assert [type(end) for end in ends] == [ev.RunFinished, ev.RunFinished]
        assert [await owner_of(second, session_id) for session_id in ids] == ["two", "two"]
        assert [client.seen for client in here] == [await whole_log(second, session_id) for session_id in ids]
        found = await second.dispatch(SearchSessions(query="fifty", wait_s=30))
        assert {hit.session_id for hit in found.hits} == set(ids)
