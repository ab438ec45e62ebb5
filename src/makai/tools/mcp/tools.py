"""A tool of an MCP server as a `Tool`, with bounded answers and a fingerprint for approvals.

It holds no connection: a server that was restarted in the meantime is simply called. The SDK is not known here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from makai.core.content import Image, Text
from makai.core.errors import InvalidRequest, MakaiError, TransportError
from makai.core.request import ToolDefinition
from makai.core.sanitize import REPLACED, REPLACEMENT
from makai.core.session_events import Notice
from makai.tools.base import CallDescription, ToolContext, ToolKind, ToolOutcome, text_outcome
from makai.tools.file_errors import printable
from makai.tools.mcp.config import tool_name
from makai.tools.scratch import KEPT_BYTES, CappedOutput

OnProgress: TypeAlias = Callable[[float, float | None, str | None], None]
FINGERPRINT_SHOWN: Final = 32
"""So much of it stands in permission rules, which people read."""
_MAX_TITLE: Final = 120
_MAX_DESCRIPTION: Final = 10_000
_MAX_PROGRESS: Final = 500
_PROGRESS_EVERY_S: Final = 0.1
_CHUNK_BYTES: Final = 64 * 1024


class SessionForgotten(TransportError):
    """The server refused a request because it does not know the session: it has not carried the request out."""


class NotStarted(TransportError):
    """The program of the server could not be started."""


class McpCaller(Protocol):
    name: str

    async def call(self, tool: McpTool, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallResult:
        """Call it; a `MakaiError` when the server is gone, refuses, or now lists another tool under this name."""

    def take_notices(self) -> tuple[Notice, ...]:
        """What people should know about the files that calls left behind."""


class McpTool:
    def __init__(self, caller: McpCaller, identity: str, listing: ToolListing, spill_directory: Path) -> None:
        self._caller = caller
        self._spill_directory = spill_directory
        self.listing = listing
        self.fingerprint = listing.fingerprint(identity)
        """An approval counts for this fingerprint only: when it changes, a person is asked again."""
        self.definition = ToolDefinition(
            name=tool_name(caller.name, listing.name),
            description=(listing.description or listing.shown_title)[:_MAX_DESCRIPTION],
            parameters_schema_json=listing.schema_json(),
        )

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """The tool and its arguments in one line. "read" is what its server claims."""
        if not all(isinstance(name, str) for name in arguments):
            raise InvalidRequest("The arguments are not a JSON object.")
        shown = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in arguments.items())
        title = printable(f"{self._caller.name}: {self.listing.shown_title}({shown})")
        if len(title) > _MAX_TITLE:
            title = f"{title[:_MAX_TITLE]}..."
        kind: ToolKind = "read" if self.listing.read_only else "other"
        return CallDescription(kind=kind, title=title, subject=self.fingerprint[:FINGERPRINT_SHOWN])

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        try:
            outcome = await self._outcome(await self._caller.call(self, arguments, _Progress(context)))
        except MakaiError as error:
            outcome = text_outcome(f"{self._caller.name}: {error}", is_error=True)
        notices = self._caller.take_notices()
        notes = [Text(text=f"[{notice.message}]") for notice in notices]
        if any(isinstance(part, Text) and REPLACEMENT in part.text for part in outcome.content):
            notes.append(Text(text=REPLACED))
        return msgspec.structs.replace(outcome, content=(*outcome.content, *notes), notices=notices)

    async def _outcome(self, result: CallResult) -> ToolOutcome:
        parts = parts_of(result)
        texts = [part.text.encode("utf-8", "replace") for part in parts if isinstance(part, Text)]
        if sum(map(len, texts)) <= KEPT_BYTES:
            return ToolOutcome(content=parts, is_error=result.is_error)
        output = CappedOutput(self._spill_directory)
        try:
            whole = b"\n".join(texts)
            for start in range(0, len(whole), _CHUNK_BYTES):
                await output.add(whole[start : start + _CHUNK_BYTES])
        finally:
            output.close()
        pictures = tuple(part for part in parts if isinstance(part, Image))
        return ToolOutcome(
            content=(Text(text=output.text()), *pictures),
            is_error=result.is_error,
            omitted_bytes=output.omitted,
            spill_path=str(output.spill_path) if output.spill_path else None,
        )


class _Progress:
    """Progress of a call as lines, not more than a watcher can read."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._told_at = float("-inf")

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        if now - self._told_at < _PROGRESS_EVERY_S:
            return
        self._told_at = now
        amount = f"{done:g}" if total is None else f"{done:g} of {total:g}"
        words = f"{amount}: {printable(message[:_MAX_PROGRESS])}" if message else amount
        self._context.progress(f"{words}\n")


_MAX_IMAGES: Final = 20
_MAX_WRAPPING: Final = 3
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
        return self.annotations is not None and self.annotations.read_only_hint is True

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


class _AudioBlock(_ImageBlock, frozen=True, rename="camel", tag_field="type", tag="audio"):
    pass


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
    if result.structured_content is not None and not _repeats(result, parts):
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
        case _ImageBlock(data=data, mime_type=kind):
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


def _repeats(result: CallResult, parts: Sequence[Text | Image]) -> bool:
    """Whether the structured content only repeats the content, which servers should send in both forms: as JSON text,
    or wrapped in a single member, as in {"result": "the text"}, {"content": [the blocks]} or {"items": [each text]}."""
    if not result.content:
        return False
    texts = [part.text for part in parts if isinstance(part, Text)]
    decoded = [_decoded(text) for text in texts]
    said = [*texts, *decoded, "\n".join(texts), texts, decoded, result.content]
    known = {_canonical(one) for one in said}
    value = result.structured_content
    for _ in range(_MAX_WRAPPING):
        if _canonical(value) in known:
            return True
        if not isinstance(value, dict) or len(value) != 1:
            return False
        [value] = value.values()
    return False


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _with_few_images(parts: Sequence[Text | Image]) -> Iterable[Text | Image]:
    shown = 0
    for part in parts:
        shown += isinstance(part, Image)
        if isinstance(part, Image) and shown > _MAX_IMAGES:
            yield Text(text=f"[{part.mime_type}: not shown, there are more than {_MAX_IMAGES} pictures]")
        else:
            yield part
