"""Trust in the files of a project that configure makai: it holds for the content that a person trusted, not for a path.

A file that is new or changed since then counts for nothing until a person trusts the folder again. The bytes that are
compared are the bytes that are used.
"""

from __future__ import annotations

import hashlib
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from makai.core.errors import InvalidRequest, MakaiError
from makai.core.visible_text import one_line
from makai.tools.file_errors import FileMissing
from makai.tools.mcp.config import HttpServer, McpConfig, McpServer, parse_mcp_config
from makai.tools.workspace import Workspace

PROJECT_CONFIG: Final = ".makai/config.toml"
PROJECT_SERVERS: Final = ".mcp.json"
TRUSTED_FILES: Final = (PROJECT_CONFIG, PROJECT_SERVERS)
MAX_FILE_BYTES: Final = 1024 * 1024
_MAX_COMMAND: Final = 2_000


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


def wanted_by_servers(folder: str) -> list[str]:
    """What the MCP servers of the folder's `.mcp.json` run, and what they ask for beyond the sandbox: a line for each,
    for the person who is asked to trust it. Variables stay as they are written: their values may be secret."""
    data = trusted_content(folder).get(PROJECT_SERVERS)
    try:
        config = McpConfig() if data is None else parse_mcp_config(data, _Unexpanded(), PROJECT_SERVERS)
    except InvalidRequest as error:
        return [one_line(error.message)]
    return [*map(_wanted, config.servers), *(one_line(problem) for problem in config.problems.values())]


def _wanted(server: McpServer) -> str:
    if isinstance(server, HttpServer):
        return f"MCP server {server.name}: calls {one_line(server.address)}"
    command = one_line(shlex.join((server.command, *server.args)), _MAX_COMMAND)
    network = ", with network to every address" if server.opened.network else ""
    git = ", may write the git repository (which can make later git commands run code)" if server.opened.git else ""
    return f"MCP server {server.name}: runs {command}{network}{git}"


class _Unexpanded(dict[str, str]):
    """An environment in which every variable stands for its own name."""

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> str:
        return f"${{{name}}}"


def is_as_trusted(path: str, data: bytes, digests: Mapping[str, str]) -> bool:
    return digests.get(path) == digest_of(data)
