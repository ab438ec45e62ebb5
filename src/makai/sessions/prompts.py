"""Prompts that the MCP servers of a session offer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from makai.core.errors import InvalidRequest
from makai.core.server_prompts import ServerPrompt
from makai.harness.native.harness import NativeHarness
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.sessions import requests as req
from makai.sessions.live import LiveSession
from makai.sessions.placement import check_folder


class SessionPrompts:
    """External agents have MCP servers of their own: their sessions offer no prompts here."""

    def __init__(self, workbenches: WorkbenchPool, find: Callable[[str], Awaitable[LiveSession]]) -> None:
        self._workbenches = workbenches
        self._find = find

    async def list(self, request: req.ListPrompts) -> list[ServerPrompt]:
        session = await self._find(request.session_id)
        state = session.state
        if state.harness != NativeHarness.id or not session.claim.is_here:
            return []
        async with self._workbenches.use(request.session_id, state) as bench:
            return [] if bench is None else await bench.prompts(request.awaited)

    async def get(self, request: req.GetPrompt) -> str:
        session = await self._find(request.session_id)
        check_folder(session)
        state = session.state
        if state.harness == NativeHarness.id:
            async with self._workbenches.use(request.session_id, state) as bench:
                if bench is not None:
                    return await bench.prompt(request.server, request.name, request.arguments)
        raise InvalidRequest("This session has no MCP servers.")
