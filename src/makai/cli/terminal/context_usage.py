"""`/context`: what fills the context window of a session's model, by kind. Pure.

The provider counts the whole; the parts are estimated from their length, and what is left of the whole is the system
prompt with the definitions of the tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from makai.agent.conversation import estimated_tokens
from makai.cli.terminal.styled_text import Line, Lines, Span, line
from makai.cli.terminal.usage_text import tokens
from makai.core.content import Image, Text, Thinking, ToolCall
from makai.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from makai.core.session_events import UsageReported

BAR: Final = 24
MAX_TOOLS: Final = 5
SUMMARY, OWN, PICTURES, ANSWERS = "summary of what came before", "your messages and files", "pictures", "answers"
THINKING, CALLS, RESULTS, REST = "thinking", "tool calls", "tool results", "system prompt and tools"


def context_lines(
    messages: Sequence[Message], usage: UsageReported | None, *, is_compacted: bool, window: int | None = None
) -> Lines:
    """`window` is that of the model by its description, for as long as nothing was reported."""
    kinds, tools = _kinds(messages, is_compacted=is_compacted)
    estimated = sum(kinds.values())
    counted = usage.context_tokens if usage is not None else None
    if counted is not None and counted > estimated:
        kinds[REST] = counted - estimated
    window = (usage.context_window if usage is not None else None) or window
    whole = max(counted or 0, estimated)
    share = f" of {tokens(window)} ({100 * whole / window:.0f}%)" if window else ""
    source = "counted by the provider" if counted is not None and counted >= estimated else "estimated"
    rows: list[Line] = [line(Span(f"  {tokens(whole)}{share} tokens in context, {source}", "bold"))]
    rows += [_row(kind, count, whole) for kind, count in kinds.most_common() if count]
    if window and window > whole:
        rows.append(line(Span(f"  {'free':<28} {tokens(window - whole):>7}", "dim")))
    if tools:
        largest = ", ".join(f"{name} {tokens(count)}" for name, count in tools.most_common(MAX_TOOLS))
        rows.append(line(Span(f"  Largest tool results: {largest}", "dim")))
    if counted is None:
        rows.append(line(Span("  The provider has counted nothing yet; its prompt and tools come on top.", "dim")))
    rows.append(line(Span("  The parts are estimates. /compact replaces the conversation by a summary.", "dim")))
    return Lines(lines=tuple(rows))


def _row(kind: str, count: int, whole: int) -> Line:
    bar = "█" * max(1, round(BAR * count / whole))
    return line(
        Span(f"  {kind:<28} {tokens(count):>7}  "), Span(bar, "key"), Span(f" {100 * count / whole:.0f}%", "dim")
    )


def _kinds(messages: Sequence[Message], *, is_compacted: bool) -> tuple[Counter[str], Counter[str]]:
    """Estimated tokens by kind, and of tool results by tool."""
    kinds: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    for index, message in enumerate(messages):
        whole = estimated_tokens([message])
        match message:
            case ToolMessage(result=result):
                kinds[RESULTS] += whole
                tools[result.tool_name] += whole
            case UserMessage() if index == 0 and is_compacted:
                kinds[SUMMARY] += whole
            case UserMessage(content=content):
                media = () if isinstance(content, str) else tuple(part for part in content if isinstance(part, Image))
                pictures = estimated_tokens([UserMessage(content=media)]) if media else 0
                kinds[PICTURES] += pictures
                kinds[OWN] += max(0, whole - pictures)
            case AssistantMessage(content=parts):
                for part in parts:
                    kinds[_kind_of(part)] += estimated_tokens([AssistantMessage(content=(part,))])
    return kinds, tools


def _kind_of(part: Text | Thinking | ToolCall) -> str:
    match part:
        case Text():
            return ANSWERS
        case Thinking():
            return THINKING
        case ToolCall():
            return CALLS
