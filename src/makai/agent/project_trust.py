"""Trust in the files of a project that configure makai: it holds for the content that a person trusted, not for a path.

A file that is new or changed since then counts for nothing until a person trusts the folder again. The bytes that are
compared are the bytes that are used.
"""

from __future__ import annotations

import hashlib
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from makai.core.errors import InvalidRequest, MakaiError
from makai.core.visible_text import exact_line
from makai.tools.file_errors import FileMissing
from makai.tools.mcp.config import HttpServer, McpConfig, McpServer, parse_mcp_config
from makai.tools.workspace import Workspace

PROJECT_CONFIG: Final = ".makai/config.toml"
PROJECT_SERVERS: Final = ".mcp.json"
TRUSTED_FILES: Final = (PROJECT_CONFIG, PROJECT_SERVERS)
MAX_FILE_BYTES: Final = 256 * 1024
"""What counts is shown whole to the person who trusts it."""


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


def wanted_by_project(content: Mapping[str, bytes]) -> list[str]:
    """What the project files set: lines for the person who is asked to trust them, with nothing left out. Values are as
    they are written there, so those of the user's environment are names (`${TOKEN}`)."""
    settings = shown_text(content.get(PROJECT_CONFIG, b"")).splitlines()
    lines = [f"{PROJECT_CONFIG} sets:", *(f"  {exact_line(line)}" for line in settings)] if settings else []
    data = content.get(PROJECT_SERVERS)
    try:
        config = McpConfig() if data is None else parse_mcp_config(data, None, PROJECT_SERVERS)
    except InvalidRequest as error:
        return [*lines, exact_line(error.message)]
    lines += [line for server in config.servers for line in _wanted(server)]
    return [*lines, *map(exact_line, config.problems.values())]


def _wanted(server: McpServer) -> Iterator[str]:
    """What a server runs or calls, with which variables, where, and what it asks for beyond the sandbox."""
    if isinstance(server, HttpServer):
        written = "" if server.url == server.address else f" (written {exact_line(server.url)})"
        yield f"MCP server {server.name}: calls {exact_line(server.address)}{written}"
        yield from (
            f"  with the header {exact_line(f'{key}: {value.reveal()}')}" for key, value in server.headers.items()
        )
        return
    network = ", with network to every address" if server.opened.network else ""
    git = ", may write the git repository (which can make later git commands run code)" if server.opened.git else ""
    yield f"MCP server {server.name}: runs {exact_line(shlex.join((server.command, *server.args)))}{network}{git}"
    yield from (f"  with the variable {exact_line(f'{key}={value.reveal()}')}" for key, value in server.env.items())
    if server.cwd is not None:
        yield f"  in the folder {exact_line(server.cwd)}"


def is_as_trusted(path: str, data: bytes, digests: Mapping[str, str]) -> bool:
    return digests.get(path) == digest_of(data)


def shown_text(data: bytes) -> str:
    """A file's content for people who compare."""
    return data.decode("utf-8", "backslashreplace")
