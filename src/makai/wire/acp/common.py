"""Content blocks, and the base of every ACP message.

Unknown members are ignored, as the protocol wants it; what must pass through unchanged stays raw JSON. An optional
member is left out when it has its default, so none is sent as `null` (ACP-INIT-009). Where `null` means something else
than an absent member, the default is `UNSET`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of every object of the protocol."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    """What a caller attaches; carried unchanged, never interpreted as a parameter (ACP-EXT-003)."""


class Empty(Wire, frozen=True, kw_only=True):
    """The result of requests that only succeed; the presence of a capability."""


class Implementation(Wire, frozen=True, kw_only=True):
    """The name and version of a program."""

    name: str
    version: str
    title: str | None = None


class Annotations(Wire, frozen=True, kw_only=True):
    audience: tuple[Literal["assistant", "user"], ...] | None = None
    last_modified: str | None = None
    priority: float | None = None


class _Block(Wire, frozen=True, kw_only=True, tag_field="type"):
    annotations: Annotations | None = None


class TextBlock(_Block, frozen=True, kw_only=True, tag="text"):
    text: str


class ImageBlock(_Block, frozen=True, kw_only=True, tag="image"):
    data: str
    """Base64."""
    mime_type: str
    uri: str | None = None


class AudioBlock(_Block, frozen=True, kw_only=True, tag="audio"):
    data: str
    """Base64."""
    mime_type: str


class ResourceLinkBlock(_Block, frozen=True, kw_only=True, tag="resource_link"):
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class ResourceContents(Wire, frozen=True, kw_only=True):
    """The text or the base64 bytes of a resource: exactly one of both (ACP-PROMPT-005)."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.blob is None):
            raise ValueError("a resource has either `text` or `blob`")


class EmbeddedResource(_Block, frozen=True, kw_only=True, tag="resource"):
    resource: ResourceContents


ContentBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock | ResourceLinkBlock | EmbeddedResource


class NameValue(Wire, frozen=True, kw_only=True):
    """An environment variable or an HTTP header."""

    name: str
    value: str
