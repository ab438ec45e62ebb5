"""A run that waits because its provider limits the rate, in a real server: clients see how long and can stop it, and a
server that is killed meanwhile continues the run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.minicodex import BOTH
from support.minicodex_client import JSON, MinicodexClient
from support.serve_process import ServeProcess, serve_process
from support.upstream import Script, answers, chat_stream, refuses, upstream

BUSY = refuses(429, b'{"error":{"message":"Slow down","code":"rate_limit_exceeded"}}', Retry_After="300")
REASON = "openai refused the request (HTTP 429): Slow down."


@asynccontextmanager
async def limited(folder: Path, *scripts: Script) -> AsyncIterator[tuple[ServeProcess, str]]:
    """A server with a session whose vendor follows the scripts."""
    async with upstream(*scripts) as vendor:
        environ = {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{vendor.url}/v1"}
        async with serve_process(folder, "say: Unused.", environ=environ) as server:
            session_id = await server.session(folder)
            client = await server.connect(session_id, *BOTH)
            await client.hello()
            assert await client.ask("set_model", model_ref="openai/openai-completions@gpt-of-next-year") == "accepted"
            yield server, session_id


async def until_waiting(client: MinicodexClient) -> JSON:
    return (await client.until(lambda frame: frame["type"] == "notice" and "wait_ms" in frame))[-1]


async def test_a_run_that_waits_says_how_long_and_can_be_stopped_at_once(tmp_path: Path) -> None:
    async with limited(tmp_path, BUSY) as (server, session_id):
        client = await server.connect(session_id, *BOTH)
        await client.hello()
        assert await client.ask("send", text="hi") == "accepted"
        notice = await until_waiting(client)
        assert {name: notice[name] for name in ("level", "code", "message", "wait_ms")} == {
            "level": "info", "code": "rate_limited", "message": f"{REASON} Attempt 2 follows.", "wait_ms": 300_000,
        }  # fmt: skip
        assert await client.ask("abort") == "accepted"
        await client.until_over()


async def test_a_server_that_is_killed_while_a_run_waits_continues_it(tmp_path: Path) -> None:
    async with limited(tmp_path, BUSY, answers(chat_stream("Hello"))) as (server, session_id):
        client = await server.connect(session_id, *BOTH)
        await client.hello()
        assert await client.ask("send", text="hi") == "accepted"
        await until_waiting(client)
        await server.kill()
        await server.start()
        again = await server.connect(session_id, *BOTH)
        await again.hello()
        await again.until(lambda frame: frame["type"] == "assistant_text" or "Hello" in str(frame.get("transcript")))
