"""The files of a session that a message may carry: what its tools may read without asking, read as the tools read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from makai.agent.project_trust import PROJECT_CONFIG, project_bytes
from makai.agent.workbench import hidden_folders, user_rules
from makai.core.config import PermissionsConfig, parse_project_config
from makai.core.content import Image, Resource, ResourceLink, SessionPart
from makai.core.errors import InvalidRequest
from makai.core.session_events import SandboxLevel
from makai.core.session_files import Mentioned
from makai.sessions.state import SessionState
from makai.tools.attachments import (
    MAX_ALL_TEXT_BYTES,
    MAX_ATTACHED,
    MAX_NAMES,
    MAX_PICTURE_BYTES,
    MAX_TEXT_BYTES,
    content_part,
    names_text,
)
from makai.tools.file_errors import FileMissing, FileRefused, printable
from makai.tools.file_mentions import Mention, mentions
from makai.tools.files import check_denied
from makai.tools.permissions.git_credentials import holds_credentials
from makai.tools.permissions.judge import with_grants
from makai.tools.permissions.path_patterns import DeniedPaths
from makai.tools.permissions.rules import PermissionRules, parse_rules, unreadable_paths
from makai.tools.workspace import OpenedFile, Workspace

MAX_PICTURES: Final = 8


class ReadableFiles:
    def __init__(self, workspace: Workspace, unreadable: DeniedPaths) -> None:
        self.workspace = workspace
        self._unreadable = unreadable

    @classmethod
    def of_folder(
        cls,
        folders: Sequence[str],
        home: Path,
        environ: Mapping[str, str],
        *,
        sandbox: SandboxLevel = "workspace-write",
        grants: Sequence[tuple[str, bool]] = (),
    ) -> ReadableFiles:
        """What tools may read in these folders, of which the first is the one that paths start from. Reads files."""
        paths = [Path(folder) for folder in dict.fromkeys(folders)]
        workspace = Workspace(paths, hidden_folders(sandbox, home, environ, paths))
        rules = with_grants(_rules(workspace, home), grants)
        return cls(workspace, unreadable_paths(rules))

    @classmethod
    def of_session(cls, state: SessionState, home: Path, environ: Mapping[str, str]) -> ReadableFiles:
        if state.cwd is None:
            raise InvalidRequest("This session has no folder.")
        grants = [(grant.rule, grant.allow) for grant in state.grants]
        folders = (state.cwd, *state.roots)
        return cls.of_folder(folders, home, environ, sandbox=state.terms.sandbox, grants=grants)

    def may_read(self, path: str) -> bool:
        """Whether a path in the first folder may be read unasked."""
        try:
            return not self._unreadable.cover(self.workspace.place(path).absolute)
        except FileRefused:
            return False

    def mentioned(self, text: str) -> Mentioned:
        """The files that the text names. A path that leads to nothing stays what it is, words. Reads files."""
        parts: list[SessionPart] = []
        notices: list[str] = []
        left = MAX_ALL_TEXT_BYTES
        for mention in mentions(text)[:MAX_ATTACHED]:
            part, notice = self._part(mention, min(left, MAX_TEXT_BYTES))
            if isinstance(part, Resource):
                left -= len((part.text or "").encode())
            parts += [part] if part is not None and part not in parts else []
            notices += [notice] if notice else []
        images = tuple(part for part in parts if isinstance(part, Image))
        if len(images) > MAX_PICTURES:
            notices.append(f"Only the first {MAX_PICTURES} pictures go along.")
        files = tuple(part for part in parts if isinstance(part, Resource))
        return Mentioned(files=files, images=images[:MAX_PICTURES], notices=tuple(notices))

    def _part(self, mention: Mention, room: int) -> tuple[SessionPart | None, str]:
        for path in filter(None, (mention.path, mention.without_end)):
            name = printable(path)
            try:
                return self._read(os.path.expanduser(path), name, room)
            except FileMissing:
                continue
            except FileRefused as error:
                return None, f"{name} is not attached: {error.message}"
            except OSError as error:
                return None, f"{name} is not attached: {error.strerror or 'it cannot be read'}."
        return None, ""

    def _read(self, path: str, name: str, room: int) -> tuple[SessionPart | None, str]:
        place = self.workspace.place(path)
        uri = Path(place.absolute).as_uri()
        if self._unreadable.cover(place.absolute) or holds_credentials(place.absolute):
            return None, f"{name} is not attached: the agent may read it only when you allow it."
        if os.path.isdir(place.absolute):
            entries = islice(self.workspace.entries(path), MAX_NAMES + 1)
            names = names_text(printable(each.name) + "/" * (each.kind == "directory") for each in entries)
            return Resource(uri=f"{uri}/", text=names), ""

        def content(file: OpenedFile) -> tuple[bytes, int]:
            check_denied(self._unreadable, file, path)
            return file.stream.read(MAX_PICTURE_BYTES + 1), file.size

        data, size = self.workspace.read_now(path, content)
        part, notice = content_part(uri, name, data, size, room)
        return None if isinstance(part, ResourceLink) else part, notice


def _rules(workspace: Workspace, home: Path) -> PermissionRules:
    """The user's rules, and those of the project that forbid or ask: they cannot widen anything."""
    folder = workspace.roots[0].real
    rules = msgspec.structs.replace(user_rules(home, (), ()), workspace=folder)
    project = PermissionsConfig()
    with suppress(InvalidRequest, UnicodeDecodeError):
        if (data := project_bytes(workspace, PROJECT_CONFIG)) is not None:
            project = parse_project_config(data.decode("utf-8")).permissions
    with suppress(InvalidRequest):
        more = parse_rules(workspace=folder, ask=project.ask, deny=project.deny)
        rules = msgspec.structs.replace(rules, ask=(*rules.ask, *more.ask), deny=(*rules.deny, *more.deny))
    return rules
