"""What the metrics of a node and `makai top` say about its cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.cluster import cluster
from support.live_sessions import Desk, desk
from support.postgres import shared_server
from support.prometheus import read_metrics

from makai.cli.top_view import TopView, top_lines
from makai.core import session_events as ev
from makai.server.activity import activity_of
from makai.server.observability import Observability

NAMES = ("makai_store_reachable", "makai_lease_held", "makai_leases_lost_total", "makai_takeovers_total")


def figures(observed: Observability) -> list[float | None]:
    found = read_metrics(observed.metrics.render())
    return [found.get(name) for name in NAMES]


async def test_a_lost_lease_and_a_takeover_are_figures_of_their_nodes(tmp_path: Path, database: str) -> None:
    one, other = Observability(), Observability()
    assert figures(one) == [None, None, 0, None]
    # The run is longer than it takes to end the lease: a run that was over could not be taken over.
    async with cluster(tmp_path, database, "pace: 20ms\nrepeat: 250 word") as nodes:
        # The first one does not take its own run back, and no lease is so short that a busy machine loses it.
        first = await nodes.start("a", observer=one.observer, lease_s=12, durable=False)
        second = await nodes.start("b", observer=other.observer, lease_s=12)
        assert figures(one) == figures(other) == [1, 1, 0, 0]
        there = await desk(first)
        here = Desk(second, there.session_id)
        await here.send("Go.")
        await here.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))

        view = TopView()
        view.take(await activity_of(second))
        lines = top_lines(view, 100, None)
        expired = "UPDATE node SET expires_at = clock_timestamp() - interval '1 s' WHERE name = 'a'"
        shared_server().sql(expired, database.rpartition("/")[2])
        for _ in range(600):  # nothing is asked of the session meanwhile: a request would claim it, too
            if figures(one)[1:3] == [1, 1] and figures(other)[3] == 1:  # it joined again, and its run was taken over
                break
            await asyncio.sleep(0.05)
        await here.until_settled()
        assert figures(one) == [1, 1, 1, 0]
        assert figures(other) == [1, 1, 0, 1]
    assert [line.split()[:2] for line in lines[1:3]] == [["node", "a"], ["node", "b"]]
    assert lines[-1].split()[1] == "running"
