"""Two nodes behind nginx with the configuration of deploy/: clients know one address, and no node."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from support.cluster import free_port, serving_nodes
from support.machine import RecordMeasure
from support.minicodex_client import BOTH, JSON, Ended, logged
from support.postgres import database as database
from support.serve_process import ServeProcess
from support.serving import connected

ROOT = Path(__file__).parents[2]
SCENARIO = "pace: 20ms\nrepeat: 200 word "
WORDS = 200
VISITORS = 4
START_S = 30.0
_NO_SESSION_YET = 0


def _configured(folder: Path, port: int, nodes: Sequence[ServeProcess]) -> Path:
    """deploy/nginx.conf for these nodes."""
    text = (ROOT / "deploy/nginx.conf").read_text(encoding="utf-8")
    for number, node in enumerate(nodes, start=1):
        text, count = re.subn(rf"\bnode-{number}:8717\b", node.url.removeprefix("http://"), text)
        assert count == 1
    text, count = re.subn(r"listen 8080;", f"listen 127.0.0.1:{port};", text)
    assert count == 1
    path = folder / "nginx.conf"
    path.write_text(f"daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n{text}", encoding="utf-8")
    return path


@asynccontextmanager
async def nginx(folder: Path, port: int, nodes: Sequence[ServeProcess]) -> AsyncIterator[str]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: nodes behind a load balancer were NOT tested")
    command = [program, "-c", str(_configured(folder, port, nodes)), "-e", str(folder / "error.log")]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(START_S):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                assert process.returncode is None, (folder / "error.log").read_text(encoding="utf-8")
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


class Visitor:
    """A client that knows the address of the load balancer only, and comes back when it is cut off."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str) -> None:
        self._http = http
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self.frames: list[JSON] = []
        self.heard = asyncio.Event()
        """Set when the first words came."""
        self.cuts = 0

    async def begin(self, folder: Path) -> str:
        body = {"model_ref": "scripted/scripted@scenario", "mode": "never_ask", "cwd": str(folder)}
        async with self._http.post(f"{self._url}/api/sessions", json=body, headers=self._headers) as response:
            assert response.status == 201, await response.text()
            return str((await response.json())["session_id"])

    async def talk(self, session_id: str) -> None:
        """Send one message, and read until its run is over."""
        while True:
            with suppress(aiohttp.ClientError, ConnectionError, Ended):
                client = await connected(self._http, self._url, session_id, *BOTH, headers=self._headers)
                try:
                    await client.resume(self.frames[-1]["event_id"] if self.frames else _NO_SESSION_YET)
                    await client.ask("send", text="Go.", client_msg_id="the one message")
                    while not self._is_over():
                        await client.hear()
                        self.frames += logged(client.frames)
                        client.frames.clear()
                        if any(frame["type"] == "assistant_text_delta" for frame in self.frames):
                            self.heard.set()
                    return
                finally:
                    client.drop()
            self.cuts += 1
            await asyncio.sleep(0.1)

    def _is_over(self) -> bool:
        return any(frame["type"] in ("turn_done", "run_ended") for frame in self.frames)

    def numbers(self) -> list[int]:
        return [frame["event_id"] for frame in self.frames]

    def said(self) -> str:
        return "".join(frame["text"] for frame in self.frames if frame["type"] == "assistant_text_delta")

    async def statuses(self, path: str, until: Sequence[asyncio.Task[None]]) -> list[int]:
        found = []
        while not all(task.done() for task in until):
            async with self._http.get(f"{self._url}{path}", headers=self._headers) as response:
                found.append(response.status)
            await asyncio.sleep(0.05)
        return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_a_node_behind_nginx_goes_away_and_its_clients_lose_nothing(
    tmp_path: Path, database: str, record_measure: RecordMeasure, end: str
) -> None:
    port = free_port()
    options = ("--allow-host", f"127.0.0.1:{port}")
    async with (
        serving_nodes(tmp_path, database, SCENARIO, "a", "b", options=options) as nodes,
        nginx(tmp_path, port, nodes) as url,
    ):
        visitors = [Visitor(nodes[0].http, url, nodes[0].token) for _ in range(VISITORS)]
        async with asyncio.timeout(120):
            ids = [await visitor.begin(tmp_path) for visitor in visitors]
            talking = [
                asyncio.create_task(visitor.talk(session_id)) for visitor, session_id in zip(visitors, ids, strict=True)
            ]
            for visitor in visitors:
                await visitor.heard.wait()
            listing = asyncio.create_task(visitors[0].statuses("/api/sessions", talking))
            await (nodes[0].kill() if end == "killed" else nodes[0].stop())
            await asyncio.gather(*talking)
            statuses = await listing
        gaps = sum(b - a != 1 for visitor in visitors for a, b in pairwise(visitor.numbers()))
        cuts = sum(visitor.cuts for visitor in visitors)
        refused = sum(status != 200 for status in statuses)
        measured = f"{refused} of {len(statuses)}, {gaps}; {cuts} of {VISITORS} clients came back"
        record_measure(f"nginx, a node of two {end}: requests refused, gaps", "0, 0", measured)
        assert (refused, gaps, cuts > 0) == (0, 0, True)
        assert {visitor.frames[-1]["type"] for visitor in visitors} == {"turn_done"}
        assert min(visitor.said().count("word") for visitor in visitors) >= WORDS
