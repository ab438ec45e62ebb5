"""Content of a session as blocks of the protocol, and back. Pure."""

from __future__ import annotations

import msgspec

from makai.core.content import Audio, Image, Resource, ResourceLink, SessionPart, Text
from makai.core.errors import InvalidRequest
from makai.wire.acp import common as wire
from makai.wire.acp.connecting import PromptCapabilities


def part_of(block: wire.ContentBlock) -> SessionPart:
    match block:
        case wire.TextBlock(text=text):
            return Text(text=text)
        case wire.ImageBlock(data=data, mime_type=mime_type):
            return Image(data=data, mime_type=mime_type)
        case wire.AudioBlock(data=data, mime_type=mime_type):
            return Audio(data=data, mime_type=mime_type)
        case wire.ResourceLinkBlock():
            return ResourceLink(**{name: getattr(block, name) for name in ResourceLink.__struct_fields__})
        case wire.EmbeddedResource(resource=resource):
            return Resource(uri=resource.uri, text=resource.text, data=resource.blob, mime_type=resource.mime_type)


def prompt_blocks(
    content: str | tuple[SessionPart, ...], taken: PromptCapabilities, title: str
) -> tuple[wire.ContentBlock, ...]:
    """A prompt as the agent takes it (ACP-CLIENT-003): what it cannot embed becomes a link, and a picture or sound that
    it does not take is refused with `InvalidRequest`."""
    parts = (Text(text=content),) if isinstance(content, str) else content
    return tuple(_block(part, taken, title) for part in parts)


def _block(part: SessionPart, taken: PromptCapabilities, title: str) -> wire.ContentBlock:
    match part:
        case Text(text=text):
            return wire.TextBlock(text=text)
        case Image(data=data, mime_type=mime_type) if taken.image:
            return wire.ImageBlock(data=data, mime_type=mime_type)
        case Audio(data=data, mime_type=mime_type) if taken.audio:
            return wire.AudioBlock(data=data, mime_type=mime_type)
        case Image() | Audio():
            kind = type(part).__name__.lower()
            raise InvalidRequest(f"{title} takes no {kind}.", hint=f"Send the message again without the {kind}.")
        case Resource(uri=uri, text=text, data=data, mime_type=mime_type) if taken.embedded_context:
            blob = None if text is not None else data or ""
            held = wire.ResourceContents(uri=uri, mime_type=mime_type, text=text, blob=blob)
            return wire.EmbeddedResource(resource=held)
        case Resource(uri=uri, text=text) if text is not None and not uri.startswith("file:"):
            # A link is enough only where the agent can read what it leads to.
            return wire.TextBlock(text=f'<resource uri="{uri}">\n{text}\n</resource>')
        case Resource(uri=uri, mime_type=mime_type):
            return wire.ResourceLinkBlock(uri=uri, name=_name_of(uri), mime_type=mime_type)
        case ResourceLink(uri=uri, name=name):
            return wire.ResourceLinkBlock(**msgspec.structs.asdict(part) | {"name": name or _name_of(uri)})


def raw_text(raw: msgspec.Raw | msgspec.UnsetType) -> str | None:
    """Raw JSON as text; None for what is absent or null."""
    text = None if raw is msgspec.UNSET else bytes(raw).decode()
    return None if text == "null" else text


def _name_of(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2] or uri
