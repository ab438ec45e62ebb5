"""Nodes on hosts of their own, whose network is cut, and nodes that are stopped for longer than their lease."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.hosted_nodes import HostedNode, hosted_node
from support.live_sessions import Desk, desk, whole_log
from support.machine import RecordMeasure, slack
from support.namespaces import Network, network
from support.postgres import PostgresServer, private_folder
from support.postgres_writer import Comparison, Writer, compare, writer

from makai.core import session_events as ev
from makai.server.cluster_relay import RelayedSessions

LEASE_S: Final = 3.0
WAIT_S: Final = 30.0
SHARED: Final = tuple(f"shared-{number}" for number in range(4))
ROUNDS: Final = 3
ROUNDING_S: Final = 0.5
"""How late a process on a quiet machine may be to notice that a moment has passed."""


class Hosts(NamedTuple):
    """A database and two nodes, each on its own host."""

    network: Network
    server: PostgresServer

    def url(self, seen_from: str) -> str:
        return f"postgres://makai@{self.network.address('database', seen_from)}:{self.server.port}/postgres"

    @contextmanager
    def node(self, name: str) -> Iterator[Writer]:
        """A node that writes to the shared sessions whenever it may, and to one of its own."""
        with self.network.inside(name):
            started = writer(self.url(name), name, LEASE_S, (*SHARED, f"own-{name}"))
            working = started.__enter__()
        try:
            yield working
        finally:
            started.__exit__(None, None, None)

    def compare(self, *writers: Writer) -> Comparison:
        with self.network.inside("database"):
            url = f"postgres://makai@127.0.0.1:{self.server.port}/postgres"
            return asyncio.run(compare(url, (*SHARED, "own-one", "own-two"), writers))


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with network("database", "one", "two") as made:
        folder = private_folder()
        server = PostgresServer(folder, "listen_addresses=*")
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.77.0.0/16 trust\n")
        try:
            with made.inside("database"):
                server.start()
            yield Hosts(made, server)
        finally:
            server.remove()


def taken_over(node: Writer, after: float) -> float:
    """When a node had written to every shared session."""
    return max(node.wait_for_stored(session_id, after).at for session_id in SHARED)


def first_refusal(node: Writer, session_id: str, after: float) -> str:
    """The first error about a session after a moment. (An append that was stored before the process was stopped may be
    acknowledged before it.)"""
    told = node.wait_until(
        lambda told: told.session_id == session_id and told.what == "refused" and told.at > after,
        f"a refusal to write to {session_id}",
    )
    return told.error


def test_a_node_without_its_database_stops_acknowledging_and_comes_back_clean(
    hosts: Hosts, record_measure: RecordMeasure
) -> None:
    with hosts.node("one") as one:
        taken_over(one, 0.0)
        with hosts.node("two") as two:
            two.wait_for_stored("own-two", 0.0)
            hosts.network.cut("one", "database")
            cut = time.monotonic()
            taken = taken_over(two, cut)
            lost = one.wait_until(lambda told: told.what == "lease_lost" and told.at > cut, "the end of its lease")
            hosts.network.join("one", "database")
            joined = time.monotonic()
            back = one.wait_for_stored("own-one", joined)
            refused = one.wait_until(
                lambda told: told.error == "SessionElsewhere" and told.at > back.at, "that the other node owns it"
            )
            checked = time.monotonic()
    compared = hosts.compare(one, two)

    acknowledged = [told.at - cut for told in one.told_of("stored", after=cut, before=joined)]
    record_measure(
        f"partition from the database, lease {LEASE_S:.0f} s: last acknowledgement, lease known to be lost after",
        f"<= {LEASE_S:.0f} s",
        f"{max([0.0, *acknowledged]):.2f}, {lost.at - cut:.2f} s",
    )
    record_measure(
        "partition: sessions taken over, and the node back after", "-", f"{taken - cut:.1f}, {back.at - joined:.1f} s"
    )
    record_measure(
        "partition: lost, repeated, gaps", "0, 0, 0", f"{compared.lost}, {compared.repeated}, {compared.gaps}"
    )
    assert max([0.0, *acknowledged]) <= LEASE_S
    assert lost.at - cut <= LEASE_S + slack() * ROUNDING_S
    assert refused.session_id in SHARED
    assert {told.session_id for told in one.told_of("stored", after=cut + LEASE_S, before=checked)} == {"own-one"}
    assert compared == Comparison(0, 0, 0, 0, (), compared.refused_yet_stored)


def test_a_node_that_was_stopped_for_twice_its_lease_writes_nothing_when_it_continues(
    hosts: Hosts, record_measure: RecordMeasure
) -> None:
    took: list[float] = []
    refusals = set()
    with hosts.node("one") as one:
        taken_over(one, 0.0)
        with hosts.node("two") as two:
            two.wait_for_stored("own-two", 0.0)
            owner, other = one, two
            for _ in range(ROUNDS):
                os.kill(owner.process.pid, signal.SIGSTOP)
                stopped = time.monotonic()
                took.append(taken_over(other, stopped) - stopped)
                time.sleep(max(0.0, stopped + 2 * LEASE_S - time.monotonic()))
                continued = time.monotonic()
                os.kill(owner.process.pid, signal.SIGCONT)
                refusals |= {first_refusal(owner, session_id, continued) for session_id in SHARED}
                owner.wait_for_stored(f"own-{'one' if owner is one else 'two'}", continued)
                owner, other = other, owner
    compared = hosts.compare(one, two)

    record_measure(
        f"{ROUNDS} nodes stopped for {2 * LEASE_S:.0f} s: written by an old generation, lost, repeated, gaps",
        "0, 0, 0, 0",
        f"{compared.fenced_yet_stored}, {compared.lost}, {compared.repeated}, {compared.gaps}",
    )
    record_measure("stopped node: its sessions taken over after", "<= 10 s", f"{max(took):.1f} s")
    assert refusals == {"OwnershipLost"}
    assert max(took) <= 10
    assert compared == Comparison(0, 0, 0, 0, (), compared.refused_yet_stored)


def test_nodes_that_cannot_reach_each_other_work_through_the_database(
    hosts: Hosts, tmp_path: Path, record_measure: RecordMeasure
) -> None:
    with (
        hosted_node(hosts.network, "one", "two", hosts.url("one"), tmp_path, LEASE_S, "say: Well.") as one,
        hosted_node(hosts.network, "two", "one", hosts.url("two"), tmp_path, LEASE_S, "say: Well.") as two,
    ):
        there = one.call(desk(one.sessions))
        here = two.call(desk_of(two, there.session_id))
        two.call(here.run("Go."))
        one.call(there.until_settled())
        hosts.network.cut("one", "two")

        one.call(there.run("Again."))
        settled = time.monotonic()
        two.call(here.until_settled())
        late = time.monotonic() - settled
        two.call(until_relayed(two, there.session_id))
        asked = time.monotonic()
        two.call(here.run("And again."))
        answered = time.monotonic() - asked
        one.call(there.until_settled())
        owner = two.call(two.sessions.store.owner(there.session_id))
        logged = two.call(whole_log(two.sessions, there.session_id))

    record_measure("links cut: a follower on the other node is late by", "<= 2 s", f"{late:.2f} s")
    record_measure("links cut: a prompt through the database is answered after", "-", f"{answered:.2f} s")
    assert owner is not None
    assert owner.name == "one"
    assert here.seen == there.seen == logged
    assert [event.event_id for event in logged] == [*range(1, len(logged) + 1)]
    assert len(there.events(ev.RunFinished)) == 3
    assert late <= 2 * slack()


async def until_relayed(node: HostedNode, session_id: str) -> None:
    """Until requests take the way through the database. One that uses a link that was cut a moment ago is lost with it,
    and its error says so."""
    async with asyncio.timeout(WAIT_S):
        while not isinstance(await node.sessions.place_of(session_id), RelayedSessions):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def desk_of(node: HostedNode, session_id: str) -> Desk:
    """A client of a node, made in its event loop."""
    return Desk(node.sessions, session_id)
