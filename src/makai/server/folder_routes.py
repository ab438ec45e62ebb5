"""Folders of this machine for the page's folder picker: `/api/folders` completes a typed path, says whether the folder
exists and which git branch is checked out there, and creates one. Below the scope `approve` a caller sees only the
folders in which it may begin sessions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from makai.core.errors import Forbidden, InvalidRequest
from makai.server.allowed_folders import allowed_folder
from makai.server.http_json import answer, answering, read_body
from makai.server.scopes import check_all_sessions
from makai.sessions.service import Sessions
from makai.tools.permissions.git_repository import UnusualRepository, find_repository, read_text, repository_at
from makai.transports.http_guard import caller_of

MAX_BODY: Final = 16 * 1024
MAX_PATH: Final = 4_096
MAX_SCANNED: Final = 20_000
MAX_FOLDERS: Final = 200


class FolderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class FolderListing(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """What was typed as an absolute path."""
    is_folder: bool
    exists: bool
    branch: str
    """The branch that is checked out there; empty when it is not known."""
    folders: tuple[str, ...]
    """Absolute paths that complete what was typed, by name."""
    is_complete: bool
    """Whether these are all."""


class FolderRoutes:
    def __init__(self, sessions: Callable[[], Awaitable[Sessions]]) -> None:
        self._sessions = sessions

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/folders", answering(self._list))
        app.router.add_post("/api/folders", answering(self._create))

    async def _list(self, request: web.Request) -> web.Response:
        caller = caller_of(request)
        check_all_sessions(caller, "choosing a folder")
        path, begun = typed_path(request.query.get("path", ""))
        sessions = await self._sessions()
        folder = await allowed_folder(sessions, caller, path)
        if begun is not None:
            try:
                folder = await allowed_folder(sessions, caller, os.path.dirname(path))
            except Forbidden:
                begun = None  # the folder around one that the caller may use: only what is in it is shown
        shown = await asyncio.to_thread(listing, path, folder, begun or "", any_repository=caller.may("approve"))
        return answer(shown)

    async def _create(self, request: web.Request) -> web.Response:
        caller = caller_of(request)
        check_all_sessions(caller, "creating a folder")
        path, _ = typed_path((await read_body(request, FolderBody, MAX_BODY)).path)
        try:
            await asyncio.to_thread(os.makedirs, path, exist_ok=True)
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be created: {error.strerror or error}.") from None
        return answer(await asyncio.to_thread(listing, path, path, "", any_repository=True), 201)


def typed_path(text: str) -> tuple[str, str | None]:
    """What a person typed as an absolute path, and the name that is being typed at its end; None after a slash."""
    if len(text) > MAX_PATH or "\0" in text:
        raise InvalidRequest("This is not a path.")
    full = os.path.join(os.getcwd(), os.path.expanduser(text.strip()))
    begun = None if full.endswith("/") or text.strip() in ("", "~") else os.path.basename(full)
    return os.path.normpath(full), begun if begun not in (".", "..") else None


def listing(path: str, folder: str, begun: str, *, any_repository: bool) -> FolderListing:
    """What is at the path, and the folders in `folder` whose names begin so. Hidden ones only when their dot is typed.
    Reads folders."""
    is_folder = os.path.isdir(path)
    found, is_complete = _folders_in(folder, begun)
    return FolderListing(
        path=path,
        is_folder=is_folder,
        exists=os.path.lexists(path),
        branch=_branch(path, any_repository=any_repository) if is_folder else "",
        folders=tuple(found[:MAX_FOLDERS]),
        is_complete=is_complete and len(found) <= MAX_FOLDERS,
    )


def _folders_in(folder: str, begun: str) -> tuple[list[str], bool]:
    wanted = begun.casefold()
    found: list[str] = []
    count = 0
    try:
        with os.scandir(folder) as scan:
            for entry in islice(scan, MAX_SCANNED):
                count += 1
                is_shown = begun.startswith(".") or not entry.name.startswith(".")
                if is_shown and entry.name.casefold().startswith(wanted) and _is_folder(entry):
                    found.append(os.path.join(folder, entry.name))
    except OSError:
        return [], True
    return sorted(found, key=str.casefold), count < MAX_SCANNED


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and entry.name.isprintable()
    except OSError:
        return False


def _branch(folder: str, *, any_repository: bool) -> str:
    """The branch of the repository that the folder is in; only of its own one unless any may be looked at."""
    try:
        repository = find_repository(folder) if any_repository else repository_at(Path(folder))
        head = "" if repository is None else read_text(repository.folder / "HEAD").strip()
    except (OSError, ValueError, UnusualRepository):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else head[:8]
