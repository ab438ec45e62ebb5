"""The local model server's life: start, answer, share, crash, stop, and no orphan whatever happens to us."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.llama import LlamaEndpoint, installed_weights

import makai
from makai.core.errors import MakaiError, ProviderError
from makai.providers.local import child
from makai.providers.local.server import LlamaServer
from makai.providers.local.weights import SMOLLM2

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through pidfd")

_OWNER = """
import asyncio, sys
from pathlib import Path
from makai.providers.local.server import LlamaServer

async def main():
    async with LlamaServer(Path(sys.argv[1]), model_id="m") as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def server() -> AsyncIterator[LlamaServer]:
    async with LlamaServer(installed_weights(), model_id=SMOLLM2.id) as running:
        yield running


def _wait_until_gone(pidfd: int, seconds: float) -> bool:
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def _ask(base_url: str, key: str | None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": SMOLLM2.id, "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello"}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base_url}/chat/completions", json=body, headers=headers) as response,
    ):
        answer = await response.json()
    return response.status, answer["choices"][0]["message"]["content"] if response.status == 200 else ""


async def test_the_server_is_healthy_and_a_chat_is_answered(llama_server: LlamaEndpoint) -> None:
    health = llama_server.base_url.removesuffix("/v1") + "/health"
    async with aiohttp.ClientSession() as session, session.get(health) as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})

    status, text = await _ask(llama_server.base_url, llama_server.key.reveal())

    assert status == 200
    assert text.strip()


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_nobody_without_the_key_is_answered(llama_server: LlamaEndpoint, key: str | None) -> None:
    assert await _ask(llama_server.base_url, key) == (401, "")


async def test_the_key_and_our_credentials_are_not_in_the_process_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    async with LlamaServer(installed_weights(), model_id=SMOLLM2.id) as server:
        process = Path("/proc") / str(server.pid)
        seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()

        assert server.key.reveal().encode() not in seen
        assert b"sk-of-the-user" not in seen


async def test_stop_leaves_no_process_and_is_final() -> None:
    server = LlamaServer(installed_weights(), model_id=SMOLLM2.id)
    await server.start()
    pid = server.pid

    await server.stop()
    await server.stop()

    assert not _is_alive(pid)
    with pytest.raises(MakaiError, match="was stopped"):
        await server.start()


async def test_two_starts_at_once_share_one_child_and_announce_it_once() -> None:
    said: list[str] = []
    server = LlamaServer(installed_weights(), model_id=SMOLLM2.id, on_startup=said.append)
    try:
        await asyncio.gather(server.start(), server.start())
        first = server.pid
        await server.start()

        assert (server.pid, said) == (first, ["loading the local model…"])
    finally:
        await server.stop()


async def test_two_servers_started_at_once_do_not_fight_over_a_port() -> None:
    one, two = (LlamaServer(installed_weights(), model_id=SMOLLM2.id) for _ in range(2))
    async with asyncio.TaskGroup() as group:
        group.create_task(one.start())
        group.create_task(two.start())
    try:
        assert one.base_url != two.base_url
        assert (await _ask(one.base_url, one.key.reveal()))[0] == 200
        assert (await _ask(two.base_url, one.key.reveal()))[0] == 401
    finally:
        await one.stop()
        await two.stop()


async def _crash(server: LlamaServer) -> int:
    pid = server.pid
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGSEGV)
    assert await asyncio.to_thread(_wait_until_gone, pidfd, 5)
    return pid


async def test_a_crash_is_survived_once_and_then_reported(server: LlamaServer) -> None:
    crashed = await _crash(server)
    await server.start()
    assert server.pid != crashed
    assert (await _ask(server.base_url, server.key.reveal()))[0] == 200

    await _crash(server)
    with pytest.raises(ProviderError, match="keeps dying") as caught:
        await server.start()
    assert caught.value.provider_id == "local"


async def test_corrupt_weights_give_an_error_with_the_end_of_the_log(tmp_path: Path) -> None:
    with installed_weights().open("rb") as whole:
        (tmp_path / "cut.gguf").write_bytes(whole.read(3_000_000))
    server = LlamaServer(tmp_path / "cut.gguf", model_id="cut")

    with pytest.raises(ProviderError, match=r"cut\.gguf did not load") as caught:
        await server.start()

    assert "model is corrupted or incomplete" in caught.value.message
    assert "Traceback" not in caught.value.message
    assert "makai models pull" in (caught.value.hint or "")


async def test_a_start_that_takes_too_long_is_ended_and_reported() -> None:
    server = LlamaServer(installed_weights(), model_id=SMOLLM2.id, start_deadline_s=0.001)

    with pytest.raises(ProviderError, match="did not load within"):
        await server.start()


async def test_a_cancelled_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = asyncio.create_subprocess_exec
    pidfds: list[int] = []

    async def spawn_and_cancel(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        process = await spawn(*arguments, **options)
        pidfds.append(os.pidfd_open(process.pid))
        task.cancel()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn_and_cancel)
    task = asyncio.create_task(LlamaServer(installed_weights(), model_id=SMOLLM2.id).start())
    with pytest.raises(asyncio.CancelledError):
        await task

    assert _wait_until_gone(pidfds[0], 0)


def test_the_child_ends_when_its_stdin_closes_and_writes_one_line() -> None:
    command = [sys.executable, "-P", child.__file__, "--model", str(installed_weights()), "--alias", "m"]
    sizes = ["--context", "512", "--threads", "1", "--batch-threads", "1"]
    with subprocess.Popen(
        [*command, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"key\n")
        process.stdin.flush()
        ready = json.loads(process.stdout.readline())
        process.stdin.close()

        assert process.wait(timeout=5) == 0
        assert ready == {"ready": True, "port": ready["port"]}
        assert process.stdout.read() == b""


def _orphan_after_killing_its_parent(kill: signal.Signals) -> int:
    """Start a server in another process, kill that process, return a pidfd of the child it leaves."""
    environment = {**os.environ, "PYTHONPATH": str(Path(makai.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(installed_weights())], stdout=subprocess.PIPE, env=environment
    ) as owner:
        assert owner.stdout is not None
        pidfd = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(kill)
        owner.wait(timeout=10)
    return pidfd


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_is_gone_within_five_seconds_when_we_are_killed(kill: signal.Signals) -> None:
    assert _wait_until_gone(_orphan_after_killing_its_parent(kill), 5)
