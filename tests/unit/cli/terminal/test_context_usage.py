"""`/context` says what fills the window."""

from __future__ import annotations

from makai.cli.terminal.context_usage import context_lines
from makai.cli.terminal.styled_text import plain
from makai.core.content import Image, Text, Thinking, ToolCall, ToolResult
from makai.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from makai.core.session_events import UsageReported
from makai.core.usage import Usage

MESSAGES: list[Message] = [
    UserMessage(content="s" * 400),
    UserMessage(content=(Text(text="u" * 400), Image(data="", mime_type="image/png"))),
    AssistantMessage(
        content=(
            Thinking(thinking="t" * 800),
            Text(text="a" * 1_200),
            ToolCall(tool_call_id="1", name="read", arguments_json="{}"),
        )
    ),
    ToolMessage(result=ToolResult(tool_call_id="1", tool_name="read", content="r" * 4_000)),
]


def rows(usage: UsageReported | None, *, is_compacted: bool) -> list[str]:
    return plain([context_lines(MESSAGES, usage, is_compacted=is_compacted)]).splitlines()


def test_every_kind_has_its_number_and_the_rest_is_the_prompt() -> None:
    usage = UsageReported(total=Usage(), context_tokens=10_000, context_window=40_000)

    found = rows(usage, is_compacted=True)

    assert found[0] == "  10.0k of 40.0k (25%) tokens in context, counted by the provider"
    assert sorted(row[2:30].strip() for row in found[1:-3]) == [
        "answers", "pictures", "summary of what came before", "system prompt and tools", "thinking", "tool calls",
        "tool results", "your messages and files",
    ]  # fmt: skip
    assert found[-3] == f"  {'free':<28}   30.0k"
    assert found[-2].startswith("  Largest tool results: read 1.0k")


def test_without_a_count_of_the_provider_the_whole_is_an_estimate() -> None:
    found = plain([context_lines(MESSAGES, None, is_compacted=False, window=40_000)]).splitlines()

    assert found[0] == "  3.2k of 40.0k (8%) tokens in context, estimated"
    assert found[-4] == f"  {'free':<28}   36.8k"
    assert found[-2] == "  The provider has counted nothing yet; its prompt and tools come on top."
    assert not any("summary" in row or "system prompt" in row for row in found[:-1])


def test_an_empty_conversation_has_nothing_to_show() -> None:
    assert plain([context_lines([], None, is_compacted=False)]).splitlines()[0] == "  0 tokens in context, estimated"
