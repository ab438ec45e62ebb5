"""What a message carries beside its words: the files that it names with an `@`, and pictures from the clipboard.

A text file goes along whole up to `MAX_TEXT_BYTES`; a larger one, and what is neither text nor a picture, only as its
path, which the agent can read with its tools. A folder goes along as the list of its names. A picture goes along as a
picture. A path that leads to nothing stays what it is, words: `@decorator` is no mistake.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from makai.core.content import Image, Resource, ResourceLink, SessionPart, Text, own_words
from makai.tools.file_errors import printable
from makai.tools.file_mentions import Mention, mentions

MAX_TEXT_BYTES: Final = 64 * 1024
MAX_ALL_TEXT_BYTES: Final = 512 * 1024
MAX_PICTURE_BYTES: Final = 5 * 1024 * 1024
MAX_ATTACHED: Final = 50
MAX_NAMES: Final = 500
PICTURE: Final = "image"
"""The name of a picture's placeholder."""
_PICTURE_PLACEHOLDER: Final = re.compile(rf"\[{PICTURE}(?: #\d+)?\]")
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class AttachedContent(msgspec.Struct, frozen=True, kw_only=True):
    content: str | tuple[SessionPart, ...]
    notices: tuple[str, ...] = ()
    """What the user should know about what goes along."""


