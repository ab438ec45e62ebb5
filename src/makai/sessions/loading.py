"""Reads the state of a session from its log: the newest checkpoint, and what was appended after it."""

from __future__ import annotations

from typing import Final

import msgspec

from makai.sessions.log import base
from makai.sessions.state import SessionState, evolve, unpacked

STATE_FORMAT: Final = 3
"""Of `state.packed`; a checkpoint of another format is not read."""


async def read_state(log: base.EventLog, session_id: str, summary: base.SessionSummary) -> tuple[SessionState, int]:
    """The state, and the last event that the checkpoint covers; 0 without one."""
    state = SessionState()
    checkpoint = await log.checkpoint(session_id)
    if checkpoint is not None and checkpoint.format == STATE_FORMAT:
        try:
            state = unpacked(checkpoint.data)
        except msgspec.DecodeError:
            state = SessionState()  # of an older makai
    checkpointed = state.last_event_id
    async for logged in base.replay(log, session_id, checkpointed, deltas=False):
        state = evolve(state, logged)
    # Deltas at the very end were not read, and change nothing but the numbers.
    last_ts = max(state.last_ts, summary.updated_ms)
    return msgspec.structs.replace(state, last_event_id=summary.events, last_ts=last_ts), checkpointed
