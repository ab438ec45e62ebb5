"""What every harness of makai can do, as data: its capabilities, its manifest and the fields of a spec that it honours.

Everything can be read without constructing a harness, importing its driver or looking for its program (DM-ENDP-004).
The flags are written once: the manifest and the honoured fields are derived from the capabilities (DM-ENDP-006).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

import msgspec

from makai.core.errors import NoProvider
from makai.harness.contract.capabilities import Capabilities
from makai.harness.contract.endpoint import (
    HarnessCaps,
    HarnessManifest,
    ProviderName,
    ServingHost,
    StreamingTransport,
    TransportKind,
    WireProtocol,
)
from makai.harness.contract.spec import Spec

SPEC_FIELDS: Final = frozenset(Spec.__struct_fields__)
_CHILD_PROCESS: Final = frozenset({"env", "on_process_spawned"})
_BY_QUESTIONS: Final = frozenset({"disallowed_tools"})
"""Of agents that take no rules and ask makai, which denies by them. What they do unasked cannot be forbidden, and a
notice of the session says so."""
_GATED: Final[Mapping[str, str]] = {
    "effort": "supports_reasoning_effort",
    "base_instructions": "needs_base_instructions",
    "permission_config": "needs_permission_config",
    "code_intel_enforcement": "supports_code_intelligence_enforcement",
    "initial_context": "supports_turn_input_context",
    "allowed_tools": "accepts_allowed_tools_list",
    "mcp_tool_names": "accepts_allowed_tools_list",
    "mcp_servers": "accepts_mcp_server_spec",
}
"""Fields of a spec that count only with a capability (DM-SPEC-008). `response_schema` needs `native_json_mode`."""
_SHARED_FLAGS: Final = tuple(name for name in HarnessCaps.__struct_fields__ if name in Capabilities.__struct_fields__)


class HarnessDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """One harness."""

    name: str
    """Its name in the contract."""
    aliases: tuple[str, ...] = ()
    """Its provider name, its id in sessions of makai, and other names that people write."""
    capabilities: Capabilities
    drives: tuple[WireProtocol, ...]
    hosts: tuple[ServingHost, ...]
    transport: TransportKind
    stream: StreamingTransport
    native_json_mode: bool = False
    one_shot: bool = True
    """Whether it can complete a request. An agent that acts without asking cannot: nothing would deny its calls."""
    honours: frozenset[str] = frozenset()
    """Fields of a spec that it honours beside the prompt, the folder and those that a capability stands for."""

    def manifest(self) -> HarnessManifest:
        flags = {name: getattr(self.capabilities, name) for name in _SHARED_FLAGS}
        return HarnessManifest(
            name=self.name,
            human_label=self.capabilities.human_label,
            caps=HarnessCaps(
                **flags,
                supports_one_shot=self.one_shot,
                native_json_mode=self.native_json_mode,
                streaming_transport=self.stream,
                drives=self.drives,
                drives_hosts=self.hosts,
                transport=self.transport,
            ),
        )

    def honoured_fields(self) -> frozenset[str]:
        gated = {field for field, flag in _GATED.items() if getattr(self.capabilities, flag)}
        schema = {"response_schema"} if self.native_json_mode else set[str]()
        return frozenset({"prompt", "cwd", "autonomous"} | gated | schema | self.honours)


_CLAUDE_CODE: Final = HarnessDeclaration(
    name="claude-code",
    aliases=("claude",),
    capabilities=Capabilities(
        human_label="Claude Code",
        supports_message_injection=True,
        supports_session_resume=True,
        supports_tool_plugins=True,
        needs_permission_config=True,
        emits_subagent_events=True,
        supports_reasoning_effort=True,
        tool_permission_format="claude",
        accepts_allowed_tools_list=True,
        accepts_mcp_server_spec=True,
    ),
    drives=("anthropic-messages",),
    hosts=("oauth-cli", "direct", "bedrock", "vertex"),
    transport="cli-injection",
    stream="ndjson",
    native_json_mode=True,
    honours=_CHILD_PROCESS | {"disallowed_tools", "endpoint", "max_turns", "model", "system_prompt_append"},
)
_CODEX: Final = HarnessDeclaration(
    name="codex",
    capabilities=Capabilities(
        human_label="Codex",
        supports_message_injection=True,
        supports_session_resume=True,
        supports_tool_plugins=True,
        needs_base_instructions=True,
        needs_permission_config=True,
        supports_reasoning_effort=True,
        tool_permission_format="codex",
        accepts_mcp_server_spec=True,
        supports_turn_input_context=True,
    ),
    drives=("openai-responses",),
    hosts=("oauth-cli", "direct", "azure"),
    transport="subprocess-jsonrpc",
    stream="ndjson",
    native_json_mode=True,
    honours=_CHILD_PROCESS
    | _BY_QUESTIONS
    | {"endpoint", "model", "provider_config", "sandbox_enabled", "sandbox_level", "system_prompt_append"},
)
_OPENCODE: Final = HarnessDeclaration(
    name="opencode",
    aliases=("acp:opencode",),
    capabilities=Capabilities(
        human_label="opencode",
        supports_session_resume=True,
        supports_tool_plugins=True,
        needs_permission_config=True,
        tool_permission_format="claude",
        accepts_mcp_server_spec=True,
        supports_turn_input_context=True,
    ),
    drives=("openai-chat", "openai-responses", "anthropic-messages"),
    hosts=("direct", "local"),
    transport="subprocess-jsonrpc",
    stream="ndjson",
    honours=_CHILD_PROCESS | _BY_QUESTIONS | {"endpoint", "model"},
)
_GEMINI: Final = HarnessDeclaration(
    name="gemini",
    aliases=("acp:gemini", "gemini-cli"),
    capabilities=Capabilities(
        human_label="Gemini CLI",
        supports_tool_plugins=True,
        needs_permission_config=True,
        tool_permission_format="claude",
        accepts_mcp_server_spec=True,
        supports_turn_input_context=True,
    ),
    drives=("gemini-generate",),
    hosts=("direct", "vertex"),
    transport="subprocess-jsonrpc",
    stream="ndjson",
    honours=_CHILD_PROCESS | _BY_QUESTIONS | {"endpoint", "model"},
)
_AMP: Final = HarnessDeclaration(
    name="amp",
    capabilities=Capabilities(
        human_label="Amp",
        supports_tool_plugins=True,
        tool_permission_format="claude",
        accepts_mcp_server_spec=True,
        supports_turn_input_context=True,
    ),
    drives=("anthropic-messages",),
    hosts=("direct",),
    transport="cli-injection",
    stream="ndjson",
    honours=_CHILD_PROCESS,
)
_ANTIGRAVITY: Final = HarnessDeclaration(
    name="antigravity",
    aliases=("agy-cli",),
    capabilities=Capabilities(human_label="Antigravity", supports_turn_input_context=True),
    drives=("antigravity-oauth",),
    hosts=("oauth-cli",),
    transport="pty",
    stream="none",
    one_shot=False,
    honours=_CHILD_PROCESS,
)
_RAW: Final = HarnessDeclaration(
    name="raw",
    aliases=("native", "makai"),
    capabilities=Capabilities(
        human_label="makai",
        supports_message_injection=True,
        supports_session_resume=True,
        supports_tool_plugins=True,
        needs_base_instructions=True,
        needs_permission_config=True,
        supports_reasoning_effort=True,
        tool_permission_format="claude",
        accepts_allowed_tools_list=True,
        accepts_mcp_server_spec=True,
        supports_turn_input_context=True,
    ),
    drives=("anthropic-messages", "openai-chat", "openai-responses", "gemini-generate", "ollama"),
    hosts=("direct", "azure", "local"),
    transport="direct-api",
    stream="sse",
    native_json_mode=True,
    honours=frozenset(
        {
            *("disallowed_tools", "endpoint", "env", "max_turns", "model"),
            *("sandbox_enabled", "sandbox_level", "system_prompt_append"),
        }
    ),
)
_STUB: Final = HarnessDeclaration(
    name="stub",
    capabilities=Capabilities(
        human_label="Stub",
        supports_message_injection=True,
        supports_session_resume=True,
        supports_tool_plugins=True,
        needs_base_instructions=True,
        needs_permission_config=True,
        supports_code_intelligence_enforcement=True,
        emits_subagent_events=True,
        supports_reasoning_effort=True,
        tool_permission_format="claude",
        accepts_allowed_tools_list=True,
        accepts_mcp_server_spec=True,
        supports_turn_input_context=True,
    ),
    drives=("stub",),
    hosts=("local",),
    transport="direct-api",
    stream="none",
    native_json_mode=True,
    honours=SPEC_FIELDS - {"on_process_spawned"},
)

DECLARATIONS: Final[Mapping[str, HarnessDeclaration]] = {
    row.name: row for row in (_AMP, _ANTIGRAVITY, _CLAUDE_CODE, _CODEX, _GEMINI, _OPENCODE, _RAW, _STUB)
}
"""Every harness by its name in the contract."""
_NAMES: Final[Mapping[str, HarnessDeclaration]] = {
    name: row for row in DECLARATIONS.values() for name in (row.name, *row.aliases)
}


def harness_declaration(harness: str) -> HarnessDeclaration:
    """By the name in the contract or another one, such as "native" for "raw". `NoProvider` when there is none."""
    if (row := _NAMES.get(harness)) is None:
        raise NoProvider(f"There is no harness {harness!r}.", hint=f"Use one of: {', '.join(DECLARATIONS)}.")
    return row


def provider_name_of(harness: str) -> str:
    """The name by which results of a harness name their provider, such as "claude" for "claude-code" (DM-PROV-014).
    A harness that has no such name keeps its own."""
    row = _NAMES.get(harness)
    names = (harness,) if row is None else (row.name, *row.aliases)
    return next((name for name in names if name in get_args(ProviderName)), names[0])


def harness_manifests() -> tuple[HarnessManifest, ...]:
    """Every manifest, sorted by name."""
    return tuple(row.manifest() for _, row in sorted(DECLARATIONS.items()))


def honoured_fields(harness: str) -> frozenset[str]:
    """The fields of a spec that a harness honours. It ignores all others without an error (DM-SPEC-008)."""
    return harness_declaration(harness).honoured_fields()


def ignored_fields(harness: str, spec: Spec) -> tuple[str, ...]:
    """The fields that are set in this spec and ignored by the harness, so that a caller can report them."""
    unset = Spec(prompt="")
    given = (name for name in Spec.__struct_fields__ if getattr(spec, name) != getattr(unset, name))
    honoured = honoured_fields(harness)
    return tuple(name for name in given if name not in honoured)
