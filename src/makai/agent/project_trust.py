"""Trust in the files of a project that configure makai: it holds for the content that a person trusted, not for a path.

A file that is new or changed since then counts for nothing until a person trusts the folder again. The bytes that are
compared are the bytes that are used.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from makai.core.errors import InvalidRequest, MakaiError
from makai.tools.file_errors import FileMissing
from makai.tools.workspace import Workspace

PROJECT_CONFIG: Final = ".makai/config.toml"
PROJECT_SERVERS: Final = ".mcp.json"
TRUSTED_FILES: Final = (PROJECT_CONFIG, PROJECT_SERVERS)
MAX_FILE_BYTES: Final = 1024 * 1024


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def project_bytes(workspace: Workspace, path: str) -> bytes | None:
    """The content of a project file; None when there is none. `InvalidRequest` when it is too large or unreadable."""
    try:
        if stat.S_ISDIR(workspace.stat(path).st_mode):
            return None  # a place that the sandbox of another process keeps empty
        with workspace.open_read(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileMissing:
        return None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidRequest(f"{path} is larger than {MAX_FILE_BYTES:,} bytes.")
    return data


def trusted_content(folder: str) -> dict[str, bytes]:
    """What a person who trusts `folder` now trusts: path -> content. Files that cannot be read are left out."""
    found = {}
    try:
        workspace = Workspace([Path(folder)])
    except MakaiError:
        return {}
    for path in TRUSTED_FILES:
        try:
            data = project_bytes(workspace, path)
        except (MakaiError, OSError):
            continue
        if data is not None:
            found[path] = data
    return found


def is_as_trusted(path: str, data: bytes, digests: Mapping[str, str]) -> bool:
    return digests.get(path) == digest_of(data)
