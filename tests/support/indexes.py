"""Indexes of sessions for tests: an indexer over any log, and what its file holds."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from makai.aio.tasks import BackgroundTasks
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.usage import Usage
from makai.sessions.index.base import SearchAnswer, UsageAnswer
from makai.sessions.index.indexer import INDEX_NAME, Indexer
from makai.sessions.log.base import EventLog, Pending
from makai.sessions.requests import GetUsage, SearchSessions
from support.log_events import NOW_MS

WAIT_S = 30.0
DAY_MS = 86_400_000


def exchange(
    asked: str, answered: str, *, ts: int = NOW_MS, run_id: str = "run-1", usage: Usage | None = None
) -> list[Pending]:
    """A run in which this was said."""
    facts: list[ev.SessionEvent] = [
        ev.RunStarted(run_number=1, model_ref="acme/one"),
        ev.UserInput(input_id=run_id, content=asked),
        ev.AssistantText(content_index=0, text=answered),
        ev.RunFinished(stop_reason="end_turn", usage=usage or Usage(input=10, output=2)),
    ]
    return [Pending(ts, run_id, fact) for fact in facts]


def tool_call(command: str, output: str, *, ts: int = NOW_MS) -> list[Pending]:
    facts: list[ev.SessionEvent] = [
        ev.ToolCalled(call_id="c", name="shell", arguments_json=f'{{"command": "{command}"}}', title="Run a command"),
        ev.ToolFinished(call_id="c", content=(Text(text=output),)),
    ]
    return [Pending(ts, "run-1", fact) for fact in facts]


def created(title: str = "", *, ts: int = NOW_MS, **fields: Any) -> list[Pending]:
    return [Pending(ts, None, ev.SessionCreated(model_ref="acme/one", title=title, **fields))]


class IndexTrial:
    """An indexer, asked as its owner asks it: every answer has all that the log has."""

    def __init__(self, indexer: Indexer) -> None:
        self.indexer = indexer

    async def search(self, query: str, **fields: Any) -> SearchAnswer:
        answer = await self.indexer.search(SearchSessions(query=query, wait_s=WAIT_S, **fields))
        assert answer.complete
        return answer

    async def found(self, query: str, **fields: Any) -> list[str]:
        return [hit.session_id for hit in (await self.search(query, **fields)).hits]

    async def usage(self, **fields: Any) -> UsageAnswer:
        answer = await self.indexer.usage(GetUsage(wait_s=WAIT_S, **fields))
        assert answer.complete
        return answer


@asynccontextmanager
async def indexing(log: EventLog, folder: Path, clock: Callable[[], int] = lambda: NOW_MS) -> AsyncIterator[IndexTrial]:
    """An indexer over this log, with its file in this folder."""
    tasks = BackgroundTasks()
    indexer = Indexer(log, folder / INDEX_NAME, tasks, clock)
    try:
        yield IndexTrial(indexer)
    finally:
        await tasks.close(WAIT_S)
        await indexer.close()


def contents(folder: Path) -> tuple[set[tuple[object, ...]], set[tuple[object, ...]]]:
    """Everything that can be found and counted. The index must be closed, or caught up."""
    with closing(sqlite3.connect(folder / INDEX_NAME)) as connection:
        entries = connection.execute(
            "SELECT session_id, event_id, kind, text FROM entry JOIN entry_text USING (id) "
            "JOIN session USING (session_key)"
        ).fetchall()
        usage = connection.execute("SELECT session_id, usage.* FROM usage JOIN session USING (session_key)").fetchall()
        cursors = connection.execute("SELECT session_id, created_ms, last, archived, fold FROM session").fetchall()
    assert len(set(entries)) == len(entries)
    return set(entries), {(one[0], *one[2:]) for one in usage} | set(cursors)
