"""The tools `read` and `list`.

Whatever the file (2 GB, one endless line, binary, not UTF-8), a read holds a few hundred KiB of it at most.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import io
import time
from collections import OrderedDict
from typing import Annotated

import msgspec

from makai.core.content import Image
from makai.core.session_events import FilePlace
from makai.tools import base
from makai.tools.base import Arguments, ArgumentsT, CallDescription, ToolContext, ToolOutcome, text_outcome
from makai.tools.file_errors import FileRefused, missing, printable
from makai.tools.hidden import has_denied_name
from makai.tools.permissions.git_credentials import REASON, holds_credentials
from makai.tools.permissions.path_patterns import NOTHING_DENIED, DeniedPaths
from makai.tools.ports import FileSystem
from makai.tools.workspace import OpenedFile, Place

DEFAULT_LINES = 2_000
MAX_SHOWN_BYTES = 256 * 1024
MAX_LINE = 2_000
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_ENTRIES = 1_000
MAX_READ_S = 20.0
_BLOCK = 1024 * 1024
SNIFFED_BYTES = 8 * 1024
_MAX_DESCRIBED = 1_000

_MARKS = {"directory": "/", "link": "@", "other": "  (device, pipe or socket)"}
_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class ReadArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(description="The file, from the session's folder or absolute.")]
    offset: Annotated[int, msgspec.Meta(ge=1, le=2**53, description="The first line to show; 1 is the first.")] = 1
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000, description="How many lines to show.")] = DEFAULT_LINES


class _ReadingTool(base.ArgumentsTool[ArgumentsT]):
    def __init__(self, files: FileSystem, denied: DeniedPaths = NOTHING_DENIED) -> None:
        self._files = files
        self._denied = denied
        self._places = DescribedPlaces()


class ReadTool(_ReadingTool[ReadArguments]):
    shape = ReadArguments
    definition = base.definition(
        "read",
        "Read a file. Text comes with line numbers (number, tab, line); the numbers are not part of the file. Long "
        "files are shown in parts: pass `offset` and `limit` for the rest. PNG, JPEG, GIF and WebP files are shown as "
        "images.",
        ReadArguments,
    )

    async def _describe(self, wanted: ReadArguments) -> CallDescription:
        place = self._files.place(wanted.path)
        self._places.keep(wanted.path, place)
        where = (FilePlace(path=printable(place.absolute), line=wanted.offset),)
        asks = await asyncio.to_thread(holds_credentials, place.absolute)
        return CallDescription(
            kind="read",
            title=f"Read {place.shown}",
            subject=place.shown,
            locations=where,
            asks=asks,
            asks_because=REASON if asks else "",
        )

    async def _run(self, wanted: ReadArguments, context: ToolContext) -> ToolOutcome:
        return await self._files.read(wanted.path, lambda file: self._shown(file, wanted))

    def _shown(self, file: OpenedFile, wanted: ReadArguments) -> ToolOutcome:
        self.check(file, wanted.path)
        stream = file.stream
        head = stream.read(SNIFFED_BYTES)
        if image := image_type(head):
            return _image(head + stream.read(MAX_IMAGE_BYTES + 1 - len(head)), image)
        if why := binary_reason(head):
            return text_outcome(f"{printable(wanted.path)} is {why} ({file.size:,} bytes).", is_error=True)
        stream.seek(0)
        return _numbered(stream, wanted)

    def check(self, file: OpenedFile, path: str) -> None:
        """`FileMissing` for a file that a call which was described with this path must not show."""
        check_denied(self._denied.hiding(self._places.get(path)), file, path)


class ListArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(description="The folder, from the session's folder or absolute.")] = "."


class ListTool(_ReadingTool[ListArguments]):
    shape = ListArguments
    definition = base.definition(
        "list", "List one folder: folders end in `/`, links in `@`, files are shown with their size.", ListArguments
    )

    async def _describe(self, wanted: ListArguments) -> CallDescription:
        place = self._files.place(wanted.path)
        title, where = f"List {place.shown}", (place.location,)
        return CallDescription(kind="read", title=title, subject=place.shown, locations=where)

    async def _run(self, wanted: ListArguments, context: ToolContext) -> ToolOutcome:
        if self._denied.cover(self._files.place(wanted.path).absolute):
            raise missing(wanted.path)
        found = await self._files.list_folder(wanted.path, MAX_ENTRIES + 1, lambda each: not self._denied.cover(each))
        entries = sorted(found[:MAX_ENTRIES], key=lambda entry: entry.name)
        lines = [printable(entry.name) + _MARKS.get(entry.kind, f"  {entry.size:,}") for entry in entries]
        if len(found) > MAX_ENTRIES:
            lines.append(f"[cut: more than {MAX_ENTRIES:,} names; use glob to narrow it down]")
        return text_outcome("\n".join(lines) or "[empty]")


def image_type(head: bytes) -> str | None:
    """The MIME type of an image models can see, by its first bytes."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _IMAGES if head.startswith(magic)), None)


