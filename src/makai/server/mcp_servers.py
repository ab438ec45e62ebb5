"""The `mcpServers` files that `makai mcp` and the page change and list, and a check that starts the servers as a
session would: in the default sandbox, those of a project only where its folder is trusted and the file is as it was
then."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import msgspec

from makai.agent.project_trust import PROJECT_SERVERS
from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.visible_text import one_line
from makai.sessions.requests import FolderTrust
from makai.tools.mcp.config import HttpServer, McpServer, parse_mcp_config, server_names

ServerScope: TypeAlias = Literal["user", "project"]
TrustOf: TypeAlias = Callable[[str], Awaitable[FolderTrust]]
"""Asks whether the project files of a folder are trusted."""
USER_SERVERS: Final = "mcp.json"
MIN_SECRET: Final = 4
"""Shorter values, such as `1`, are in every text."""
_SECRET_FLAG: Final = re.compile(r"^-.*(key|token|secret|password)", re.IGNORECASE)
CHECK_S: Final = 60.0
"""A package runner may have to download the server first."""


class ListedServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry. `state` is empty until it was checked."""

    name: str
    scope: ServerScope
    address: str = ""
    """Its program or URL, without what may be secret."""
    enabled: bool = True
    state: str = ""
    problem: str = ""
    tools: tuple[str, ...] = ()
    log: str = ""
    """The last lines that its program wrote to standard error, without the values of its variables and headers."""

    @property
    def is_down(self) -> bool:
        return self.enabled and (bool(self.problem) or self.state not in ("", "ready"))


class ServerFile:
    """One file of servers. What it holds beside them is kept."""

    def __init__(self, path: Path, scope: ServerScope) -> None:
        self.path = path
        self.scope: ServerScope = scope

    def entries(self) -> dict[str, Any]:
        return dict(self._read().get("mcpServers", {}))

    def put(self, name: str, entry: Mapping[str, Any], *, replace: bool) -> None:
        """Raises `InvalidRequest` for an entry that cannot be used, or that is there already."""
        document = self._read()
        servers = document.setdefault("mcpServers", {})
        if name in servers and not replace:
            raise InvalidRequest(
                f"{self.path} has a server {name!r} already.",
                hint="Remove it first, or replace it with `makai mcp add --force`.",
            )
        parsed = parse_mcp_config(json.dumps({"mcpServers": {name: entry}}), _AnyVariable(), str(self.path))
        if parsed.problems:
            raise InvalidRequest(next(iter(parsed.problems.values())))
        servers[name] = dict(entry)
        self._write(document)

    def remove(self, name: str) -> bool:
        document = self._read()
        if document.get("mcpServers", {}).pop(name, None) is None:
            return False
        if document == {"mcpServers": {}}:
            self.path.unlink()  # an empty file of a project would still ask for trust
        else:
            self._write(document)
        return True

    def listed(self, environ: Mapping[str, str]) -> list[ListedServer]:
        """Raises `InvalidRequest` when the file cannot be read at all."""
        entries = self.entries()
        if not entries:
            return []
        parsed = parse_mcp_config(json.dumps({"mcpServers": entries}), environ, str(self.path))
        usable = {server.name: server for server in parsed.servers}
        names = server_names(tuple(entries))
        found = []
        for written, name in names.items():
            server = usable.get(name)
            is_enabled = server is not None or name in parsed.problems
            address = "" if server is None else server.address
            problem = parsed.problems.get(name, "")
            found.append(
                ListedServer(name=written, scope=self.scope, address=address, enabled=is_enabled, problem=problem)
            )
        return found

    def secrets(self, environ: Mapping[str, str]) -> set[str]:
        """The values of variables, headers and addresses in this file that no one else should read."""
        parsed = parse_mcp_config(json.dumps({"mcpServers": self.entries()}), environ, str(self.path))
        return {value for server in parsed.servers for value in _secrets_of(server) if len(value) >= MIN_SECRET}

    def _read(self) -> dict[str, Any]:
        try:
            document = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InvalidRequest(f"{self.path} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError) as error:
            why = f": {error.msg} (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
            raise InvalidRequest(f"{self.path} is not JSON{why}.", hint="Correct it, or move it away.") from None
        if not isinstance(document, dict) or not isinstance(document.get("mcpServers", {}), dict):
            hint = 'It must look like {"mcpServers": {"name": {"command": "..."}}}.'
            raise InvalidRequest(f"{self.path} is no file of MCP servers.", hint=hint)
        return document

    def _write(self, document: Mapping[str, Any]) -> None:
        """Replace the file whole; variables of servers may be secret, so the user's is closed to others."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
                if self.scope == "project":
                    os.chmod(draft, 0o644)
                os.replace(draft, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft)
                raise
        except OSError as error:
            raise InvalidRequest(f"{self.path} cannot be written: {error.strerror}.") from None


def _secrets_of(server: McpServer) -> list[str]:
    if isinstance(server, HttpServer):
        parts = urlsplit(server.url)
        queried = [value for _, value in parse_qsl(parts.query)]
        headers = [value.reveal() for value in server.headers.values()]
        # A header such as `Authorization: Bearer KEY` may be repeated without its first word.
        return [*headers, *(header.rpartition(" ")[2] for header in headers), *queried, parts.password or ""]
    assigned = [word.partition("=")[2] for word in server.args]
    after_flag = [value for flag, value in pairwise(server.args) if _SECRET_FLAG.search(flag)]
    return [*(value.reveal() for value in server.env.values()), *assigned, *after_flag]


def without_secrets(text: str, secrets: set[str]) -> str:
    """The text with every known secret hidden; longer ones first, since one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "(hidden)")
    return text


