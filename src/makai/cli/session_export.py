"""Reading one session: its transcript for `makai sessions show`, and the files `makai sessions export` writes.

Reading changes nothing: a run that a crash interrupted is not resumed because its session is read.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from makai.cli.console import harmless, has_colour, say, terminal_width
from makai.cli.session_access import open_sessions
from makai.cli.session_selection import find_session
from makai.core.errors import InvalidRequest, StorageUnavailable
from makai.core.session_events import Logged, SandboxLevel, SessionCreated, TermsChanged
from makai.core.visible_text import shown
from makai.sessions.export import jsonl, markdown
from makai.sessions.history import TranscriptItem, history
from makai.sessions.log.base import Record, SessionSummary
from makai.sessions.log.encoding import decoded_one
from makai.sessions.requests import ReadEvents
from makai.sessions.service import Sessions

_UNWRITTEN_HINT: Final = "Name another file."


class LoadedSession(msgspec.Struct, frozen=True):
    summary: SessionSummary
    records: tuple[Record, ...]


async def read_session(given: str) -> LoadedSession:
    async with open_sessions() as sessions:
        return await read_records(sessions, given)


async def read_records(sessions: Sessions, given: str) -> LoadedSession:
    """The session of an id, or of its beginning, with its whole log."""
    summary = await find_session(sessions, given)
    records: list[Record] = []
    while page := await sessions.dispatch(ReadEvents(summary.session_id, records[-1].event_id if records else 0)):
        records += page
    return LoadedSession(summary, tuple(records))


def transcript(found: LoadedSession) -> tuple[TranscriptItem, ...]:
    folded = history(map(decoded_one, found.records))
    return (*folded.items(), *folded.waiting())


def sandbox_of(found: LoadedSession) -> SandboxLevel:
    """The sandbox that the session has now."""
    terms = [
        logged.event.terms
        for logged in map(decoded_one, found.records)
        if isinstance(logged, Logged) and isinstance(logged.event, SessionCreated | TermsChanged)
    ]
    return terms[-1].sandbox if terms else "workspace-write"


def print_transcript(found: LoadedSession) -> None:
    """Markdown, rendered on a terminal."""
    text = harmless(markdown(found.summary, found.records), sys.stdout)
    if not has_colour(sys.stdout):
        say(text, end="")
        return
    from makai.cli.terminal.renderer import Renderer

    say(Renderer(colour=True).markdown(text, terminal_width() or 80))


def exported(found: LoadedSession, form: str) -> Iterable[bytes]:
    return jsonl(found.records) if form == "jsonl" else [markdown(found.summary, found.records).encode()]


def write(pieces: Iterable[bytes], path: Path | None) -> None:
    """Write to a file that only its owner can read, whole or not at all; None is standard output. A link stays a link,
    and what is no file (/dev/null, a pipe) is written to as it is."""
    if path is None:
        sys.stdout.flush()
        for piece in pieces:
            safe = shown(piece.decode()).encode(errors="backslashreplace") if sys.stdout.isatty() else piece
            sys.stdout.buffer.write(safe)
        sys.stdout.buffer.flush()
        return
    fresh = _part_of(path)
    try:
        if fresh is None:
            with path.open("wb") as device:
                device.writelines(pieces)
            return
        with _created(fresh) as file:
            file.writelines(pieces)
        os.replace(fresh, os.path.realpath(path))
    except OSError as error:
        if fresh is not None:
            with contextlib.suppress(OSError):
                fresh.unlink()
        raise StorageUnavailable(_unwritten(path, error), hint=_UNWRITTEN_HINT) from None


def check_writable(path: Path) -> None:
    """Raises `InvalidRequest` when `write` could not create its file now. A file at `path` stays as it is."""
    fresh = _part_of(path)
    if fresh is None:
        return
    try:
        _created(fresh).close()
        fresh.unlink()
    except OSError as error:
        raise InvalidRequest(_unwritten(path, error), hint=_UNWRITTEN_HINT) from None


def _part_of(path: Path) -> Path | None:
    """The file beside `path` that takes its place once it is whole; None where no file can take it."""
    if not path.name:
        raise InvalidRequest("the name of the file to write is empty.", hint=_UNWRITTEN_HINT)
    if os.path.exists(path) and not os.path.isfile(path):
        return None
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _created(path: Path) -> BinaryIO:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _unwritten(path: Path, error: OSError) -> str:
    return f"{path} cannot be written ({error.strerror})."
