"""The conversation so far as one text, for an agent that begins a session of its own in the middle of ours. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makai.core.content import Text, words_of
from makai.core.messages import AssistantMessage, Message, ToolMessage, UserMessage

MAX_LENGTH: Final = 60_000
"""Of the whole transcript: the newest messages are kept."""
MAX_RESULT_LENGTH: Final = 1_000
"""Of one tool's output."""


def transcript(messages: Sequence[Message]) -> Text | None:
    """What was said and done before; None when that is nothing."""
    entries = [entry for message in messages if (entry := _entry(message))]
    if not entries:
        return None
    kept: list[str] = []
    left = MAX_LENGTH
    for entry in reversed(entries):
        left -= len(entry)
        if left < 0:
            kept.append(f"[{len(entries) - len(kept)} earlier messages are left out]")
            break
        kept.append(entry)
    lines = "\n\n".join(reversed(kept))
    return Text(
        text="This is the transcript of the conversation so far, which another agent or an earlier process of yours "
        f"had with the user. Continue from it; do not repeat it.\n<transcript>\n{lines}\n</transcript>"
    )


def _entry(message: Message) -> str:
    match message:
        case UserMessage(content=content):
            return f"User: {words_of(content)}"
        case AssistantMessage():
            calls = message.tool_calls()
            called = [f"[called {call.name} {call.arguments_json[:MAX_RESULT_LENGTH]}]" for call in calls]
            said = "\n".join(filter(None, (message.text(), *called)))
            return f"Assistant: {said}" if said else ""
        case ToolMessage(result=result):
            words = words_of(result.content)
            cut = words if len(words) <= MAX_RESULT_LENGTH else f"{words[:MAX_RESULT_LENGTH]} [cut]"
            return f"Result of {result.tool_name}: {cut}"
        case _:
            return ""
