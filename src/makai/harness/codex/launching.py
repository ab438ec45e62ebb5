"""How Codex's program is started: which file runs, with which environment, and what a thread begins with."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.harness.acp.peer import AgentLaunch
from makai.wire.acp import sessions

_WRAPPER: Final = "codex.js"
_TEMPORARY: Final = "makai-tmp"
_ARCHITECTURES: Final = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_SANDBOXES: Final[dict[ev.SandboxLevel, str]] = {"full-access": "danger-full-access"}


def direct_program(found: str) -> str:
    """The program itself where `found` is the script of its npm package: signals reach it without a process between."""
    script = Path(os.path.realpath(found))
    if script.name != _WRAPPER:
        return found
    package = script.parent.parent
    machine = _ARCHITECTURES.get(platform.machine().lower(), "")
    system = "apple-darwin" if sys.platform == "darwin" else "unknown-linux-musl"
    places = (package, *package.glob("node_modules/@openai/codex-*"), *package.parent.glob("codex-*"))
    for place in places:
        program = place / "vendor" / f"{machine}-{system}" / "bin" / "codex"
        if os.access(program, os.X_OK):
            return str(program)
    return found


def codex_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, with another folder for temporary files where Codex's home lies below that folder: it makes no
    helper programs there, and without them no command runs in its sandbox."""
    home = env.get("CODEX_HOME") or os.path.join(env.get("HOME", ""), ".codex")
    temporary = os.path.realpath(env.get("TMPDIR") or "/tmp")
    if not os.path.isabs(home) or os.path.commonpath((os.path.realpath(home), temporary)) != temporary:
        return dict(env)
    other = os.path.join(home, _TEMPORARY)
    with suppress(OSError):
        os.makedirs(other, mode=0o700, exist_ok=True)
        return {**env, "TMPDIR": other}
    return dict(env)


def thread_settings(launch: AgentLaunch, servers: Sequence[msgspec.Raw], folders: Sequence[str]) -> dict[str, Any]:
    """Parameters of thread/start and thread/resume. Codex asks about everything that it does not know to be harmless,
    and asks us: neither its configuration nor another model answers for the person (`approvalsReviewer`). The sandbox
    is no bound for an approved command: Codex may run it again without the sandbox, and does not ask a second time."""
    config = _options(launch.options_json)
    if servers:
        config["mcp_servers"] = {**_table(config.get("mcp_servers")), **dict(map(_server, servers))}
    settings: dict[str, Any] = {
        "cwd": launch.cwd,
        "approvalPolicy": "untrusted",
        "approvalsReviewer": "user",
        "sandbox": _SANDBOXES.get(launch.sandbox, launch.sandbox),
    }
    if launch.model:
        settings["model"] = launch.model
    if launch.system_append:
        settings["developerInstructions"] = launch.system_append
    if folders:
        settings["runtimeWorkspaceRoots"] = [launch.cwd, *folders]
    return settings | ({"config": config} if config else {})


def turn_settings(launch: AgentLaunch, model: str) -> dict[str, Any]:
    """Parameters of turn/start, beside its input."""
    settings: dict[str, Any] = {}
    if model:
        settings["model"] = model
    if launch.effort:
        settings["effort"] = "none" if launch.effort == "off" else launch.effort
    if launch.json_schema is not None:
        settings["outputSchema"] = msgspec.Raw(launch.json_schema.encode())
    return settings


def _options(text: str) -> dict[str, Any]:
    """The options of a session: values of Codex's configuration."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        raise InvalidRequest("The options of Codex are not a JSON object of configuration values.") from None


def _server(raw: msgspec.Raw) -> tuple[str, dict[str, Any]]:
    """An MCP server as Codex's configuration has it. It is sent on standard input: its values may be secrets."""
    server = sessions.mcp_server(raw)
    if isinstance(server, sessions.StdioMcpServer):
        env = {pair.name: pair.value for pair in server.env}
        return server.name, {"command": server.command, "args": list(server.args), "env": env}
    headers = {pair.name: pair.value for pair in server.headers}
    return server.name, {"url": server.url} | ({"http_headers": headers} if headers else {})


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
