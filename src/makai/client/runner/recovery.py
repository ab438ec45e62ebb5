"""How a run continues after its process ended: with the harness' own session, else with a prompt that has what was
recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from makai.harness.contract.events import (
    AgentErrorEvent,
    AssistantTextEvent,
    Event,
    InitEvent,
    ResultEvent,
    SystemEvent,
    ToolProgressEvent,
    ToolResultEvent,
    ToolUseEvent,
)

MAX_TRANSCRIPT_CHARS: Final = 60_000
_MAX_ENTRY_CHARS: Final = 2_000
CONTINUE_PROMPT: Final = (
    "This session was interrupted. Look at the state of the working tree, then continue the task where you left off."
)


def transcript_prompt(task: str, events: Sequence[Event], follow_up: str = "") -> str:
    """A prompt for an agent that remembers nothing: the task, and the end of what another one recorded about it."""
    entries = [entry for event in events if (entry := _entry(event))]
    kept, size = list[str](), 0
    for entry in reversed(entries):
        size += len(entry) + 1
        if size > MAX_TRANSCRIPT_CHARS:
            break
        kept.append(entry)
    left_out = len(entries) - len(kept)
    head = [f"[{left_out} earlier entries are left out]"] if left_out else []
    record = "\n".join([*head, *reversed(kept)]) or "(nothing was recorded)"
    return (
        f"An earlier agent worked on this task in this folder and was interrupted. Its changes are in the working "
        f"tree.\n\n<task>\n{task}\n</task>\n\n<record>\n{record}\n</record>\n\n"
        f"{follow_up or 'Check what is already done, then finish the task.'}"
    )


def _entry(event: Event) -> str:
    """One line or paragraph of the record. Empty for an event that helps no reader."""
    match event:
        case AssistantTextEvent(text=text):
            return f"agent: {_clipped(text.strip())}" if text.strip() else ""
        case ToolUseEvent(tool_name=name, input=values):
            return f"call {name}: {_clipped(msgspec.json.encode(values).decode())}"
        case ToolResultEvent(content=content, is_error=is_error):
            return f"{'error' if is_error else 'output'}: {_clipped(content.strip())}"
        case ResultEvent(success=success, errors=errors):
            return "" if success else f"failed: {_clipped('; '.join(errors))}"
        case AgentErrorEvent(message=message):
            return f"failed: {_clipped(message)}"
        case InitEvent() | SystemEvent() | ToolProgressEvent():
            return ""
        case _:
            assert_never(event)


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_ENTRY_CHARS else text[: _MAX_ENTRY_CHARS - 1] + "…"
