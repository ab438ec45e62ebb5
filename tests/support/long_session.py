"""A session that went on for long, written into the log of a server that is not running yet."""

from __future__ import annotations

from pathlib import Path

from makai.sessions.commands import Create
from makai.sessions.log.base import Pending
from makai.sessions.log.sqlite import SqliteLog
from support.live_sessions import SCENARIO_MODEL
from support.session_trials import Trial

_BATCH = 1_000


async def write_long_session(home: Path, session_id: str, exchanges: int, *, answer: str = "") -> None:
    trial = Trial()
    trial.do(Create(now=trial.now, model_ref=SCENARIO_MODEL, title="A long one"))
    for number in range(exchanges):
        trial.now += 1_000
        trial.send(f"question {number}")
        trial.answer(f"This is **answer {number}**. {answer}")
    pending = [Pending(logged.ts, logged.run_id, logged.event) for logged in trial.log]
    log = await SqliteLog.open(home)
    try:
        last = 0
        for start in range(0, len(pending), _BATCH):
            _, last = await log.append(session_id, pending[start : start + _BATCH], last)
    finally:
        await log.close()
