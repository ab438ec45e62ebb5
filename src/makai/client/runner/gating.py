"""Fits a spec to what a harness can do, before it sees the spec (DM-CAP-005)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from makai.harness.contract.capabilities import Capabilities, Capability, is_supported
from makai.harness.contract.spec import Spec

_BOUND: Final[tuple[tuple[Capability, str, Any], ...]] = (
    ("reasoning_effort", "effort", None),
    ("base_instructions", "base_instructions", ""),
    ("permission_config", "permission_config", None),
    ("code_intel_enforcement", "code_intel_enforcement", None),
    ("accepts_allowed_tools_list", "allowed_tools", ()),
    ("accepts_mcp_server_spec", "mcp_servers", ()),
    ("accepts_allowed_tools_list", "mcp_tool_names", ()),
)
"""Fields that need a capability, and their unset values."""


def fitted(spec: Spec, capabilities: Capabilities) -> tuple[Spec, tuple[str, ...]]:
    """The spec without fields that the harness does not honour, and the names of those that were set.

    Context for the first turn is folded into the system prompt where a harness has no place for it (DM-SPEC-010).
    """
    dropped = [
        (field, unset)
        for capability, field, unset in _BOUND
        if getattr(spec, field) != unset and not is_supported(capabilities, capability)
    ]
    changes: dict[str, Any] = dict(dropped)
    if spec.initial_context and not is_supported(capabilities, "turn_input_context"):
        changes["initial_context"] = ""
        parts = (spec.system_prompt_append, spec.initial_context)
        changes["system_prompt_append"] = "\n\n".join(part for part in parts if part)
    return msgspec.structs.replace(spec, **changes), tuple(field for field, _ in dropped)
