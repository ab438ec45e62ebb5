"""Content parts: what a message is made of.

In: values from any vendor or client. Out: frozen Structs tagged by `type`, spelled as document 000 §3 spells
them, so that the Makai protocol needs no second set of types. No vendor knows this file and it knows none.

A *signature* is an opaque proof a vendor attaches to its own output (Anthropic thinking signatures, Gemini thought
signatures, OpenAI encrypted reasoning). It is kept byte for byte and sent back only to the model that made it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every content part."""


class Text(Part, frozen=True, tag_field="type", tag="text"):
    """Words for the reader."""

    text: str
    text_signature: str | None = None


class Thinking(Part, frozen=True, tag_field="type", tag="thinking"):
    """The model's reasoning, as far as its vendor shows it."""

    thinking: str
    thinking_signature: str | None = None
    redacted: bool = False
    """The vendor withheld the text; only the signature is there, and it must be sent back."""


class Image(Part, frozen=True, tag_field="type", tag="image"):
    """A picture, base64 in `data`."""

    data: str
    mime_type: str


class Audio(Part, frozen=True, tag_field="type", tag="audio"):
    """A sound, base64 in `data`."""

    data: str
    mime_type: str


class ToolCall(Part, frozen=True, tag_field="type", tag="tool_call"):
    """The model wants a tool to run.

    `arguments_json` is exactly what the model wrote. When that is not a JSON object, `arguments_error` says
    why; nobody may replace it by `{}` (a call with invented arguments is worse than a failed call).
    """

    tool_call_id: str
    name: str
    arguments_json: str
    thought_signature: str | None = None
    arguments_error: str | None = None


class ToolResult(Part, frozen=True, tag_field="type", tag="tool_result"):
    """What a tool answered."""

    tool_call_id: str
    tool_name: str
    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    details_json: str | None = None

    def text(self) -> str:
        """The answer as plain text, images left out."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


AssistantPart: TypeAlias = Text | Thinking | ToolCall
UserPart: TypeAlias = Text | Image | Audio
ContentPart: TypeAlias = Text | Thinking | Image | Audio | ToolCall | ToolResult
