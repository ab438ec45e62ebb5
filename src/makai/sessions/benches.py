"""The workbenches of sessions: kept between runs, so that tool servers need not start anew for every message.

In: live sessions. Out: their `Workbench`. Each one lives in a task of its own and is put away when its session was not
used for a while, when it is deleted, or when the process ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from makai.aio.tasks import BackgroundTasks
from makai.sessions.live import LiveSession

if TYPE_CHECKING:
    from makai.agent.workbench import Workbench, WorkbenchSpec

IDLE_S: Final = 600.0
_LOOK_EVERY_S: Final = 30.0


class _Kept:
    """A workbench and the task it lives in."""

    def __init__(self, spec: WorkbenchSpec, session: LiveSession) -> None:
        self.spec = spec
        self.session = session
        """Who used it last: a session that was forgotten and loaded again is another object."""
        self.bench: asyncio.Future[Workbench] = asyncio.get_running_loop().create_future()
        # A run that was aborted meanwhile does not want to know why it could not be opened.
        self.bench.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.put_away = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.used_at = 0.0


class Benches:
    """One workbench per session that uses built-in tools."""

    def __init__(self, home: Path, tasks: BackgroundTasks, is_trusted: Callable[[str], Awaitable[bool]]) -> None:
        self._home = home
        self._tasks = tasks
        self._is_trusted = is_trusted
        self._kept: dict[str, _Kept] = {}

    async def get(self, session: LiveSession) -> Workbench | None:
        """The session's bench, or None when its terms want no built-in tools."""
        state = session.state
        if not state.terms.builtin_tools or state.cwd is None:
            return None
        from makai.agent.workbench import WorkbenchSpec

        spec = WorkbenchSpec(
            cwd=state.cwd,
            roots=state.roots,
            sandbox=state.terms.sandbox,
            makai_home=self._home,
            trusted=await self._is_trusted(state.cwd),
            environ=dict(os.environ),
            session_id=session.session_id,
        )
        kept = self._kept.get(session.session_id)
        if kept is None or kept.spec != spec or kept.put_away.is_set():
            if kept is not None:
                await self._put_away(kept)
            kept = self._kept[session.session_id] = _Kept(spec, session)
            kept.task = self._tasks.start(self._keep(kept), f"makai-bench-{session.session_id}")
        kept.session = session
        kept.used_at = asyncio.get_running_loop().time()
        return await asyncio.shield(kept.bench)

    async def forget(self, session_id: str) -> None:
        """The session is deleted."""
        kept = self._kept.pop(session_id, None)
        if kept is not None:
            await self._put_away(kept)

    async def _put_away(self, kept: _Kept) -> None:
        kept.put_away.set()
        if kept.task is not None:
            await asyncio.wait({kept.task}, timeout=10.0)

    async def _keep(self, kept: _Kept) -> None:
        from makai.agent.workbench import Workbench

        try:
            async with Workbench(kept.spec) as bench:
                kept.bench.set_result(bench)
                while not kept.put_away.is_set() and not _is_unused(kept):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY_S):
                            await kept.put_away.wait()
                kept.put_away.set()
        except Exception as error:
            if kept.bench.done():
                raise
            kept.bench.set_exception(error)
        finally:
            kept.put_away.set()
            if not kept.bench.done():
                kept.bench.cancel()
            if self._kept.get(kept.session.session_id) is kept:
                del self._kept[kept.session.session_id]


def _is_unused(kept: _Kept) -> bool:
    return kept.session.port is None and asyncio.get_running_loop().time() - kept.used_at > IDLE_S
