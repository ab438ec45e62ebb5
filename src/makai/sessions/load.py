"""What the live sessions of a process are doing, added up when an operator's tool asks."""

from __future__ import annotations

from collections.abc import Iterable

from makai.core.observation import SessionLoad
from makai.sessions.live import LiveSession


def load_of(sessions: Iterable[LiveSession]) -> SessionLoad:
    live = active = approvals = queued = facts = followers = 0
    for session in sessions:
        state = session.state
        live += 1
        queued += len(state.waiting)
        facts += session.pending_facts
        followers += len(session.on_change)
        if (run := state.active_run) is not None:
            active += 1
            approvals += len(run.pending())
    return SessionLoad(
        live=live,
        active_runs=active,
        approvals_waiting=approvals,
        queued_inputs=queued,
        pending_facts=facts,
        followers=followers,
    )
