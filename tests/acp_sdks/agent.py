"""An agent on the official Python SDK: it thinks, asks before it edits, and echoes what it was told.

`count N` makes it send N updates, which the benchmark uses; `wait` makes it wait until it is cancelled.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import acp
from acp import schema


def text(words: str) -> Any:
    return schema.TextContentBlock(type="text", text=words)


class ExampleAgent:
    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._cancelled: dict[str, asyncio.Event] = {}
        self._client: Any = None

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **further: Any) -> Any:
        return schema.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(load_session=False),
            agent_info=schema.Implementation(name="python-sdk-example", version="1"),
        )

    async def new_session(self, cwd: str, **further: Any) -> Any:
        session_id = f"session-{next(self._ids)}"
        self._cancelled[session_id] = asyncio.Event()
        return schema.NewSessionResponse(session_id=session_id)

    async def prompt(self, prompt: list[Any], session_id: str, **further: Any) -> Any:
        self._cancelled[session_id].clear()
        words = "".join(getattr(block, "text", "") for block in prompt)
        first, _, rest = words.partition(" ")
        if first == "count":
            for _ in range(int(rest)):
                await self._say(session_id, "word ")
        elif first == "wait":
            await self._say(session_id, "Waiting. ")
            await self._cancelled[session_id].wait()
            return schema.PromptResponse(stop_reason="cancelled")
        elif first == "edit":
            return await self._edit(session_id)
        else:
            await self._send(
                session_id, schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=text("Hm."))
            )
            await self._say(session_id, words)
        return schema.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **further: Any) -> None:
        self._cancelled[session_id].set()

    async def _edit(self, session_id: str) -> Any:
        call: dict[str, Any] = {"tool_call_id": f"call-{next(self._ids)}", "title": "Edit a file", "kind": "edit"}
        await self._send(session_id, schema.ToolCallStart(session_update="tool_call", status="pending", **call))
        options = [
            schema.PermissionOption(option_id="no", name="Refuse", kind="reject_once"),
            schema.PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
        ]
        answer = await self._client.request_permission(
            session_id=session_id, tool_call=schema.ToolCallUpdate(**call), options=options
        )
        if answer.outcome.outcome == "cancelled":
            return schema.PromptResponse(stop_reason="cancelled")
        status = "completed" if answer.outcome.option_id == "yes" else "failed"
        progress = schema.ToolCallProgress(
            session_update="tool_call_update", tool_call_id=call["tool_call_id"], status=status
        )
        await self._send(session_id, progress)
        await self._say(session_id, f"The edit {status}.")
        return schema.PromptResponse(stop_reason="end_turn")

    async def _say(self, session_id: str, words: str) -> None:
        await self._send(
            session_id, schema.AgentMessageChunk(session_update="agent_message_chunk", content=text(words))
        )

    async def _send(self, session_id: str, update: Any) -> None:
        await self._client.session_update(session_id=session_id, update=update)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(ExampleAgent()))
