"""Commands on their way to the next commit."""

from __future__ import annotations

from makai.core.session_events import AssistantTextDelta
from makai.sessions.commands import Report
from makai.sessions.inbox import Inbox


def test_only_deltas_of_one_block_of_one_agent_are_joined() -> None:
    inbox = Inbox()
    for delta, parent in (("a", ""), ("b", ""), ("of a sub-agent", "call-1"), ("c", "")):
        event = AssistantTextDelta(content_index=0, delta=delta, parent_call_id=parent)
        inbox.put_report(1, "run", event)

    taken = [order.whole() for order in inbox.take()]

    assert taken == [
        Report(now=1, run_id="run", event=AssistantTextDelta(content_index=0, delta=delta, parent_call_id=parent))
        for delta, parent in (("ab", ""), ("of a sub-agent", "call-1"), ("c", ""))
    ]
