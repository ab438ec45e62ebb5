"""The two axes of the contract: which wire protocols a harness drives, and which a company's endpoint speaks.

Manifests are data and can be read without constructing or probing anything (DM-ENDP-004). A binding is a resolved
endpoint; its variables are never serialized (DM-ENDP-010).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from makai.harness.contract.shapes import NO_VARIABLES, ContractShape, always, hidden

WireProtocol: TypeAlias = Literal[
    "anthropic-messages", "openai-chat", "openai-responses", "gemini-generate", "ollama", "antigravity-oauth", "stub"
]
ServingHost: TypeAlias = Literal["direct", "bedrock", "vertex", "azure", "local", "oauth-cli"]
TransportKind: TypeAlias = Literal["cli-injection", "subprocess-jsonrpc", "pty", "direct-api"]
HarnessName: TypeAlias = Literal["claude-code", "codex", "opencode", "antigravity", "amp", "raw", "stub"]
"""The harnesses of the contract. makai has a further one of its own, `gemini`."""
ProviderName: TypeAlias = Literal[
    "claude", "codex", "stub", "spring-ai", "a2a", "amp", "gemini", "agy-cli", "ollama", "opencode", "jules"
]
Family: TypeAlias = Literal["agent-runtime", "model-endpoint"]
"""What a manifest describes: a harness, or an endpoint of models."""
AuthMode: TypeAlias = Literal["byok", "metered", "shared", "host-session", "local"]
CostModel: TypeAlias = Literal["host-subscription", "metered", "local"]
StreamingTransport: TypeAlias = Literal["sse", "ndjson", "websocket", "none"]
Company: TypeAlias = str
"""The vendor of models: "anthropic", "openai", "google", "local", "stub" and others."""
Unset: TypeAlias = Literal[""]

AGENT_RUNTIME: Literal["agent-runtime"] = "agent-runtime"
MODEL_ENDPOINT: Literal["model-endpoint"] = "model-endpoint"


class HarnessCaps(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    """The capabilities of a harness in its manifest: the flags of its loop, and what it drives."""

    supports_message_injection: bool = msgspec.field(default=False, name="inject")
    supports_session_resume: bool = msgspec.field(default=False, name="resume")
    supports_tool_plugins: bool = msgspec.field(default=False, name="tools")
    accepts_mcp_server_spec: bool = msgspec.field(default=False, name="mcp")
    accepts_allowed_tools_list: bool = msgspec.field(default=False, name="allowedToolsList")
    emits_subagent_events: bool = msgspec.field(default=False, name="subagents")
    supports_reasoning_effort: bool = msgspec.field(default=False, name="reasoningEffort")
    supports_one_shot: bool = msgspec.field(default=False, name="oneShot")
    native_json_mode: bool = False
    """The model's output is constrained by `Spec.response_schema`, not only asked to follow it."""
    tool_permission_format: str = ""
    streaming_transport: StreamingTransport = "none"
    drives: tuple[WireProtocol, ...] = ()
    drives_hosts: tuple[ServingHost, ...] = ()
    transport: TransportKind = "cli-injection"


class HarnessManifest(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    name: str
    """A `HarnessName`, or the name of a harness that only makai has."""
    human_label: str
    family: Literal["agent-runtime"] = AGENT_RUNTIME
    contract_abi: Literal["harness/v2"] = "harness/v2"
    caps: HarnessCaps = msgspec.field(name="capabilities")


class HostDesc(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    """One place where a company's models are served. A place that speaks two protocols has two of these."""

    host: ServingHost
    protocol: WireProtocol
    auth_modes: tuple[AuthMode, ...]
    brings_own_auth: bool
    """The login is that of a program on this machine, or none is needed: no key is passed."""
    needs_api_key: bool
    cost_model: CostModel
    base_url_tmpl: str
    """May hold `{region}` and `{resource}`. Empty where the harness knows the address itself."""
    env_keys: tuple[str, ...] = ()
    """Names of variables, never values."""


class ModelDesc(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    id: str
    human_label: str
    context_window: int
    supports_tools: bool
    supports_json_mode: bool
    hosts: tuple[ServingHost, ...]


class ModelEndpointManifest(ContractShape, frozen=True, kw_only=True, omit_defaults=False):
    company: Company
    human_label: str
    family: Literal["model-endpoint"] = MODEL_ENDPOINT
    contract_abi: Literal["model-endpoint/v1"] = "model-endpoint/v1"
    speaks: tuple[WireProtocol, ...]
    hosts: tuple[HostDesc, ...]
    models: tuple[ModelDesc, ...] = ()


class EndpointRequest(ContractShape, frozen=True, kw_only=True):
    """What `resolve` needs. Every value comes from configuration; the environment of the process is not read."""

    model: str = always(str)
    host: ServingHost
    auth: AuthMode
    protocol: WireProtocol | Unset = ""
    """For hosts that speak several protocols. Empty: the usual one."""
    region: str = ""
    resource: str = ""
    """The name of an Azure resource."""
    env_provided: Mapping[str, str] = NO_VARIABLES
    """Values of the variables that the host's `env_keys` name. Never serialized."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "env_provided", hidden(self.env_provided))

    def public(self) -> EndpointRequest:
        return msgspec.structs.replace(self, env_provided=NO_VARIABLES)


class EndpointBinding(ContractShape, frozen=True, kw_only=True):
    """A resolved endpoint, as a spec carries it to a harness."""

    company: Company = always(str)
    model: str = always(str)
    base_url: str = always(str)
    protocol: WireProtocol | Unset = always(lambda: "")
    host: ServingHost | Unset = always(lambda: "")
    auth: AuthMode | Unset = always(lambda: "")
    cost_model: CostModel | Unset = always(lambda: "")
    brings_own_auth: bool = always(bool)
    env: Mapping[str, str] = NO_VARIABLES
    """The variables that the harness passes to its agent. Never serialized."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "env", hidden(self.env))

    @property
    def is_zero(self) -> bool:
        """Whether nothing is set. A spec counts its endpoint as set even then: None is the unset one (DM-ENDP-011)."""
        return self == EndpointBinding()

    def public(self) -> EndpointBinding:
        return msgspec.structs.replace(self, env=NO_VARIABLES)