class _AnyVariable(dict[str, str]):
    """`${NAME}` in a new entry is looked up when the server starts, and may be set by then."""

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> Any:
        return "x"


def server_line(one: ListedServer) -> str:
    state = "disabled" if not one.enabled else one.problem or one.state
    tools = f", {len(one.tools)} tool{'' if len(one.tools) == 1 else 's'}" if one.tools else ""
    return one_line(f"{one.name}  ({one.scope})  {one.address}{': ' if state else ''}{state}{tools}")


def server_files(home: Path, folder: str) -> tuple[ServerFile, ServerFile]:
    """The user's file and the project's."""
    return ServerFile(home / USER_SERVERS, "user"), ServerFile(Path(folder) / PROJECT_SERVERS, "project")


async def checked_servers(
    listed: list[ListedServer],
    home: Path,
    folder: str,
    environ: Mapping[str, str],
    *,
    trust: TrustOf,
    within_s: float = CHECK_S,
) -> list[ListedServer]:
    """The same with their states, after starting those that are enabled. One of a project that may not be started says
    so as its problem; of two with one name the user's is started."""
    try:
        files = await _trusted_files(folder, trust)
        why = "the folder is not trusted, or the file changed since: run `makai sessions trust --yes`"
    except MakaiError as error:
        files, why = {}, str(error)
    trusted = bool(files)
    own = {one.name for one in listed if one.scope == "user"}
    started, checked = [], []
    for one in listed:
        if one.scope == "project" and one.name in own:
            one = msgspec.structs.replace(one, enabled=False)
        elif one.scope == "project" and not trusted and one.enabled and not one.problem:
            one = msgspec.structs.replace(one, problem=f"not started: {why}")
        checked.append(one)
        if one.enabled and not one.problem:
            started.append(one.name)
    names = server_names([one.name for one in listed if one.scope == "user"])
    names |= server_names([one.name for one in listed if one.scope == "project"])
    spec = WorkbenchSpec(
        session_id=f"check-{uuid4()}",
        cwd=folder,
        makai_home=home,
        trusted=trusted,
        trusted_files=files,
        environ=environ,
        only_servers=frozenset(names[name] for name in started),
    )
    if not started:
        return checked
    async with Workbench(spec) as bench:
        await bench.ready(within_s)
        statuses = {status.name: status for status in bench.servers}
        tools, logs = bench.server_tools(), bench.server_logs()
    secrets = {value for file in server_files(home, folder) for value in file.secrets(environ)}
    found = [_with_status(one, names[one.name], statuses, tools) if one.name in started else one for one in checked]
    return [_without_secrets(one, logs.get(names[one.name], ""), secrets) for one in found]


def _without_secrets(one: ListedServer, log: str, secrets: set[str]) -> ListedServer:
    shown = {"problem": without_secrets(one.problem, secrets), "log": without_secrets(log, secrets)}
    return msgspec.structs.replace(one, **shown)


def _with_status(one: ListedServer, name: str, statuses: Mapping[str, Any], tools: Mapping[str, Any]) -> ListedServer:
    if not one.enabled or one.problem or (status := statuses.get(name)) is None:
        return one
    own = tuple(sorted(tool for tool in tools if tool.startswith(f"mcp__{name}__")))
    problem = "" if status.state == "ready" else status.reason or "it did not answer in time"
    return msgspec.structs.replace(one, state=status.state, problem=problem, tools=own)


async def _trusted_files(folder: str, trust: TrustOf) -> dict[str, str]:
    """The digest of the project's file of servers, if they may be started."""
    if not (Path(folder) / PROJECT_SERVERS).is_file():
        return {}
    known = await trust(folder)
    if not known.trusted or PROJECT_SERVERS in {diff.path for diff in known.changed}:
        return {}
    return {path: digest for path, digest in known.digests.items() if path == PROJECT_SERVERS}
