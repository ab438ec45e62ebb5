"""Content parts: what a message is made of.

The Structs are spelled as the Makai protocol spells them, so that it needs no second set of types. Models are sent
`UserPart` and the parts of `ToolResult`; sessions also log `Resource` and `ResourceLink`, which `for_model` turns into
text.

A *signature* is an opaque proof a vendor attaches to its own output (Anthropic thinking signatures, Gemini thought
signatures, OpenAI encrypted reasoning). It is kept byte for byte and sent back only to the model that made it.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

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


class Resource(Part, frozen=True, tag_field="type", tag="resource"):
    """The content of a file or document that a client attached: `text`, or base64 in `data`."""

    uri: str
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None


class ResourceLink(Part, frozen=True, tag_field="type", tag="resource_link"):
    """A file or document that the agent may read."""

    uri: str
    name: str = ""
    mime_type: str | None = None
    title: str | None = None
    description: str | None = None
    size: int | None = None
    """In bytes."""


class ToolCall(Part, frozen=True, tag_field="type", tag="tool_call"):
    """The model wants a tool to run.

    `arguments_json` is exactly what the model wrote. When that is not a JSON object, `arguments_error` says
    why; it is never replaced by `{}` (a call with invented arguments is worse than a failed call).
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

    def images(self) -> list[Image]:
        return [part for part in self.content if isinstance(part, Image)]


AssistantPart: TypeAlias = Text | Thinking | ToolCall
UserPart: TypeAlias = Text | Image | Audio
SessionPart: TypeAlias = Text | Image | Audio | Resource | ResourceLink
"""What people and tools may say in a session."""
ContentPart: TypeAlias = Text | Thinking | Image | Audio | ToolCall | ToolResult


def for_model(part: SessionPart) -> UserPart:
    match part:
        case Resource(text=None):
            return Text(text=f"[The content of {part.uri} is not text.]")
        case Resource():
            return Text(text=f'<resource uri="{part.uri}">\n{part.text}\n</resource>')
        case ResourceLink():
            about = f": {part.description}" if part.description else ""
            return Text(text=f"[{part.name or 'resource'}]({part.uri}){about}")
        case _:
            return part


def content_for_model(content: str | tuple[SessionPart, ...]) -> str | tuple[UserPart, ...]:
    return content if isinstance(content, str) else tuple(map(for_model, content))


PartT = TypeVar("PartT", bound=Part)


def with_note(note: str, content: str | tuple[PartT, ...]) -> tuple[Text | PartT, ...]:
    """The content after a text of its own."""
    return (Text(text=note), Text(text=content)) if isinstance(content, str) else (Text(text=note), *content)


def words_of(content: str | tuple[SessionPart, ...]) -> str:
    """The text of a content; other parts by their names."""
    if isinstance(content, str):
        return content
    return "\n".join(
        part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in map(for_model, content)
    )


def title_words(content: str | tuple[SessionPart, ...]) -> str:
    """The words of an input for a title: what a person wrote, with the names of what is mentioned between the words;
    without words the names of what is attached."""
    if isinstance(content, str):
        return content
    words = [index for index, part in enumerate(content) if isinstance(part, Text) and part.text.strip()]
    named = content[words[0] : words[-1] + 1] if words else content
    return " ".join(part.text if isinstance(part, Text) else _name(part) for part in named)


def _name(part: SessionPart) -> str:
    match part:
        case ResourceLink(name=name) if name:
            return name
        case ResourceLink(uri=uri) | Resource(uri=uri):
            return uri.rstrip("/").rpartition("/")[2]
        case _:
            return f"[{type(part).__name__.lower()}]"


def own_words(content: str | tuple[SessionPart, ...]) -> str:
    """The text that a person wrote, without what is attached to it."""
    return content if isinstance(content, str) else "\n".join(part.text for part in content if isinstance(part, Text))
