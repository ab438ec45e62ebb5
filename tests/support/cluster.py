"""Nodes of a cluster on one real PostgreSQL: inside the test's process, each with a MAKAI_HOME and a scripted model of
its own, or as `makai serve` processes that can be killed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from makai.auth.cluster_key import KEY_VARIABLE
from makai.core.observation import NO_OBSERVER, Observer
from makai.providers.runtime import ModelRuntime
from makai.providers.scripted import SCENARIO_VARIABLE
from makai.server.cluster_opening import own_sessions
from makai.server.cluster_sessions import ClusterSessions
from support.serve_process import ServeProcess
from support.serving import http_session

KEY: Final = "a cluster key for tests, which is long enough"
LEASE_S: Final = 3.0
DEADLINE_S: Final = 55.0
NO_SHARDS: Final[Mapping[str, str]] = MappingProxyType({})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def write_config(
    home: Path,
    name: str,
    database: str,
    *,
    labels: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
    advertise: str = "",
    shards: Mapping[str, str] = NO_SHARDS,
) -> int:
    """Make a MAKAI_HOME a node; returns the port on which it listens for others."""
    port = free_port()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    addresses = "".join(f'shards.{shard} = "{address}"\n' for shard, address in shards.items())
    home.joinpath("config.toml").write_text(
        f'[store]\nurl = "{database}"\n{addresses}[cluster]\nname = "{name}"\nlisten = "127.0.0.1:{port}"\n'
        f'advertise = "{advertise}"\n'
        f"labels = {list(labels or ('shared',))!r}\nlease_seconds = {lease_s}\n",
        encoding="utf-8",
    )
    return port


class Cluster:
    """Nodes in this process."""

    def __init__(self, folder: Path, database: str, scenario: str, shards: Mapping[str, str] = NO_SHARDS) -> None:
        self._folder = folder
        self._database = database
        self._shards = shards
        self._scenario = folder / "scenario.txt"
        self._scenario.write_text(scenario, encoding="utf-8")
        self._stack = AsyncExitStack()
        self.ports: dict[str, int] = {}

    async def start(
        self,
        name: str,
        *,
        labels: tuple[str, ...] = (),
        key: str = KEY,
        advertise: str = "",
        observer: Observer = NO_OBSERVER,
        lease_s: float = LEASE_S,
        durable: bool = True,
    ) -> ClusterSessions:
        home = self._folder / name
        self.ports[name] = write_config(
            home, name, self._database, labels=labels, advertise=advertise, lease_s=lease_s, shards=self._shards
        )
        environ = {SCENARIO_VARIABLE: str(self._scenario), KEY_VARIABLE: key}
        models = await self._stack.enter_async_context(ModelRuntime(environ, home=home))
        sessions = await own_sessions(home, models, durable=durable, environ=environ, observer=observer)
        assert isinstance(sessions, ClusterSessions)
        self._stack.push_async_callback(sessions.close)
        return sessions

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def cluster(
    folder: Path, database: str, scenario: str = "say: Hello there.", shards: Mapping[str, str] = NO_SHARDS
) -> AsyncIterator[Cluster]:
    nodes = Cluster(folder, database, scenario, shards)
    async with asyncio.timeout(DEADLINE_S):
        try:
            yield nodes
        finally:
            await nodes.close()


@asynccontextmanager
async def serving_nodes(
    folder: Path,
    database: str,
    scenario: str,
    *names: str,
    lease_s: float = LEASE_S,
    shards: Mapping[str, str] = NO_SHARDS,
    options: Sequence[str] = (),
) -> AsyncIterator[list[ServeProcess]]:
    """`makai serve` on each node, as processes; at the end they are killed."""
    async with http_session() as http:
        nodes = []
        for name in names:
            node = ServeProcess(folder / name, http, 0, {KEY_VARIABLE: KEY}, options=options)
            write_config(node.home, name, database, lease_s=lease_s, shards=shards)
            node.scenario.write_text(scenario, encoding="utf-8")
            nodes.append(node)
        try:
            for node in nodes:
                await node.start()
            yield nodes
        finally:
            for node in nodes:
                await node.kill()


class StallingProxy:
    """A port before another one. While it stalls it carries nothing and closes nothing, like a network that drops all
    packets."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    def stall(self) -> None:
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, target_writer), (target_reader, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
