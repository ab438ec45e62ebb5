"""What a session and a run work with: instructions, tools, sandbox, limits, rules, and what the agent can do.

Terms are in the log, because another process may resume a run and must know them. A new field has a default.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from makai.core.model import ReasoningEffort
from makai.core.request import StreamOptions, ToolDefinition

SandboxLevel: TypeAlias = Literal["read-only", "workspace-write", "full-access"]
SANDBOX_MEANINGS: Final[dict[SandboxLevel, str]] = {
    "read-only": "commands change no file",
    "workspace-write": "commands write only in the session's folders, without network",
    "full-access": "no sandbox: a command can do everything that you can",
}


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool server that a client wants for the session: a program to start, or an address. It names the variables and
    headers that the server needs and never holds their values, because terms are in the log."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    transport: Literal["stdio", "http", "sse"] = "stdio"
    env_names: tuple[str, ...] = ()
    header_names: tuple[str, ...] = ()


class ClientCapabilities(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the client that created the session does for its agent."""

    read_files: bool = False
    """Reads files, with changes that are not saved yet."""
    write_files: bool = False
    terminals: bool = False
    terminal_sandbox: str = ""
    """The sandbox in which its terminals run commands, as it says; empty when it says nothing about one."""


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session works with in all its runs, in every process that runs them."""

    system: str | None = None
    """Replaces the built-in system prompt."""
    system_append: str = ""
    """Instructions that are added to the agent's own, or to `system`."""
    agent_options_json: str = ""
    """Settings that only the agent of the session knows, as a JSON object; no secrets, because terms are in the log."""
    agent_session_id: str = ""
    """A session that the agent had before this one: its first run continues it, or fails when the agent has lost it."""
    builtin_tools: bool = False
    """Files, shell, search, fetch, plan and MCP, beneath the session's roots."""
    tools: tuple[ToolDefinition, ...] = ()
    """Tools that a client declared and executes itself."""
    tool_servers: tuple[str, ...] = ()
    """Ids of programs that register tools for every session that names them."""
    tool_servers_token: str = ""
    """When set, only servers that this token registered count: it may not use those of others."""
    mcp_servers: tuple[McpServer, ...] = ()
    client: ClientCapabilities = ClientCapabilities()
    sandbox: SandboxLevel = "workspace-write"
    max_usd: float | None = None
    """What all runs of the session may cost together, whichever agents carry them out; None for no limit."""
    approval_s: float | None = None
    """How long a question may wait for a person; None for the default of the server."""
    reasoning_effort: ReasoningEffort | None = None  # for runs that do not say; None for the model's default


MAX_MCP_WAIT_S: Final = 600.0


class RunTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits and wishes that came with one input. A limit of None is no limit."""

    options: StreamOptions = StreamOptions()
    max_turns: int | None = None
    max_output_tokens: int | None = None
    max_usd: float | None = None
    allow_unknown_price: bool = False
    """Begin although `max_usd` cannot be kept, because the price of the model is unknown; refused otherwise."""
    max_seconds: float | None = None
    mcp_wait_s: float | None = None
    """How long the run waits for all MCP servers before its first turn, at most `MAX_MCP_WAIT_S`; None: a moment."""
    allow: tuple[str, ...] = ()
    """Permission rules that count for this run only."""
    deny: tuple[str, ...] = ()
    token: str = ""
    """The token of the caller that sent the input, as in `mode_changed`; empty for a process of the same user."""
    trace_parent: str = ""
    """The `traceparent` of the caller's request (W3C Trace Context), under which the run is traced; usually empty."""


class HarnessCapabilities(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent of a session can do. The defaults are those of the native loop."""

    has_turns: bool = True
    """Reports every model call as a turn: words and calls inside one, results before the next."""
    needs_model: bool = True
    """Runs a model of the catalog; otherwise a session may have no `model_ref`."""
    resume: bool = True
    """Continues a run after a restart of the server."""
    steer: bool = True
    """Reads further input during a run."""
    compact: bool = True
    change_model: bool = True
    change_mode: bool = True
    """Obeys the permission modes."""
    images: bool = True
    audio: bool = True
    nested_agents: bool = True
    own_approvals: bool = False
    """The agent process itself asks for approvals, so its questions end with it."""
