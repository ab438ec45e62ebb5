"""Every read of the durable log shows one moment of it, whatever the owner commits between its statements."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from support.log_events import pending, steps, words
from support.stores import sqlite_log

from makai.core.session_events import ApprovalRequested, SessionCreated
from makai.sessions.log import schema, store
from makai.sessions.log.base import Checkpoint
from makai.sessions.log.sqlite import SqliteLog

Change: TypeAlias = Callable[[SqliteLog], Awaitable[None]]
READS: Final[dict[str, Callable[[SqliteLog], Awaitable[Any]]]] = {
    "session": lambda log: log.session("one"),
    "sessions": lambda log: log.sessions(),
    "events": lambda log: log.read("one"),
    "lines": lambda log: log.read_raw("one"),
    "events without deltas": lambda log: log.read("one", deltas=False),
    "approvals": lambda log: log.pending_approvals(),
    "checkpoint": lambda log: log.checkpoint("one"),
    "check": lambda log: log.check(),
}


async def created(log: SqliteLog) -> None:
    question = ApprovalRequested(call_id="call", name="shell", arguments_json="{}", title="ls", digest="d")
    await log.append("one", [*pending(SessionCreated(model_ref="m"), question), *steps(4), *words("Hello")], 0)
    await log.save_checkpoint("one", Checkpoint(2, 1, b"state"))


async def appended(log: SqliteLog) -> None:
    await log.append("one", steps(1), await log.last("one"))


async def replaced(log: SqliteLog) -> None:
    """Delete the session and a part of its events, or make another one of the same name."""
    if await log.delete("one"):
        await log.trust("/somewhere", True)  # is carried out after a part of the events was removed
    else:
        await created(log)


@pytest.mark.parametrize("undisturbed", range(3))
@pytest.mark.parametrize("change", [appended, replaced])
@pytest.mark.parametrize("kind", READS)
async def test_a_read_shows_one_moment_of_the_log(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str, change: Change, undisturbed: int
) -> None:
    """With a commit before each further statement of a read, the answer is that of one moment between two commits."""
    read, purge, opened, loop = READS[kind], store.purge, schema.open_reader, asyncio.get_running_loop()
    statements, is_counting = 0, False

    async def disturb() -> None:
        await change(log)
        moments.append(await read(log))

    def before_statement(statement: str) -> None:
        nonlocal statements, is_counting
        statements += is_counting
        if is_counting and statements > undisturbed:
            is_counting = False
            asyncio.run_coroutine_threadsafe(disturb(), loop).result(30)
            is_counting = True

    def open_traced(path: Path) -> sqlite3.Connection:
        reader = opened(path)
        reader.set_trace_callback(before_statement)
        return reader

    monkeypatch.setattr(store, "purge", lambda connection, most: purge(connection, 3) and False)
    monkeypatch.setattr(schema, "open_reader", open_traced)
    async with sqlite_log(home) as log:
        await created(log)
    async with sqlite_log(home) as log:  # a new owner: nothing is answered from memory
        moments = [await read(log)]
        is_counting = True
        answer = await read(log)
        is_counting = False

    assert (statements > 0, len(moments)) == (True, 1 + max(statements - undisturbed, 0))
    assert answer in moments
