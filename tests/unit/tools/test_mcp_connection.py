"""Calls of one connected MCP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client import Client

from makai.tools.mcp.config import Timing
from makai.tools.mcp.connection import McpConnection
from makai.tools.mcp.transports import Life

Report = Callable[[float, float | None, str | None], Awaitable[None]]


class LateSession:
    """Answers at once, and keeps the callback for progress that comes afterwards."""

    report: Report

    async def send_request(self, request: Any, kind: Any, *, progress_callback: Report) -> types.CallToolResult:
        self.report = progress_callback
        await self.report(1, 2, "before")
        return types.CallToolResult(content=[types.TextContent(type="text", text="done")])


class OneClient:
    protocol_version = "2025-11-25"
    server_info = None

    def __init__(self) -> None:
        self.session = LateSession()


async def test_progress_that_comes_after_the_answer_is_told_and_is_no_error() -> None:
    client, told = OneClient(), list[tuple[float, float | None, str | None]]()
    async with anyio.create_task_group() as group:
        connection = McpConnection(cast(Client, client), group, Timing(), Life())
        result = await connection.call("steps", {}, lambda *progress: told.append(progress))
        await client.session.report(2, 2, "after")

    assert result.content[0]["text"] == "done"
    assert told == [(1, 2, "before"), (2, 2, "after")]
