"""The tools `write` and `edit`.

Both show a person the very change that they make: what a file held when the change was described is kept, and a file
that is another one by then is refused. They work on bytes, so what is not UTF-8 elsewhere in a file stays as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from makai.core.content import Text
from makai.core.session_events import FileDiff, FileVersions
from makai.tools.base import Arguments, ArgumentsTool, CallDescription, ToolContext, ToolOutcome, definition
from makai.tools.file_errors import FileMissing, FileRefused, escape_bytes, printable
from makai.tools.files import SNIFFED_BYTES, binary_reason, check_denied
from makai.tools.permissions.git_credentials import holds_credentials
from makai.tools.permissions.path_patterns import NOTHING_DENIED, DeniedPaths
from makai.tools.ports import FileSystem
from makai.tools.workspace import OpenedFile, Place

MAX_BYTES = 16 * 1024 * 1024
MAX_DIFF_BYTES = 1024 * 1024
_MAX_PLACES_TOLD = 10


class WriteArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(description="The file, from the session's folder or absolute.")]
    content: Annotated[str, msgspec.Meta(description="The whole new content.")]


class WriteTool(ArgumentsTool[WriteArguments]):
    shape = WriteArguments
    definition = definition(
        "write",
        "Create a file, or replace all of one. Missing folders are made. To change a part of a file, use `edit`.",
        WriteArguments,
    )

    def __init__(self, files: FileSystem, denied: DeniedPaths = NOTHING_DENIED) -> None:
        self._files = files
        self._denied = denied
        self._bases = FileBases()

    async def _describe(self, wanted: WriteArguments) -> CallDescription:
        place = self._files.place(wanted.path)
        encoded(wanted.content)
        try:
            diff, base, _ = await self._diff(place, wanted)
        except FileRefused as error:
            return _description("Write", place, problem=error)
        self._bases.keep(wanted, base)
        return _description("Write", place, diff)

    async def _run(self, wanted: WriteArguments, context: ToolContext) -> ToolOutcome:
        content = encoded(wanted.content)
        place = self._files.place(wanted.path)
        diff, base, old_digest = await self._diff(place, wanted)
        self._bases.check(wanted, base, place)
        note, versions = await written(self._files, wanted.path, content, place, old_digest)
        done = "Created" if diff.old_text is None else "Replaced"
        said = f"{done} {place.shown} ({len(content):,} bytes). {note}".rstrip()
        return ToolOutcome(content=(Text(text=said),), diffs=(diff,), file_versions=(versions,))

    async def _diff(self, place: Place, wanted: WriteArguments) -> tuple[FileDiff, bytes, str]:
        """What is shown, what stands for the old file, and the digest of its content."""

        def read(file: OpenedFile) -> tuple[str | None, bytes, str]:
            check_denied(self._denied.hiding(place.absolute), file, wanted.path)
            old = file.stream.read(MAX_DIFF_BYTES + 1)
            digest = content_digest(old, file.stream.read(MAX_BYTES) if len(old) > MAX_DIFF_BYTES else b"")
            return diff_text(old), base_of(place, old, file.version if len(old) > MAX_DIFF_BYTES else ""), digest

        try:
            old_text, base, digest = await self._files.read(wanted.path, read)
        except FileMissing:
            old_text, base, digest = None, base_of(place, None), ""
        return FileDiff(path=printable(place.absolute), old_text=old_text, new_text=wanted.content), base, digest


class EditArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(description="The file, from the session's folder or absolute.")]
    old_text: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description="The text to replace, exactly as in the file, with enough around it to occur only once.",
        ),
    ]
    new_text: Annotated[str, msgspec.Meta(description="What takes its place.")]
    replace_all: Annotated[bool, msgspec.Meta(description="Replace every occurrence.")] = False


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    new: bytes
    old_digest: str
    diff: FileDiff
    count: int
    base: bytes


class EditTool(ArgumentsTool[EditArguments]):
    shape = EditArguments
    definition = definition(
        "edit",
        "Replace a text in a file. `old_text` must occur exactly once, character for character, line breaks and "
        "indentation included and without the line numbers that `read` shows; or pass `replace_all`.",
        EditArguments,
    )

    def __init__(self, files: FileSystem, denied: DeniedPaths = NOTHING_DENIED) -> None:
        self._files = files
        self._denied = denied
        self._bases = FileBases()

    async def _describe(self, wanted: EditArguments) -> CallDescription:
        place = self._files.place(wanted.path)
        try:
            change = await self._files.read(wanted.path, lambda file: self._change(file, place, wanted))
        except FileRefused as error:
            if not (self._denied.asks_about(place.absolute) or holds_credentials(place.absolute)):
                return _description("Edit", place, problem=error)
            # That something does not occur in a file tells about it, so a person is asked first, and nothing is done.
            self._bases.keep(wanted, b"")
            return _description("Edit", place)
        self._bases.keep(wanted, change.base)
        return _description("Edit", place, change.diff)

    async def _run(self, wanted: EditArguments, context: ToolContext) -> ToolOutcome:
        place = self._files.place(wanted.path)
        change = await self._files.read(wanted.path, lambda file: self._change(file, place, wanted, approved=True))
        note, versions = await written(self._files, wanted.path, change.new, place, change.old_digest)
        many = "" if change.count == 1 else f" in {change.count} places"
        said = Text(text=f"Edited {place.shown}{many}. {note}".rstrip())
        return ToolOutcome(content=(said,), diffs=(change.diff,), file_versions=(versions,))

    def _change(self, file: OpenedFile, place: Place, wanted: EditArguments, *, approved: bool = False) -> _Change:
        """What would be written; with `approved` only if it is what was described before."""
        check_denied(self._denied.hiding(place.absolute), file, wanted.path)
        data = file.stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise FileRefused(f"{place.shown} is larger than {MAX_BYTES:,} bytes.", hint="Use the shell for it.")
        base = base_of(place, data)
        if approved:
            self._bases.check(wanted, base, place)
        old, new = encoded(wanted.old_text), encoded(wanted.new_text)
        if b"\r\n" in data and b"\r\n" not in old and old not in data:
            # Models write \n; a file whose lines end in \r\n keeps its own ends.
            old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        count = data.count(old)
        _check(data, old, new, count, wanted, place.shown)
        changed = data.replace(old, new)
        diff = FileDiff(
            path=printable(place.absolute),
            old_text=data.decode("utf-8", "replace"),
            new_text=changed.decode("utf-8", "replace"),
        )
        return _Change(new=changed, old_digest=content_digest(data), diff=diff, count=count, base=base)


def _check(data: bytes, old: bytes, new: bytes, count: int, wanted: EditArguments, shown: str) -> None:
    if old == new:
        raise FileRefused("`old_text` and `new_text` are the same.")
    if count == 0:
        raise FileRefused(f"`old_text` does not occur in {shown}.", hint=_nearest(data, old))
    if count > 1 and not wanted.replace_all:
        places = ", ".join(str(line) for line in _lines_of(data, old, _MAX_PLACES_TOLD))
        more = ", ..." if count > _MAX_PLACES_TOLD else ""
        hint = "Add more of the text around it, or pass replace_all."
        raise FileRefused(f"`old_text` occurs {count} times in {shown} (lines {places}{more}).", hint=hint)


def _lines_of(data: bytes, text: bytes, most: int) -> Iterator[int]:
    position, line = 0, 1
    for _ in range(most):
        found = data.find(text, position)
        if found < 0:
            return
        line += data.count(b"\n", position, found)
        yield line
        line += text.count(b"\n")
        position = found + len(text)


def _nearest(data: bytes, old: bytes) -> str:
    """What the model most likely got wrong: white space, or all but the first line."""
    wanted = [b" ".join(line.split()) for line in old.strip().splitlines()]
    lines = [b" ".join(line.split()) for line in data.splitlines()]
    if not wanted:
        return "Read the file again."
    starts = [index for index, line in enumerate(lines) if line == wanted[0]]
    for index in starts:
        if lines[index : index + len(wanted)] == wanted:
            return f"Line {index + 1} differs from it only in white space; copy that exactly."
    if starts:
        pairs = itertools.zip_longest(wanted, lines[starts[0] : starts[0] + len(wanted)])
        differing = starts[0] + next(offset for offset, (line, there) in enumerate(pairs) if line != there)
        return f"Its first line is line {starts[0] + 1}, but line {differing + 1} differs. Read the file again."
    return "Read the file again; it may have changed."


_MAX_KEPT: Final = 1_000
"""A call is described just before it is asked about; older descriptions are of calls that were never made."""


class FileBases:
    """What files held when changes to them were described, so that what is done is what was approved.

    Minutes may pass between a description and its call, in which the file is changed or a link is turned elsewhere.
    A change that was never described is not checked.
    """

    def __init__(self) -> None:
        self._bases: OrderedDict[bytes, bytes] = OrderedDict()

    def keep(self, wanted: Arguments, base: bytes) -> None:
        key = _key(wanted)
        self._bases[key] = base
        self._bases.move_to_end(key)
        while len(self._bases) > _MAX_KEPT:
            self._bases.popitem(last=False)

    def check(self, wanted: Arguments, base: bytes, place: Place) -> None:
        if self._bases.pop(_key(wanted), base) != base:
            message = f"{place.shown} is not what it was when this call was shown for approval. Nothing was done."
            raise FileRefused(message, hint="Read it again, and repeat the call if it is still what you want.")


def base_of(place: Place, content: bytes | None, version: str = "") -> bytes:
    """Stands for a file and its content, None when there is none. `version` when `content` is not all of it."""
    digest = hashlib.sha256(os.fsencode(place.absolute) + b"\0")
    if content is not None:
        digest.update(b"content" + content + version.encode())
    return digest.digest()


def _key(wanted: Arguments) -> bytes:
    return hashlib.sha256(repr(wanted).encode("utf-8", "surrogatepass")).digest()


async def written(
    files: FileSystem, path: str, content: bytes, place: Place, old_digest: str
) -> tuple[str, FileVersions]:
    """Write a file; what the model must know, and what an undo needs. `old_digest` is of the text that the change was
    made from, which an editor may not have saved."""
    before = await files.on_disk(place)
    note = await files.write(path, content, place)
    after = await files.on_disk(place)
    versions = FileVersions(
        path=escape_bytes(place.absolute),
        old_digest="" if before.mode is None else old_digest,
        new_digest=content_digest(content),
        old_mode=before.mode or 0,
        new_mode=after.mode or 0,
        made_folders=tuple(map(escape_bytes, before.missing_folders)),
    )
    return note, versions


def content_digest(*pieces: bytes) -> str:
    """As in `FileVersions`. Beyond `MAX_BYTES` a file is not read, and its digest stands for its beginning only; such
    a file is not restored."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def encoded(content: str) -> bytes:
    """The text as UTF-8; `FileRefused` for half a surrogate pair, which JSON can say and UTF-8 cannot."""
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileRefused(f"The text has half of a surrogate pair at position {error.start:,}.") from None


def diff_text(data: bytes) -> str:
    """The old content as a diff shows it. A diff is for eyes: what is too long or binary is named, not shown."""
    if len(data) > MAX_DIFF_BYTES:
        return f"[more than {MAX_DIFF_BYTES:,} bytes, not shown]\n"
    if why := binary_reason(data[:SNIFFED_BYTES]):
        return f"[{why}, {len(data):,} bytes]\n"
    return data.decode("utf-8", "replace")


def _description(
    verb: str, place: Place, diff: FileDiff | None = None, problem: FileRefused | None = None
) -> CallDescription:
    return CallDescription(
        kind="edit",
        title=f"{verb} {place.shown}",
        subject=place.shown,
        locations=(place.location,),
        diffs=(diff,) if diff is not None else (),
        protected=place.protected,
        problem="" if problem is None else str(problem),
    )
