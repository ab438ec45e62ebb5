"""An agent on the official Python SDK that sends as many updates as the prompt says, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import acp
from acp import schema


class CountingAgent:
    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **further: Any) -> Any:
        return schema.InitializeResponse(protocol_version=1)

    async def new_session(self, **further: Any) -> Any:
        return schema.NewSessionResponse(session_id="session")

    async def prompt(self, prompt: list[Any], session_id: str, **further: Any) -> Any:
        for _ in range(int(prompt[0].text)):
            content = schema.TextContentBlock(type="text", text="word,")
            chunk = schema.AgentMessageChunk(session_update="agent_message_chunk", content=content)
            await self._client.session_update(session_id=session_id, update=chunk)
        return schema.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(CountingAgent()))
