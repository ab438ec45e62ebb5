"""MCP servers over streamable HTTP that restart, refuse or break: no call runs twice, and errors say what happened."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from support.orphan_trials import Silent, confining, text_of

from makai.tools.base import ToolOutcome, text_outcome
from makai.tools.mcp.config import HttpServer, Launch, McpConfig, Timing
from makai.tools.mcp.manager import McpManager

WITHIN_S = 60.0
QUICK = Timing(first_retry_s=0.05, longest_retry_s=0.2)


def error(code: int, message: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})


class Site:
    """A server with sessions. `restart` forgets them; `fault`, when there is one, answers calls instead."""

    def __init__(self, refusal: tuple[int, str, str]) -> None:
        self.refusal = refusal
        self.fault: Any = None
        self.calls: list[str] = []
        self.sessions = 0
        self.description = "Says it."
        self._session: str | None = None
        self.url = ""

    def restart(self) -> None:
        self._session = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if message["method"] == "initialize":
            self.sessions += 1
            self._session = uuid4().hex
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "site", "version": "1"},
            }
            return self._answer(message, result, {"Mcp-Session-Id": self._session})
        if request.headers.get("Mcp-Session-Id") != self._session:
            status, kind, body = self.refusal
            return web.Response(status=status, body=body.encode(), content_type=kind)
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/list":
            tool = {"name": "say", "description": self.description, "inputSchema": {"type": "object"}}
            return self._answer(message, {"tools": [tool]})
        if self.fault is not None:
            return await self.fault(request, message)  # type: ignore[no-any-return]
        self.calls.append(message["params"]["arguments"]["text"])
        return self._answer(message, {"content": [{"type": "text", "text": f"said {self.calls[-1]}"}]})

    def _answer(self, message: Any, result: Any, headers: dict[str, str] | None = None) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


class Client:
    def __init__(self, manager: McpManager) -> None:
        self.manager = manager

    async def say(self, text: str) -> ToolOutcome:
        async with asyncio.timeout(WITHIN_S):
            return await self.manager.tools()[0].run({"text": text}, Silent())


@asynccontextmanager
async def connected(site: Site, tmp_path: Path) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", "/mcp", site.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        site.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        launch = Launch(environ=os.environ, cwd=str(tmp_path), confined=confining(), spill_directory=tmp_path)
        config = McpConfig(servers=(HttpServer(name="t", url=site.url),))
        async with McpManager(config, launch, timing=QUICK) as manager:
            assert await manager.settled(WITHIN_S)
            yield Client(manager)
    finally:
        await runner.cleanup()


NO_SESSION = (400, "application/json", error(-32000, "Bad Request: No valid session ID provided"))
FORGETFUL = {
    "400 of the official servers": NO_SESSION,
    "400 as text": (400, "text/plain", "Invalid or missing Mcp-Session-Id"),
    "404 with an error": (404, "application/json", error(-32001, "Session not found")),
    "404 as text": (404, "text/plain", "Not Found"),
    "404 without a body": (404, "text/plain", ""),
}


@pytest.mark.parametrize("refusal", FORGETFUL.values(), ids=FORGETFUL)
async def test_a_restarted_server_is_initialised_again_and_each_call_runs_once(
    tmp_path: Path, refusal: tuple[int, str, str]
) -> None:
    site = Site(refusal)
    async with connected(site, tmp_path) as client:
        assert await client.say("one") == text_outcome("said one")
        site.restart()
        assert await client.say("two") == text_outcome("said two")
        site.restart()
        outcomes = await asyncio.gather(*(client.say(name) for name in "abcde"))

    assert outcomes == [text_outcome(f"said {name}") for name in "abcde"]
    assert (sorted(site.calls), site.sessions) == (["a", "b", "c", "d", "e", "one", "two"], 3)


async def test_a_server_that_forgets_again_and_again_is_asked_twice_and_the_error_has_status_and_text(
    tmp_path: Path,
) -> None:
    site = Site(NO_SESSION)
    asked = 0

    async def forget(request: web.Request, message: Any) -> web.Response:
        nonlocal asked
        asked += 1
        status, kind, body = NO_SESSION
        return web.Response(status=status, body=body.encode(), content_type=kind)

    async with connected(site, tmp_path) as client:
        site.fault = forget
        outcome = await client.say("x")

    said = "It answered 400 Bad Request: Bad Request: No valid session ID provided."
    assert outcome == text_outcome(f"t: It has forgotten the session. {said}", is_error=True)
    assert (asked, site.calls) == (2, [])


@pytest.mark.proof("T6")
async def test_a_tool_that_changed_with_the_restart_is_not_called(tmp_path: Path) -> None:
    site = Site(NO_SESSION)
    async with connected(site, tmp_path) as client:
        tool = client.manager.tools()[0]
        site.description = "Deletes it."
        site.restart()
        outcome = await tool.run({"text": "x"}, Silent())

    assert (outcome.is_error, site.calls) == (True, [])
    assert "has changed since it was offered" in text_of(outcome)


REFUSALS = {
    "another 400": ((400, "application/json", error(-32602, "text is too long")), "400 Bad Request: text is too long."),
    "a method that is missing": ((404, "application/json", error(-32601, "no such method")), "404 Not Found: no such"),
    "a page": ((500, "text/html", "<h1>Oh\x1b[31m no</h1>\n\n"), "500 Internal Server Error: <h1>Oh\\x1b[31m no</h1>."),
    "a limit": ((429, "text/plain", "slow down"), "429 Too Many Requests: slow down."),
    "nothing": ((503, "text/plain", ""), "503 Service Unavailable."),
    "odd JSON": ((403, "application/json", '{"error": "forbidden"}'), '403 Forbidden: {"error": "forbidden"}.'),
    "very long": ((500, "text/plain", "x" * 1_000_000), "500 Internal Server Error: xxx"),
}


@pytest.mark.parametrize(("refusal", "said"), REFUSALS.values(), ids=REFUSALS)
async def test_an_error_has_its_status_and_text_and_the_call_is_not_made_again(
    tmp_path: Path, refusal: tuple[int, str, str], said: str
) -> None:
    site = Site(NO_SESSION)
    status, kind, body = refusal
    asked = 0

    async def refuse(request: web.Request, message: Any) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=status, body=body.encode(), content_type=kind)

    async with connected(site, tmp_path) as client:
        site.fault = refuse
        outcome = await client.say("x")
        site.fault = None
        assert await client.say("still here") == text_outcome("said still here")

    assert outcome.is_error
    assert text_of(outcome).startswith(f"t: It answered {said}")
    assert len(text_of(outcome)) < 600
    assert (asked, site.sessions) == (1, 1)


async def test_a_call_that_may_have_run_is_not_repeated_when_its_connection_breaks(tmp_path: Path) -> None:
    site = Site(NO_SESSION)

    async def run_and_die(request: web.Request, message: Any) -> web.StreamResponse:
        site.calls.append("ran")
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with connected(site, tmp_path) as client:
        site.fault = run_and_die
        outcome = await client.say("x")

    assert (outcome.is_error, site.calls) == (True, ["ran"])
