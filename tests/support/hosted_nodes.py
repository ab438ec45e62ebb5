"""Nodes of a cluster on hosts of their own: each in a thread of the test, whose network is that of its host."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from makai.auth.cluster_key import KEY_VARIABLE
from makai.core.config import ClusterConfig, Config, StoreConfig
from makai.providers.runtime import ModelRuntime
from makai.providers.scripted import SCENARIO_VARIABLE
from makai.server.cluster_opening import own_sessions
from makai.server.cluster_sessions import ClusterSessions
from support.cluster import KEY
from support.namespaces import Network

T = TypeVar("T")
WAIT_S: Final = 60.0
PORT: Final = 7700
"""The same on each host."""


class HostedNode:
    """`call` runs a coroutine in the event loop of the node."""

    def __init__(self, sessions: ClusterSessions, loop: asyncio.AbstractEventLoop) -> None:
        self.sessions = sessions
        self._loop = loop

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


@contextmanager
def hosted_node(
    network: Network, name: str, other: str, database: str, folder: Path, lease_s: float, scenario: str
) -> Iterator[HostedNode]:
    """A node on the host of its name, which `other` can reach, until the block ends."""
    home = folder / name
    home.mkdir(mode=0o700)
    script = folder / f"{name}.txt"
    script.write_text(scenario, encoding="utf-8")
    cluster = ClusterConfig(
        name=name,
        listen=f"0.0.0.0:{PORT}",
        advertise=f"{network.address(name, other)}:{PORT}",
        labels=("shared",),
        lease_seconds=lease_s,
    )
    config = Config(store=StoreConfig(url=database), cluster=cluster)
    environ = {SCENARIO_VARIABLE: str(script), KEY_VARIABLE: KEY}
    started: concurrent.futures.Future[HostedNode] = concurrent.futures.Future()
    ended = threading.Event()

    async def serve() -> None:
        async with ModelRuntime(environ, home=home) as models:
            sessions = await own_sessions(home, models, durable=True, config=config, environ=environ)
            assert isinstance(sessions, ClusterSessions)
            started.set_result(HostedNode(sessions, asyncio.get_running_loop()))
            await asyncio.to_thread(ended.wait)
            await sessions.close()

    def run() -> None:
        try:
            with network.inside(name):
                asyncio.run(serve())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=run, name=f"node {name}")
    thread.start()
    try:
        yield started.result(WAIT_S)
    finally:
        ended.set()
        thread.join(WAIT_S)
