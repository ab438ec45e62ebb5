"""What a harness can do, declared as flat flags that callers ask before they use an optional feature (DM-CAP-001)."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from makai.harness.contract.shapes import ContractShape, always

Capability: TypeAlias = Literal[
    "message_injection",
    "session_resume",
    "tool_plugins",
    "base_instructions",
    "permission_config",
    "code_intel_enforcement",
    "subagent_events",
    "reasoning_effort",
    "tool_perm_format_claude",
    "accepts_allowed_tools_list",
    "accepts_mcp_server_spec",
    "turn_input_context",
]


class Capabilities(ContractShape, frozen=True, kw_only=True):
    """The capabilities of a harness. They do not change while an instance lives."""

    supports_message_injection: bool = always(bool)
    """`Handle.inject` works."""
    supports_session_resume: bool = always(bool)
    supports_tool_plugins: bool = False
    """The agent can use tools of MCP servers."""
    needs_base_instructions: bool = False
    """`Spec.base_instructions` are honoured."""
    needs_permission_config: bool = False
    """`Spec.permission_config` is honoured."""
    supports_code_intelligence_enforcement: bool = False
    emits_subagent_events: bool = always(bool)
    supports_reasoning_effort: bool = False
    tool_permission_format: str = ""
    """The grammar of tool patterns: "claude", "codex", "spring-ai" or another. Empty means "claude"."""
    accepts_allowed_tools_list: bool = False
    """`Spec.allowed_tools` is honoured."""
    accepts_mcp_server_spec: bool = False
    """`Spec.mcp_servers` is honoured."""
    human_label: str = ""
    supports_turn_input_context: bool = False
    """`Spec.initial_context` is sent once, with the first input."""


_FIELDS: Final[dict[str, str]] = {
    "message_injection": "supports_message_injection",
    "session_resume": "supports_session_resume",
    "tool_plugins": "supports_tool_plugins",
    "base_instructions": "needs_base_instructions",
    "permission_config": "needs_permission_config",
    "code_intel_enforcement": "supports_code_intelligence_enforcement",
    "subagent_events": "emits_subagent_events",
    "reasoning_effort": "supports_reasoning_effort",
    "accepts_allowed_tools_list": "accepts_allowed_tools_list",
    "accepts_mcp_server_spec": "accepts_mcp_server_spec",
    "turn_input_context": "supports_turn_input_context",
}


def is_supported(capabilities: Capabilities, capability: Capability | str) -> bool:
    """Whether a harness declares a capability. False for a name that is unknown (DM-CAP-003)."""
    if capability == "tool_perm_format_claude":
        return capabilities.tool_permission_format in ("", "claude")
    return capability in _FIELDS and getattr(capabilities, _FIELDS[capability]) is True