class DetachedContent(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    pictures: dict[str, Image] = {}
    """By their placeholders in the text."""
    others: tuple[SessionPart, ...] = ()
    """What the text does not name, such as the output of a command."""


def placeholder(name: str, taken: Container[str]) -> str:
    """What stands in a text for something that is attached: `[image]`, `[image #2]`."""
    number = 1
    while (found := f"[{name}]" if number == 1 else f"[{name} #{number}]") in taken:
        number += 1
    return found


def picture_type(data: bytes) -> str | None:
    """The media type of a picture that models take, by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _SIGNATURES if data.startswith(begin)), None)


def attach(text: str, folders: Sequence[str], pictures: Mapping[str, Image]) -> AttachedContent:
    """The message with the files that it names and the pictures whose placeholders are in it. Reads files.

    Paths are relative to the first of the `folders`. A file in none of them is attached, because the user named it, and
    a notice says so.
    """
    shown = pictures_in(text, pictures)
    existing = [_existing(mentioned, folders) for mentioned in mentions(text)[:MAX_ATTACHED]]
    paths = {os.path.realpath(path): path for path in existing if path is not None}
    outside = [
        f"Outside of this session's folders, attached as you named it: {printable(real)}"
        for real in paths
        if not any(_is_below(real, os.path.realpath(folder)) for folder in folders)
    ]
    parts, problems = _parts(paths.values())
    content = (Text(text=text), *shown, *parts) if shown or parts else text
    return AttachedContent(content=content, notices=(*outside, *problems))


def pictures_in(text: str, pictures: Mapping[str, Image]) -> list[Image]:
    """Those whose placeholders are in the text, in their order there."""
    return [pictures[each] for each in sorted((each for each in pictures if each in text), key=text.index)]


def attach_files(text: str, paths: Sequence[str]) -> AttachedContent:
    """The message with these files. Reads them."""
    parts, problems = _parts(dict.fromkeys(paths))
    return AttachedContent(content=(Text(text=text), *parts), notices=tuple(problems))


def _parts(paths: Iterable[str]) -> tuple[list[SessionPart], list[str]]:
    """The files as parts of a message, and what the user should know about them."""
    parts: list[SessionPart] = []
    problems: list[str] = []
    left = MAX_ALL_TEXT_BYTES
    for path in paths:
        part, problem = _part(path, min(left, MAX_TEXT_BYTES))
        if isinstance(part, Resource):
            left -= len((part.text or "").encode())
        parts.append(part)
        problems += [problem] if problem else []
    return parts, problems


def detach(content: str | tuple[SessionPart, ...], folders: Sequence[str]) -> DetachedContent:
    """The inverse of `attach`, for a message that is edited. What its text names is left out: it is attached again when
    the message is sent again. A picture without a placeholder gets one. Reads files."""
    text = own_words(content)
    named = attach(text, folders, {}).content
    again = () if isinstance(named, str) else named[1:]
    uris = {part.uri for part in again if isinstance(part, Resource | ResourceLink)}
    parts = () if isinstance(content, str) else content
    left = [part for part in parts if not isinstance(part, Text)]
    left = [part for part in left if part not in again and getattr(part, "uri", None) not in uris]
    found = list(dict.fromkeys(_PICTURE_PLACEHOLDER.findall(text)))
    pictures: dict[str, Image] = {}
    for picture in (part for part in left if isinstance(part, Image)):
        if len(pictures) == len(found):
            found.append(placeholder(PICTURE, found))
            text = f"{text} {found[-1]}".lstrip()
        pictures[found[len(pictures)]] = picture
    return DetachedContent(
        text=text, pictures=pictures, others=tuple(part for part in left if not isinstance(part, Image))
    )


def dragged_picture(pasted: str, folder: str) -> str | None:
    """The path of the picture when what was pasted is nothing but one, as terminals write what is dragged onto them:
    quoted, with escaped spaces, or as a file address."""
    text = pasted.strip()
    if not text or "\n" in text or len(text) > 4_096:
        return None
    if text.startswith("file://"):
        from urllib.parse import unquote

        text = unquote(text.removeprefix("file://").removeprefix("localhost"))
    elif text[0] == text[-1] and text[0] in "'\"" and len(text) > 2:
        text = text[1:-1]
    for path in dict.fromkeys((text, text.replace("\\ ", " "))):
        full = os.path.join(folder, os.path.expanduser(path))
        if _is_picture(full):
            return path
    return None


def _is_picture(path: str) -> bool:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return picture_type(file.read(16)) is not None
    except (OSError, ValueError):
        return False


def _existing(mentioned: Mention, folders: Sequence[str]) -> str | None:
    for path in filter(None, (mentioned.path, mentioned.without_end)):
        full = os.path.join(folders[0] if folders else ".", os.path.expanduser(path))
        try:
            if os.path.exists(full):
                return full
        except ValueError:
            continue
    return None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _part(path: str, room: int) -> tuple[SessionPart, str]:
    """The file as a part of a message, and what the user should know about it, or ""."""
    uri, name = Path(os.path.abspath(path)).as_uri(), printable(path)
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            return Resource(uri=uri + "/", text=_names(path)), ""
        if not stat.S_ISREG(found.st_mode):
            return ResourceLink(uri=uri, name=name), f"{name} is not a file; only its path goes along."
        with open(path, "rb") as file:
            data = file.read(MAX_PICTURE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        return ResourceLink(uri=uri, name=name), f"{name}: {reason}; only its path goes along."
    return content_part(uri, name, data, found.st_size, room)


def content_part(uri: str, name: str, data: bytes, size: int, room: int) -> tuple[SessionPart, str]:
    """A file of `size` bytes that begins with `data` as a part of a message that has room for so many bytes of text,
    and what the user should know about it, or "". Pure."""
    if (kind := picture_type(data)) is not None and len(data) <= MAX_PICTURE_BYTES:
        return Image(data=base64.b64encode(data).decode("ascii"), mime_type=kind), ""
    link = ResourceLink(uri=uri, name=name, size=size, description=f"{size:,} bytes, not included")
    if len(data) > room:
        return link, f"{name} has {size:,} bytes; only its path goes along, and the agent can read it."
    try:
        return Resource(uri=uri, text=data.decode("utf-8")), ""
    except UnicodeDecodeError:
        return link, f"{name} is not text; only its path goes along."


def _names(path: str) -> str:
    with os.scandir(path) as scan:
        return names_text(printable(entry.name) + "/" * entry.is_dir() for entry in islice(scan, MAX_NAMES + 1))


def names_text(names: Iterable[str]) -> str:
    """The names in a folder as a text, at most `MAX_NAMES`."""
    found = sorted(names)
    more = ["…"] if len(found) > MAX_NAMES else []
    return "\n".join([*found[:MAX_NAMES], *more])
