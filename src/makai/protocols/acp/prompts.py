"""Content blocks of the protocol to content of a session, and back.

A prompt is checked before it becomes an event: what `initialize` did not offer, what is no base64 and what the log
could not hold is refused with -32602, and nothing of it is kept. Embedded bytes become what a model can read where that
is possible: text when they are UTF-8, a picture when they are one.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

import msgspec

from makai.core.content import Audio, Image, Resource, ResourceLink, SessionPart, Text
from makai.core.sanitize import sanitize
from makai.wire import json_rpc
from makai.wire.acp.common import (
    AudioBlock,
    ContentBlock,
    EmbeddedResource,
    ImageBlock,
    ResourceContents,
    ResourceLinkBlock,
    TextBlock,
)
from makai.wire.acp.connecting import PromptCapabilities
from makai.wire.json_rpc_errors import RpcError

MAX_PROMPT_BYTES: Final = 12 * 1024 * 1024
"""An input is one event of the log, which holds 16 MB of JSON."""
MAX_BLOCKS: Final = 1_000
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/javascript")


def prompt_content(blocks: Sequence[ContentBlock], offered: PromptCapabilities) -> str | tuple[SessionPart, ...]:
    """The content of an input; a single text is a string. `RpcError` -32602 says which block cannot be taken."""
    if len(blocks) > MAX_BLOCKS:
        raise _refused(f"The prompt has {len(blocks):,} blocks; at most {MAX_BLOCKS:,} are taken.")
    size = sum(map(_size, blocks))
    if size > MAX_PROMPT_BYTES:
        mb = 1024 * 1024
        raise _refused(f"The prompt has {size / mb:.1f} MB; at most {MAX_PROMPT_BYTES // mb} MB are taken.")
    parts = sanitize(tuple(_part(block, offered, f"prompt[{index}]") for index, block in enumerate(blocks)))
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise _refused("The prompt is empty.")
    match parts:
        case (Text(text=text),):
            return text
        case _:
            return parts


def content_blocks(content: str | Iterable[SessionPart]) -> list[ContentBlock]:
    """Content of a session as blocks, for replay and for results of tools."""
    return [TextBlock(text=content)] if isinstance(content, str) else list(map(_block, content))


def _block(part: SessionPart) -> ContentBlock:
    match part:
        case Text(text=text):
            return TextBlock(text=text)
        case Image(data=data, mime_type=mime_type):
            return ImageBlock(data=data, mime_type=mime_type)
        case Audio(data=data, mime_type=mime_type):
            return AudioBlock(data=data, mime_type=mime_type)
        case ResourceLink(uri=uri, name=name):
            return ResourceLinkBlock(**msgspec.structs.asdict(part) | {"name": name or uri})
        case Resource(uri=uri, text=text_or_none, data=blob, mime_type=resource_type):
            # Exactly one of both, whatever an agent reported (ACP-PROMPT-005).
            words = text_or_none if text_or_none is not None or blob is not None else ""
            contents = ResourceContents(
                uri=uri, mime_type=resource_type, text=words, blob=blob if words is None else None
            )
            return EmbeddedResource(resource=contents)
        case _:
            assert_never(part)


def _part(block: ContentBlock, offered: PromptCapabilities, where: str) -> SessionPart:
    match block:
        case TextBlock(text=text):
            return Text(text=text)
        case ResourceLinkBlock():
            return ResourceLink(**{name: getattr(block, name) for name in ResourceLink.__struct_fields__})
        case ImageBlock(data=data, mime_type=mime_type):
            _check_offered(offered.image, "image", where)
            _check_media(data, mime_type, "image", where)
            return Image(data=data, mime_type=mime_type)
        case AudioBlock(data=data, mime_type=mime_type):
            _check_offered(offered.audio, "audio", where)
            _check_media(data, mime_type, "audio", where)
            return Audio(data=data, mime_type=mime_type)
        case EmbeddedResource(resource=resource):
            _check_offered(offered.embedded_context, "resource", where)
            return _resource(resource, offered, where)
        case _:
            assert_never(block)


def _resource(resource: ResourceContents, offered: PromptCapabilities, where: str) -> SessionPart:
    mime_type = resource.mime_type or ""
    if resource.blob is None:
        return Resource(uri=resource.uri, text=resource.text, mime_type=resource.mime_type)
    data = _decoded(resource.blob, where)
    if mime_type.startswith("image/") and offered.image and data:
        return Image(data=resource.blob, mime_type=mime_type)
    if not mime_type or mime_type.startswith(_TEXT_TYPES):
        try:
            return Resource(uri=resource.uri, text=data.decode("utf-8"), mime_type=resource.mime_type)
        except UnicodeDecodeError:
            pass
    return Resource(uri=resource.uri, data=resource.blob, mime_type=resource.mime_type)


def _size(block: ContentBlock) -> int:
    match block:
        case TextBlock(text=text):
            return _bytes(text)
        case ImageBlock(data=data) | AudioBlock(data=data):
            return len(data)
        case ResourceLinkBlock():
            return sum(_bytes(text or "") for text in (block.uri, block.name, block.title, block.description))
        case EmbeddedResource(resource=resource):
            return _bytes(resource.uri) + _bytes(resource.text or "") + len(resource.blob or "")
        case _:
            assert_never(block)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _check_offered(is_offered: bool, kind: str, where: str) -> None:
    if not is_offered:
        raise _refused(f"{where}: blocks of type {kind} are not taken here (see promptCapabilities).")


def _check_media(data: str, mime_type: str, kind: str, where: str) -> None:
    if not mime_type.lower().startswith(f"{kind}/"):
        raise _refused(f"{where}: {mime_type[:100]!r} is no type of {kind}.")
    if not _decoded(data, where):
        raise _refused(f"{where}: the {kind} is empty.")


def _decoded(data: str, where: str) -> bytes:
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        raise _refused(f"{where}: the data is not valid base64.") from None


def _refused(message: str) -> RpcError:
    return RpcError(json_rpc.INVALID_PARAMS, message)
