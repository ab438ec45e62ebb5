"""How Claude Code is started: its command line, its environment, its MCP servers.

Values that a client chose are given as `--option=value`, so that none can be taken for an option.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makai.harness.acp.peer import AgentLaunch
from makai.wire.acp import sessions

DUPLEX: Final = (
    "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
    "--permission-prompt-tool", "stdio", "--include-partial-messages",
)  # fmt: skip
MAX_SCHEMA_BYTES: Final = 100_000
"""An argument of a program has at most 128 KiB on Linux."""
_SCHEMA_TOOL: Final = "StructuredOutput"
"""The tool of the program by which the model answers a prompt with a schema; a question about it would be denied."""
_CHOICES: Final = frozenset({"anyOf", "oneOf", "allOf"})


class PassedServers(msgspec.Struct, frozen=True):
    """The session's MCP servers as the program takes them."""

    text: str
    has_secret: bool
    """Whether a command line, which other users of the machine can read, must not hold it."""


def mcp_config(servers: Sequence[msgspec.Raw]) -> PassedServers | None:
    entries: dict[str, Any] = {}
    has_secret = False
    for raw in servers:
        server = sessions.mcp_server(raw)
        if isinstance(server, sessions.StdioMcpServer):
            values = {one.name: one.value for one in server.env}
            entry = {"type": "stdio", "command": server.command, "args": server.args, "env": values}
        else:
            values = {one.name: one.value for one in server.headers}
            kind = "http" if isinstance(server, sessions.HttpMcpServer) else "sse"
            entry = {"type": kind, "url": server.url, "headers": values}
            has_secret = has_secret or "@" in server.url or "?" in server.url
        has_secret = has_secret or bool(values)
        entries[server.name] = entry
    return PassedServers(msgspec.json.encode({"mcpServers": entries}).decode(), has_secret) if entries else None


def arguments(
    launch: AgentLaunch, *, new: str = "", resume: str = "", folders: Sequence[str] = (), mcp: str = ""
) -> list[str]:
    """The options of a process for the session `new` or `resume`. `mcp` is a file or the JSON text itself."""
    schema = _offered_schema(launch.json_schema)
    chosen = {
        "--session-id": new,
        "--resume": resume,
        "--model": launch.model,
        "--effort": launch.effort,
        "--max-turns": "" if launch.max_turns is None else str(launch.max_turns),
        "--append-system-prompt": launch.system_append,
        "--allowedTools": ",".join((*launch.allow, _SCHEMA_TOOL) if schema else launch.allow),
        "--disallowedTools": ",".join(launch.deny),
        "--mcp-config": mcp,
        "--json-schema": schema,
    }
    return [
        *DUPLEX,
        *(f"{option}={value}" for option, value in chosen.items() if value),
        *(f"--add-dir={folder}" for folder in folders),
    ]


def _offered_schema(schema: str | None) -> str:
    """The schema, when the program can use it: the model gets it as the arguments of a tool, which are an object whose
    schema is not a choice of several. Any other schema is asked for by the prompt alone."""
    if schema is None or len(schema.encode()) > MAX_SCHEMA_BYTES:
        return ""
    try:
        value = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return ""
    is_object = isinstance(value, dict) and value.get("type") == "object" and not _CHOICES & value.keys()
    return schema if is_object else ""


def environment(env: Mapping[str, str], folder: str, *, has_servers: bool) -> dict[str, str]:
    """`folder` is for temporary files and sockets, which would otherwise be shared between sessions."""
    own = {
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        "CLAUDE_CODE_TMPDIR": folder,
    }
    # Without this, tools of MCP servers are not offered to the model until it searches for them.
    return {**env, **own} | ({"ENABLE_TOOL_SEARCH": "false"} if has_servers else {})


def private_file(text: str, folder: str) -> str:
    """The path of a new file that only its owner can read."""
    descriptor, path = tempfile.mkstemp(dir=folder)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path
