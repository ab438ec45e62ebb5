"""The answer to `initialize`, and a way to give it before anything else is loaded.

The event loop and the typed messages take several times as long to import as Python takes to start, and an editor waits
for this answer. So this module imports next to nothing, and `plain_initialize` reads a first message that is plainly
valid. Everything unusual is left to `acp_connection`, which gives the same answer, or says what is wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from makai.core.version import __version__

LOGIN_OPTION: Final = "--login"
"""Of `makai acp`: what an editor adds to its command to have a person log in in a terminal."""
TERMINAL_METHOD: Final = "makai-terminal"
BROWSER_FLOWS: Final = frozenset(
    {"github_copilot", "google_gemini_cli", "oidc", "openai_codex", "openrouter", "test_fixture"}
)
"""Logins that an editor can go through: it may show an address, and must not be asked for a key."""
MAX_PLAIN_BYTES: Final = 64 * 1024
_MAX_BRACKETS: Final = 64
_MAX_ID: Final = 2**53
_VERSIONS: Final = range(65536)


class OfferedLogin(NamedTuple):
    """A provider that an editor can log in to."""

    id: str
    name: str


BUILTIN_LOGINS: Final = (
    OfferedLogin("google-gemini-cli", "Google Gemini Code Assist"),
    OfferedLogin("openrouter", "OpenRouter"),
    OfferedLogin("openai-codex", "ChatGPT plan (Codex)"),
    OfferedLogin("github-copilot", "GitHub Copilot"),
)
"""What `configured_logins` finds for a user without settings: reading the tables takes longer than the handshake."""


def offered_logins(environ: Mapping[str, str]) -> Sequence[OfferedLogin]:
    """The logins of this user's MAKAI_HOME. Blocks."""
    home = os.path.expanduser(environ.get("MAKAI_HOME", "").strip() or "~/.makai")
    if "MAKAI_TEST_LOGIN" not in environ and not os.path.exists(os.path.join(home, "config.toml")):
        return BUILTIN_LOGINS
    from makai.core.errors import MakaiError

    try:
        return configured_logins(environ, home)
    except MakaiError:  # the first request that needs the settings says what is wrong with them
        return BUILTIN_LOGINS


def configured_logins(environ: Mapping[str, str], home: str) -> Sequence[OfferedLogin]:
    """The same, read from the tables, the environment and config.toml."""
    from pathlib import Path

    from makai.catalog.logins import additional_vendors, login_providers
    from makai.catalog.vendor_table import builtin_vendors
    from makai.providers.logins import CONFIG_FILE, read_config

    config = read_config(Path(home) / CONFIG_FILE)
    vendors = builtin_vendors().with_rows(additional_vendors(config, environ))
    providers = login_providers(vendors, config, environ)
    return tuple(OfferedLogin(provider.id, provider.name) for provider in providers if provider.flow in BROWSER_FLOWS)


def auth_methods(logins: Sequence[OfferedLogin], *, has_terminal: bool) -> list[dict[str, Any]]:
    """`has_terminal`: the client declares that it can run a login in a terminal."""
    methods: list[dict[str, Any]] = [
        {"id": login.id, "name": f"Log in to {login.name}", "description": "In your browser"} for login in logins
    ]
    if has_terminal:
        name, description = "Log in in a terminal", "For API keys and all other logins"
        method = {"type": "terminal", "id": TERMINAL_METHOD, "name": name, "description": description}
        methods.append({**method, "args": [LOGIN_OPTION]})
    return methods


def initialize_result(methods: Sequence[dict[str, Any]], *, may_log_in: bool, unstable: bool) -> dict[str, Any]:
    """The answer to every version: the client decides whether it can work with ours (ACP-INIT-004)."""
    sessions = ["list", "delete", "additionalDirectories", "resume", "close", *(["fork"] if unstable else [])]
    return {
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {name: {} for name in sessions},
            "auth": {"logout": {}} if may_log_in else {},
        },
        "authMethods": list(methods),
        "agentInfo": {"name": "makai", "title": "Makai", "version": __version__},
        "_meta": {"steering": {"supported": True}},
    }


def early_answer(line: bytes, environ: Mapping[str, str], *, unstable: bool) -> bytes | None:
    """The line that answers a plain `initialize` of a local client; None for everything else."""
    if (message := plain_initialize(line)) is None:
        return None
    declared = message["params"].get("clientCapabilities", {}).get("auth", {})
    methods = auth_methods(offered_logins(environ), has_terminal=declared.get("terminal", False))
    result = initialize_result(methods, may_log_in=True, unstable=unstable)
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"


def plain_initialize(line: bytes) -> dict[str, Any] | None:
    """The message, when there can be no doubt about it: no escapes, no fractions, every known member of its type."""
    is_plain = len(line) <= MAX_PLAIN_BYTES and line.isascii() and b"\\" not in line
    if not is_plain or line.count(b"{") + line.count(b"[") > _MAX_BRACKETS:
        return None
    try:
        message = json.loads(line, parse_float=_refuse, parse_constant=_refuse)
    except ValueError:
        return None
    if not isinstance(message, dict) or (message.get("jsonrpc"), message.get("method")) != ("2.0", "initialize"):
        return None
    given = message.get("id")
    params: Any = message.get("params")
    has_id = (type(given) is int and 0 < given < _MAX_ID) or (isinstance(given, str) and len(given) < 1024)
    return message if has_id and _fits(params, _PARAMS) and params["protocolVersion"] in _VERSIONS else None


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


class _OrNull(NamedTuple):
    shape: Any


class _Object(NamedTuple):
    members: Mapping[str, Any]
    required: frozenset[str] = frozenset()


_PRESENT: Final = _OrNull(_Object({}))
_PARAMS: Final = _Object(
    {
        "protocolVersion": int,
        "clientInfo": _OrNull(
            _Object({"name": str, "version": str, "title": _OrNull(str)}, frozenset({"name", "version"}))
        ),
        "clientCapabilities": _Object(
            {
                "fs": _Object({"readTextFile": bool, "writeTextFile": bool}),
                "terminal": bool,
                "auth": _Object({"terminal": bool}),
                "elicitation": _OrNull(_Object({"form": _PRESENT, "url": _PRESENT})),
                "session": _OrNull(
                    _Object(
                        {
                            "compaction": _PRESENT,
                            "notices": _PRESENT,
                            "configOptions": _OrNull(_Object({"boolean": _PRESENT})),
                        }
                    )
                ),
            }
        ),
    },
    frozenset({"protocolVersion"}),
)
"""`connecting.InitializeRequest`, in plain values."""


def _fits(value: Any, shape: Any) -> bool:
    match shape:
        case _OrNull(inner):
            return value is None or _fits(value, inner)
        case _Object(members, required):
            if not isinstance(value, dict) or not required <= value.keys():
                return False
            meta = value.get("_meta")
            known = (name for name in members if name in value)
            return (meta is None or isinstance(meta, dict)) and all(_fits(value[name], members[name]) for name in known)
        case _:
            return type(value) is shape
