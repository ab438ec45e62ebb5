"""What an MCP server says about its tools and answers to a call, in our words.

In: `tools/list` entries and `tools/call` results as plain JSON values. Out: a `ToolListing` with its fingerprint; parts
for the model. Pure; it must not know the SDK, servers or connections.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from makai.core.content import Image, Text

_MOST_IMAGES: Final = 20
_SHOWN_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What model APIs take; any other picture is only named."""


class ToolAnnotations(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a server claims about a tool. Only a claim: a server can lie."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolListing(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A tool as its server lists it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None

    @property
    def shown_title(self) -> str:
        """The name for people, by the specification's order of precedence."""
        return self.title or (self.annotations and self.annotations.title) or self.name

    @property
    def read_only(self) -> bool:
        """Whether its server claims that it changes nothing."""
        return self.annotations is not None and self.annotations.read_only_hint is True

    @property
    def destructive(self) -> bool:
        """Whether it may destroy something: always, unless its server claims otherwise (reliability T6)."""
        if self.annotations is None:
            return True
        return not self.read_only and self.annotations.destructive_hint is not False

    def schema_json(self) -> str:
        """The schema of its arguments for a model: always an object with properties, which some APIs insist on."""
        return msgspec.json.encode({"type": "object", "properties": {}, **self.input_schema}).decode()

    def fingerprint(self, server_identity: str) -> str:
        """Changes with anything a person saw or a model was told when the tool was approved, and with its server."""
        told = msgspec.json.encode(self, order="deterministic")
        return hashlib.sha256(server_identity.encode() + b"\0" + told).hexdigest()


class _Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uri: str = ""
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class _TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _ImageBlock(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="image"):
    data: str
    mime_type: str


class _AudioBlock(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="audio"):
    data: str
    mime_type: str


class _ResourceBlock(msgspec.Struct, frozen=True, tag_field="type", tag="resource"):
    resource: _Resource


class _LinkBlock(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="resource_link"):
    uri: str
    name: str = ""
    description: str | None = None
    mime_type: str | None = None


_Block: TypeAlias = _TextBlock | _ImageBlock | _AudioBlock | _ResourceBlock | _LinkBlock


class CallResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a call, as its server sent it. Blocks are read one by one: an odd one must not cost the others."""

    content: tuple[dict[str, Any], ...] = ()
    structured_content: Any = None
    is_error: bool = False


def parts_of(result: CallResult) -> tuple[Text | Image, ...]:
    """What the model sees; pictures beyond a few are named, not shown."""
    parts: list[Text | Image] = [_part(block) for block in result.content]
    if result.structured_content is not None and not _says(parts, result.structured_content):
        parts.append(Text(text=msgspec.json.encode(result.structured_content).decode()))
    return tuple(_with_few_images(parts)) or (Text(text="[no output]"),)


def _part(block: Mapping[str, Any]) -> Text | Image:
    try:
        known: _Block = msgspec.convert(block, _Block)
    except msgspec.ValidationError:
        return Text(text=f"[content of an unknown kind: {str(block.get('type'))[:50]!r}]")
    match known:
        case _TextBlock(text=text):
            return Text(text=text)
        case _ImageBlock(data=data, mime_type=kind) | _AudioBlock(data=data, mime_type=kind):
            return _binary(data, kind, "")
        case _LinkBlock():
            words = (known.name, known.uri, known.mime_type, known.description)
            return Text(text=f"[resource: {', '.join(word for word in words if word)}]")
        case _ResourceBlock(resource=resource):
            if resource.text is not None:
                return Text(text=resource.text)
            return _binary(resource.blob or "", resource.mime_type or "application/octet-stream", resource.uri)


def _binary(data: str, kind: str, uri: str) -> Text | Image:
    place = f" at {uri}" if uri else ""
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return Text(text=f"[{kind[:100]}{place} that is not valid base64]")
    if kind in _SHOWN_IMAGES and size:
        return Image(data=data, mime_type=kind)
    return Text(text=f"[{kind[:100]}{place}, {size:,} bytes: not shown]")


def _says(parts: Sequence[Text | Image], value: Any) -> bool:
    """Whether a text says the same as the structured content, which servers should send in both forms."""
    for part in parts:
        if isinstance(part, Text):
            try:
                if msgspec.json.decode(part.text) == value:
                    return True
            except msgspec.DecodeError:
                continue
    return False


def _with_few_images(parts: Sequence[Text | Image]) -> Iterable[Text | Image]:
    left = _MOST_IMAGES
    for part in parts:
        if isinstance(part, Image):
            left -= 1
            if left < 0:
                yield Text(text=f"[{part.mime_type}: not shown, there are more than {_MOST_IMAGES} pictures]")
                continue
        yield part
