"""Sessions are opened when they are first wanted, once, and closed with the server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cluster import KEY, write_config
from support.live_sessions import scripted_models
from support.postgres import shared_server
from support.tcp_proxy import tcp_proxy

from makai.auth.account_text import StoreSnapshot
from makai.auth.cluster_key import KEY_VARIABLE
from makai.core.errors import ChannelClosed
from makai.providers.runtime import ModelRuntime
from makai.server.session_source import SessionSource
from makai.sessions.requests import CreateSession, GetState

ROOT = Path(__file__).resolve().parents[3]
PING = """
import asyncio, sys
from makai.protocols.makai.envelope import READY_FRAME
from makai.server.backend import LazyBackend
from makai.server.makai_connection import MakaiServer
from makai.server.session_source import SessionSource
from makai.transports.memory import memory_pair

FRAME = b'{"type":"ping","stream_id":"%b","message_id":"%b","sequence":1,"timestamp":1,"version":1,"payload":{}}'
UUID = b"00000000-0000-4000-8000-000000000001"

async def main():
    backend = LazyBackend()
    ours, theirs = memory_pair()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(MakaiServer(backend, sessions=SessionSource(backend).get).serve(theirs))
        await ours.send([FRAME % (UUID, UUID)])
        assert b'"pong"' in await ours.receive()
        await ours.close()
    print(*sys.modules)

asyncio.run(main())
"""


def test_a_ping_is_answered_without_loading_anything_of_sessions() -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    finished = subprocess.run([sys.executable, "-c", PING], env=environ, capture_output=True, text=True, timeout=30)
    assert finished.returncode == 0, finished.stderr
    loaded = set(finished.stdout.split())
    assert "makai.server.makai_connection" in loaded
    ours = {name for name in loaded if name.startswith(("makai.sessions", "makai.agent", "makai.tools"))}
    assert ours | (loaded & {"makai.core.session_events", "makai.protocols.makai.agent", "pathlib", "sqlite3"}) == set()


async def test_everyone_gets_the_same_sessions_until_they_are_closed(tmp_path: Path) -> None:
    async with scripted_models(tmp_path, "say: Hi.") as models:
        source = SessionSource(models, tmp_path / "makai-home")
        first, second = await asyncio.gather(source.get(), source.get())
        assert first is second
        session_id = await first.dispatch(CreateSession(model_ref="scripted/scripted@echo"))
        assert (await second.dispatch(GetState(session_id))).model_ref == "scripted/scripted@echo"
        await source.close()
        with pytest.raises(ChannelClosed):
            await source.get()


async def test_sessions_that_nobody_wanted_are_not_opened_to_be_closed(tmp_path: Path) -> None:
    async with scripted_models(tmp_path, "say: Hi.") as models:
        await SessionSource(models, tmp_path / "makai-home").close()
    assert not (tmp_path / "makai-home").joinpath("makai.db").exists()


async def test_shared_logins_are_looked_up_before_there_are_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shared_server()
    database = server.new_schema()
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    async with tcp_proxy(server.port) as proxy:
        write_config(tmp_path / "home", "a", database.replace(f":{server.port}", f":{proxy.port}"))
        async with ModelRuntime({KEY_VARIABLE: KEY}, home=tmp_path / "home") as models:
            source = SessionSource(models, tmp_path / "home")
            await source.prepare_logins()
            proxy.refuses = True
            proxy.cut()

            assert models.logins.store.snapshot() == StoreSnapshot()  # from memory: nothing can be read now
            await source.close()
