"""Messages, and the conversation a model is asked to continue: frozen Structs tagged by `role`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.core.content import AssistantPart, Text, ToolCall, ToolResult, UserPart
from makai.core.usage import Usage

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "tool_use", "stop_sequence", "max_turns", "refusal", "aborted", "error"
]
"""Why an answer ended: one spelling inside and in the Makai protocol."""

STOP_REASON_ALIASES: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens"}
"""Accepted as input only."""


class SystemMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="role", tag="system"):
    """An instruction from the application, also under the name "developer"."""

    content: str


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """What a person, or a program acting for one, says."""

    content: str | tuple[UserPart, ...]

    def parts(self) -> tuple[UserPart, ...]:
        """The content as parts, whichever way it was written."""
        return (Text(text=self.content),) if isinstance(self.content, str) else self.content


class AssistantMessage(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant", omit_defaults=True
):
    """One model answer: what it said, who said it, what it cost and why it stopped."""

    content: tuple[AssistantPart, ...]
    provider: str = ""
    api: str = ""
    model: str = ""
    usage: Usage = Usage()
    stop_reason: StopReason | None = None
    timestamp: int = 0
    """Unix milliseconds at which the answer began."""
    response_id: str | None = None
    """The vendor's own id of this answer, for their support."""
    error_message: str | None = None

    def text(self) -> str:
        """Everything the model said to the reader, without thinking and tool calls."""
        return "".join(part.text for part in self.content if isinstance(part, Text))

    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCall))


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """The result of one tool call."""

    result: ToolResult


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
