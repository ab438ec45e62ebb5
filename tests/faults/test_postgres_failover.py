"""kill -9 of the primary PostgreSQL under load, with a synchronous standby that Patroni promotes."""

from __future__ import annotations

import asyncio
import os
import statistics
from itertools import pairwise
from typing import Final, NamedTuple

import pytest
from support.machine import RecordMeasure
from support.patroni import PatroniCluster, patroni_cluster
from support.postgres_writer import Comparison, Told, Writer, compare, writer

ROUNDS: Final = int(os.environ.get("MAKAI_TEST_FAILOVERS", "20"))
"""How often the primary is killed."""
BACK_S: Final = 25.0
LEASE_S: Final = 6.0
SESSIONS: Final = tuple(f"session-{number}" for number in range(6))


class Outage(NamedTuple):
    began: float
    promoted: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@pytest.mark.timeout(20 * 60 + 60 * ROUNDS)
def test_kill_9_of_the_primary_loses_no_acknowledged_event(record_measure: RecordMeasure) -> None:
    outages: dict[str, list[Outage]] = {"server": [], "node": []}
    with patroni_cluster() as cluster:
        with writer(cluster.url, "writer", LEASE_S, SESSIONS) as working:
            for number in range(ROUNDS):
                kind = ("node", "server")[number % 2]
                outages[kind].append(_kill_primary(cluster, working, kind))
            assert working.process.poll() is None  # it was never restarted
        compared = asyncio.run(compare(cluster.url, SESSIONS, [working]))

    stored = sum(told.last - told.first + 1 for told in working.told_of("stored"))
    every = [outage for kind in outages.values() for outage in kind]
    resolved = [told for outage in every for told in _resolved(working, outage)]
    refused = [told for outage in every for told in working.told_of("refused", outage.began, outage.ended)]
    reads = [
        told for outage in every for told in working.told_of("read", outage.began + 0.5, outage.began + LEASE_S / 2)
    ]
    for kind, ones in outages.items():
        seconds = [outage.seconds for outage in ones] or [0.0]
        record_measure(
            f"PostgreSQL: kill -9 of the primary {kind}, {len(ones)} times: service back after (median, slowest)",
            f"<= {BACK_S:.0f} s",
            f"{statistics.median(seconds):.1f}, {max(seconds):.1f} s",
        )
    record_measure(f"PostgreSQL: {ROUNDS} failovers, {stored} acknowledged: lost", "0", str(compared.lost))
    record_measure("PostgreSQL: failovers: stored twice, gaps", "0, 0", f"{compared.repeated}, {compared.gaps}")
    record_measure("PostgreSQL: failovers: answers lost, then found out", "-", str(len(resolved)))
    record_measure(
        "PostgreSQL: failovers: appends refused while there was no primary (of these stored)",
        "-",
        f"{len(refused)} ({compared.refused_yet_stored})",
    )
    assert compared == Comparison(0, 0, 0, 0, (), compared.refused_yet_stored)
    assert max(outage.seconds for outage in every) <= BACK_S
    assert {told.error for told in refused} <= {"StorageUnavailable", "OwnershipLost"}
    assert [told for told in refused if not told.hint] == []
    assert len(reads) >= ROUNDS
    assert [told for told in reads if told.error] == []


def _kill_primary(cluster: PatroniCluster, working: Writer, kind: str) -> Outage:
    """From the kill to the first append that is acknowledged again, by the clock of the writer."""
    primary = cluster.primary()
    for session_id in SESSIONS:
        working.wait_for_stored(session_id, after=working.told[-1].at if working.told else 0.0)
    if kind == "node":
        primary.kill()
    else:
        primary.kill_server()
    killed = working.told_of("stored")[-1].at
    cluster.wait_for_primary(other_than=primary)
    promoted = working.told[-1].at
    for session_id in SESSIONS:
        working.wait_for_stored(session_id, after=promoted)
    times = [killed, *(told.at for told in working.told_of("stored", after=killed))]
    began, ended = max(pairwise(times), key=lambda pair: pair[1] - pair[0])
    cluster.restore(primary)
    return Outage(began, promoted, ended)


def _resolved(working: Writer, outage: Outage) -> list[Told]:
    """Appends that were under way when the primary died and were acknowledged once there was another one."""
    later = working.told_of("stored", after=outage.began, before=outage.ended + BACK_S)
    return [told for told in later if told.began <= outage.began]
