"""Many small sessions, written into the log of a server that is not running yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from makai.sessions.commands import Create
from makai.sessions.log.base import Pending
from makai.sessions.log.sqlite import SqliteLog
from support.live_sessions import SCENARIO_MODEL
from support.session_trials import Trial


class SmallSession(msgspec.Struct, frozen=True):
    """A session of one question and one answer."""

    session_id: str
    title: str
    updated_ms: int
    cwd: str | None = None
    made_by: str = ""
    question: str = "A question"
    answer: str = "An answer."


async def write_sessions(home: Path, sessions: Iterable[SmallSession]) -> None:
    log = await SqliteLog.open(home)
    try:
        for session in sessions:
            trial = Trial()
            trial.now = session.updated_ms
            trial.do(
                Create(
                    now=trial.now,
                    model_ref=SCENARIO_MODEL,
                    title=session.title,
                    cwd=session.cwd,
                    made_by=session.made_by,
                )
            )
            trial.send(session.question)
            trial.answer(session.answer)
            pending = [Pending(logged.ts, logged.run_id, logged.event) for logged in trial.log]
            await log.append(session.session_id, pending, 0)
    finally:
        await log.close()
