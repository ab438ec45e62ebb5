"""A client on the official Python SDK that counts the updates of one prompt: `sdk_client.py COUNT COMMAND ARGS...`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import acp
from acp import schema


class CountingClient:
    def __init__(self) -> None:
        self.updates = 0

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **further: Any) -> None:
        self.updates += 1


async def main(count: int, command: str, *arguments: str) -> None:
    client = CountingClient()
    async with acp.spawn_agent_process(client, command, *arguments, env=dict(os.environ)) as (agent, _):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd=os.getcwd(), mcp_servers=[])
        block = schema.TextContentBlock(type="text", text=str(count))
        await agent.prompt(session_id=session.session_id, prompt=[block])
    if client.updates != count:
        sys.exit(f"{client.updates} updates instead of {count}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
