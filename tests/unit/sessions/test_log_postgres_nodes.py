"""The log in PostgreSQL: which node owns a session, and to which nodes it goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from support.log_events import pending, steps
from support.postgres import shared_server

from makai.core import session_events as ev
from makai.core.config import StoreConfig
from makai.core.errors import SessionElsewhere, StorageUnavailable
from makai.sessions.log import leases
from makai.sessions.log.base import Pending
from makai.sessions.log.opening import open_log
from makai.sessions.log.postgres.log import PostgresLog
from makai.sessions.log.postgres.membership import NodeSettings


class Cluster:
    """Nodes that share one database."""

    def __init__(self) -> None:
        self.url = shared_server().new_schema()
        self._logs: list[PostgresLog] = []

    async def join(self, name: str, *labels: str) -> PostgresLog:
        log = await PostgresLog.open(self.url, NodeSettings(name=name, labels=labels, lease_s=60))
        self._logs.append(log)
        return log

    async def close(self) -> None:
        for log in self._logs:
            await log.close()

    async def expire(self, log: PostgresLog) -> None:
        """As if a node had stopped long ago, for everyone but itself."""
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            past = "UPDATE node SET expires_at = clock_timestamp() - interval '1 s' WHERE node_id = %s"
            await connection.execute(past.encode(), (log.node.node_id,))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.close()


def started(cwd: str | None = "/project") -> list[Pending]:
    """A session with an active run."""
    return pending(ev.SessionCreated(model_ref="m", cwd=cwd), ev.RunStarted(run_number=1, model_ref="m"))


async def test_a_session_belongs_to_the_node_that_made_it_until_it_is_released(cluster: Cluster) -> None:
    one, two = await cluster.join("one"), await cluster.join("two")
    await one.append("s", pending(ev.SessionCreated(model_ref="m")), 0)
    first = await one.claim("s")

    with pytest.raises(SessionElsewhere) as elsewhere:
        await two.claim("s")
    assert elsewhere.value.node_id == one.node.node_id
    assert await two.owner("s") == one.node
    with pytest.raises(SessionElsewhere):
        await two.delete("s")

    await one.release(["s", "unknown"])
    assert await two.owner("s") is None
    assert (await two.claim("s")).generation > first.generation
    assert await two.claim("s") == await two.claim("s")
    assert await one.owner("s") == two.node
    assert (one.taken_over, two.taken_over) == (0, 0)  # no run was left in it


async def test_a_session_of_a_node_whose_lease_expired_can_be_claimed_at_once(cluster: Cluster) -> None:
    one, two = await cluster.join("one"), await cluster.join("two", "one")
    await one.append("s", started(), 0)
    former = await one.claim("s")
    await cluster.expire(one)

    claim = await two.claim("s")

    assert (claim.generation > former.generation, claim.is_here) == (True, True)
    assert [node.name for node in await two.nodes()] == ["two"]
    assert await two.claim("s") == claim
    assert (one.taken_over, two.taken_over) == (0, 1)


async def test_the_sessions_of_dead_nodes_are_taken_over_once_by_nodes_that_have_their_folders(
    cluster: Cluster,
) -> None:
    dead, near, far = (
        await cluster.join("dead", "shared"),
        await cluster.join("near", "shared"),
        await cluster.join("far"),
    )
    for number in range(6):
        await dead.append(f"run {number}", started(), 0)
    await dead.append("anywhere", started(None), 0)
    await dead.append("idle", pending(ev.SessionCreated(model_ref="m")), 0)
    assert (await far.free_abandoned(), await far.claim_abandoned(10)) == (0, [])
    await cluster.expire(dead)

    assert (await far.free_abandoned(), await near.free_abandoned()) == (8, 0)
    assert await far.claim_abandoned(10) == ["anywhere"]
    taken = [await near.claim_abandoned(4), await near.claim_abandoned(4), await near.claim_abandoned(4)]
    assert sorted(session_id for part in taken for session_id in part) == [f"run {number}" for number in range(6)]
    assert await near.append("run 0", steps(1), 2) == (3, 3)
    await near.claim("run 1")
    assert (near.taken_over, far.taken_over) == (6, 1)


async def test_a_session_whose_folder_no_live_node_has_can_be_claimed_and_says_that_it_is_not_here(
    cluster: Cluster,
) -> None:
    one, two = await cluster.join("one"), await cluster.join("two")
    await one.append("s", started(), 0)
    await cluster.expire(one)
    assert (await two.claim("s")).is_here is False
    assert await two.misplaced() == []

    back = await cluster.join("one")
    assert await two.misplaced() == ["s"]
    await two.release(["s"])
    with pytest.raises(SessionElsewhere) as elsewhere:
        await two.claim("s")
    assert elsewhere.value.node_id == back.node.node_id
    assert (await back.claim("s")).is_here is True


async def test_a_node_that_is_about_to_end_takes_no_more_sessions(cluster: Cluster) -> None:
    one, two = await cluster.join("one", "shared"), await cluster.join("two", "shared")
    await one.append("s", started(), 0)
    await two.append("t", started(), 0)

    await one.drain()

    assert one.node.draining
    assert [node.draining for node in await two.nodes()] == [True, False]
    assert await one.claim("s") == await one.claim("s")
    for wanted in ("t", "new"):
        with pytest.raises(SessionElsewhere) as elsewhere:
            await one.claim(wanted)
        assert elsewhere.value.node_id == two.node.node_id
    await two.release(["t"])
    assert await one.claim_abandoned(10) == []
    await two.drain()
    with pytest.raises(StorageUnavailable, match="about to end"):
        await one.claim("new")


async def test_a_node_that_closes_its_log_leaves_its_sessions_free(cluster: Cluster) -> None:
    one, two = await cluster.join("one", "shared"), await cluster.join("two", "shared")
    await one.append("s", started(), 0)

    await one.close()

    assert await two.nodes() == [two.node]
    assert await two.claim_abandoned(10) == ["s"]


async def test_a_process_takes_the_place_of_a_dead_one_of_its_own_home_only(cluster: Cluster, tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    first, other = [await open_log(home, StoreConfig(url=cluster.url)) for home in homes]
    await first.append("s", started(), 0)
    (homes[0] / leases.FILE_NAME).unlink()  # the lock of a process that was killed

    again = await open_log(homes[0], StoreConfig(url=cluster.url))

    assert isinstance(again, PostgresLog)
    assert {node.node_id for node in await again.nodes()} == {other.lease.holder, again.lease.holder}
    assert await again.claim_abandoned(10) == ["s"]
    for log in (again, other, first):
        await log.close()
