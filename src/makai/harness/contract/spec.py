"""What a harness is asked to run: the input of `spawn` and `resume` (DM-SPEC-001)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from makai.harness.contract.endpoint import EndpointBinding, Unset
from makai.harness.contract.shapes import ContractShape, always

SandboxLevel: TypeAlias = Literal["read-only", "workspace-write", "full-access"]
EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh"]
JsonSchema: TypeAlias = Mapping[str, Any] | bool


class MCPServerConfig(ContractShape, frozen=True, kw_only=True):
    """An MCP server that the session gets: a command (`command`, `args`, `env`) or an address (`url`, `headers`)."""

    name: str
    type: Literal["stdio", "http"] | Unset = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def transport(self) -> Literal["stdio", "http"]:
        """`type`, where an empty one means stdio (DM-SPEC-004)."""
        return self.type or "stdio"


class PermissionConfig(ContractShape, frozen=True, kw_only=True):
    """A permission policy, for harnesses that declare `needs_permission_config`."""

    allow_patterns: tuple[str, ...] = ()
    disallow_patterns: tuple[str, ...] = ()
    default_decision: Literal["allow", "deny", "prompt"] | Unset = ""

    @property
    def fallback(self) -> Literal["allow", "deny", "prompt"]:
        """What happens to a call that no pattern matches; an empty decision means prompt (DM-SPEC-005)."""
        return self.default_decision or "prompt"


class CodeIntelEnforcement(ContractShape, frozen=True, kw_only=True):
    """Redirects native searches to the code intelligence tools until the agent has tried one of these."""

    enforce_usage: bool = always(bool)
    fallback_after_attempt: bool = always(bool)


class Spec(ContractShape, frozen=True, kw_only=True):
    """One session of a harness. A harness ignores the fields that it does not support, without an error; callers ask
    its capabilities, and `honoured_fields` tells which ones those are."""

    NEVER_READ: ClassVar = frozenset({"onProcessSpawned"})

    prompt: str
    cwd: str = always(str)
    env: Mapping[str, str] = always(dict)
    """Merged over the environment of the process, from which blocked variables were removed before."""
    autonomous: bool = always(bool)
    """There is no user who could answer questions."""
    sandbox_enabled: bool = always(bool)
    sandbox_level: SandboxLevel | None = None
    """Counts only with `sandbox_enabled`. None: the harness' default."""
    allowed_tools: tuple[str, ...] = ()
    """Patterns of calls that need no approval, such as `Bash(git:*)`."""
    disallowed_tools: tuple[str, ...] = ()
    mcp_servers: tuple[MCPServerConfig, ...] = msgspec.field(default=(), name="mcpStdioServers")
    mcp_tool_names: tuple[str, ...] = ()
    """Full names of MCP tools that are allowed beside `allowed_tools`."""
    max_turns: int | None = None
    model: str = ""
    endpoint: EndpointBinding | None = None
    effort: EffortLevel | None = None
    response_schema: JsonSchema | None = None
    base_instructions: str = ""
    system_prompt_append: str = ""
    initial_context: str = ""
    permission_config: PermissionConfig | None = None
    code_intel_enforcement: CodeIntelEnforcement | None = msgspec.field(
        default=None, name="codeIntelligenceEnforcement"
    )
    provider_config: Mapping[str, Any] = msgspec.field(default_factory=dict)
    sub_agent_provider: str = ""
    on_process_spawned: Callable[[int], None] | None = None
    """Called once, with the id of the agent's own process, when the process that answers the prompt is started. It is
    there to be watched: to end the agent with all it started, stop its handle. Never serialized."""

    @property
    def effective_model(self) -> str:
        """The model of the endpoint, else `model`. Empty: the harness' default."""
        return (self.endpoint.model if self.endpoint is not None else "") or self.model

    @property
    def effective_sandbox_level(self) -> SandboxLevel | None:
        return self.sandbox_level if self.sandbox_enabled else None

    @property
    def effective_allowed_tools(self) -> tuple[str, ...]:
        """`allowed_tools` and `mcp_tool_names`, each once and in order (DM-SPEC-007)."""
        return tuple(dict.fromkeys((*self.allowed_tools, *self.mcp_tool_names)))

    def public(self) -> Spec:
        endpoint = self.endpoint.public() if self.endpoint is not None else None
        return msgspec.structs.replace(self, endpoint=endpoint, on_process_spawned=None)
