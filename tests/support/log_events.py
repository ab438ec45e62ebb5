"""Events for tests of logs."""

from __future__ import annotations

from makai.core.session_events import AssistantTextDelta, Notice, SessionEvent, ToolProgress
from makai.sessions.log.base import Pending

NOW_MS = 1_700_000_000_000


def pending(*events: SessionEvent, ts: int = NOW_MS, run_id: str | None = "run-1") -> list[Pending]:
    return [Pending(ts, run_id, event) for event in events]


def words(*texts: str, content_index: int = 0) -> list[Pending]:
    return pending(*(AssistantTextDelta(content_index=content_index, delta=text) for text in texts))


def steps(count: int, text: str = "one more line of output") -> list[Pending]:
    """Events that are not joined."""
    return pending(*(ToolProgress(call_id="call-1", text=text) for _ in range(count)))


def marked(session_id: str, first: int, count: int, mark: str) -> list[Pending]:
    """Events that say what they are: whose, which number, and who wrote them."""
    texts = [f"{session_id} {number} {mark}" for number in range(first, first + count)]
    return pending(*(Notice(level="info", code="mark", message=text) for text in texts))