def binary_reason(head: bytes) -> str | None:
    """Why a file is not shown as text; None when it is."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16 text; convert it to UTF-8 to read it"
    return "a binary file" if b"\0" in head else None


def _image(data: bytes, mime_type: str) -> ToolOutcome:
    if len(data) > MAX_IMAGE_BYTES:
        return text_outcome(f"The image is larger than {MAX_IMAGE_BYTES:,} bytes.", is_error=True)
    return ToolOutcome(content=(Image(data=base64.b64encode(data).decode("ascii"), mime_type=mime_type),))


def _numbered(file: io.BufferedReader, wanted: ReadArguments) -> ToolOutcome:
    """The wanted lines with their numbers, until one of the limits is met; then how to continue."""
    deadline = time.monotonic() + MAX_READ_S
    if (has := skip_lines(file, wanted.offset - 1, deadline)) is not None:
        return text_outcome(f"[the file has only {has:,} lines]" if has else "[the file is empty]")
    lines: list[str] = []
    shown_bytes = 0
    broken = False
    while len(lines) < wanted.limit and shown_bytes < MAX_SHOWN_BYTES and (line := _next_line(file, deadline)):
        text, cut = line
        broken = broken or "\ufffd" in text
        shown_bytes += len(text)
        note = f" [cut: {cut:,} more bytes in this line]" if cut else ""
        lines.append(f"{wanted.offset + len(lines):>6}\t{text}{note}")
    if broken:
        lines.append("[not all of it is UTF-8: \ufffd stands for other bytes]")
    if file.peek(1):
        lines.append(f"[more lines follow; continue with offset={wanted.offset + len(lines) - broken}]")
    return text_outcome("\n".join(lines) or "[the file is empty]")


def skip_lines(file: io.BufferedReader, count: int, deadline: float) -> int | None:
    """Go past `count` lines, block by block. None when there is a line to show, else how many the file has."""
    seen, last = 0, b"\n"
    while seen < count:
        start = file.tell()
        block = file.read(_BLOCK)
        _check(deadline)
        if not block:
            return seen + (last != b"\n")
        ends = block.count(b"\n")
        if seen + ends < count:
            seen, last = seen + ends, block[-1:]
            continue
        position = -1
        for _ in range(count - seen):
            position = block.index(b"\n", position + 1)
        file.seek(start + position + 1)
        break
    return None if count == 0 or file.peek(1) else count


def _next_line(file: io.BufferedReader, deadline: float) -> tuple[str, int] | None:
    """A line without its end, cut to a length a reader can bear, and how many bytes were cut. None at the end."""
    raw = file.readline(MAX_LINE)
    if not raw:
        return None
    cut = 0
    more = raw
    while not more.endswith(b"\n") and (more := file.readline(_BLOCK)):
        cut += len(more)
        _check(deadline)
    if cut == 1 and more == b"\n":
        cut = 0
    # A cut may fall into the middle of a character: the decoder keeps such a rest back.
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=cut == 0)
    return text.removesuffix("\n").removesuffix("\r"), cut


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise FileRefused(f"Reading took longer than {MAX_READ_S:.0f} s.", hint="Use the shell for such a file.")


class DescribedPlaces:
    """Where the paths of calls led when the calls were described, which is what a person was asked about."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, str] = OrderedDict()

    def keep(self, path: str, place: Place) -> None:
        self._places[path] = place.absolute
        self._places.move_to_end(path)
        if len(self._places) > _MAX_DESCRIBED:
            self._places.popitem(last=False)

    def get(self, path: str) -> str:
        return self._places.get(path, "")


def check_denied(denied: DeniedPaths, file: OpenedFile, path: str) -> None:
    """`FileMissing` for a file that no tool may show: a link was turned since the rules were asked, or it has a second
    name that they forbid."""
    if denied.cover(file.path) or (file.links > 1 and denied.patterns and has_denied_name(denied, file.identity)):
        raise missing(path)
