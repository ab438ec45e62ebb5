"""Keeps the agent processes of sessions between runs: one process per session, which knows the conversation.

Each lives in a task of its own. It ends when its session had no run for a while, when its session is deleted, when the
agent itself ends, and with this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from makai.aio.cancellation import consume_exception
from makai.aio.tasks import BackgroundTasks
from makai.harness.acp.driven_agent import DrivenAgent

IDLE_S: Final = 600.0
_LOOK_EVERY_S: Final = 30.0
_CLOSE_S: Final = 10.0


class _Entry:
    def __init__(self, key: object) -> None:
        self.key = key
        self.agent: asyncio.Future[DrivenAgent] = asyncio.get_running_loop().create_future()
        self.agent.add_done_callback(consume_exception)  # of an aborted run, which does not wait for it
        self.closing = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.users = 0
        self.used_at = asyncio.get_running_loop().time()

    def is_unused(self) -> bool:
        return self.users == 0 and asyncio.get_running_loop().time() - self.used_at > IDLE_S

    def is_usable(self) -> bool:
        if self.closing.is_set() or self.agent.cancelled():
            return False
        return not self.agent.done() or (self.agent.exception() is None and not self.agent.result().ended.is_set())

    async def close(self) -> None:
        self.closing.set()
        if self.task is not None:
            if not self.agent.done():
                self.task.cancel()
            await asyncio.wait({self.task}, timeout=_CLOSE_S)


class AgentPool:
    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._entries: dict[str, _Entry] = {}

    @asynccontextmanager
    async def use(
        self, session_id: str, key: object, start: Callable[[], Awaitable[DrivenAgent]]
    ) -> AsyncIterator[DrivenAgent]:
        """The session's agent while it is used, started if none runs that was started for the same `key`. One that has
        ended by then is gone when this returns (ACP-CLIENT-010)."""
        entry = self._entries.get(session_id)
        if entry is None or not entry.is_usable() or entry.key != key:
            if entry is not None:
                await entry.close()
            entry = self._entries[session_id] = _Entry(key)
            entry.task = self._tasks.start(self._keep(session_id, entry, start), f"makai-agent-{session_id}")
        entry.users += 1
        try:
            yield await asyncio.shield(entry.agent)
        finally:
            entry.users -= 1
            entry.used_at = asyncio.get_running_loop().time()
            if not entry.is_usable():
                await entry.close()

    async def stop(self, session_id: str) -> None:
        """End the agent of a session, if it runs."""
        if entry := self._entries.pop(session_id, None):
            await entry.close()

    async def _keep(self, session_id: str, entry: _Entry, start: Callable[[], Awaitable[DrivenAgent]]) -> None:
        agent: DrivenAgent | None = None
        try:
            agent = await start()
            entry.agent.set_result(agent)
            ended = asyncio.create_task(agent.ended.wait())
            closing = asyncio.create_task(entry.closing.wait())
            try:
                while not (ended.done() or closing.done() or entry.is_unused()):
                    await asyncio.wait({ended, closing}, timeout=_LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                closing.cancel()
        except Exception as error:
            if entry.agent.done():
                raise
            entry.agent.set_exception(error)
        finally:
            entry.closing.set()
            if not entry.agent.done():
                entry.agent.cancel()
            if agent is not None:
                with suppress(asyncio.CancelledError):
                    await agent.close()
            if self._entries.get(session_id) is entry:
                del self._entries[session_id]
