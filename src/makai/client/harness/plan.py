"""What a spec means for a session of makai: its terms, its input, its variables and its permissions. No I/O.

Every field of a spec is honoured or reported as ignored, as `harness.manifests` declares it for the harness. Values of
`Spec.env`, of an endpoint and of MCP servers are in none of the values that are logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from makai.catalog.vendor_table import builtin_vendors
from makai.client.harness.policy import PermissionPolicy
from makai.core import session_events as ev
from makai.core.errors import EndpointError, InvalidRequest, SessionNotFound
from makai.core.request import StreamOptions
from makai.harness.acp.known_agents import known_agents
from makai.harness.contract.endpoint import EndpointBinding
from makai.harness.contract.events import SystemEvent
from makai.harness.contract.spec import MCPServerConfig, Spec
from makai.harness.editor_calls import McpServerValues
from makai.harness.manifests import SPEC_FIELDS, HarnessDeclaration
from makai.harness.registry import NATIVE
from makai.sessions.requests import CreateSession

SETTING_IGNORED: Final = "setting_ignored"
CAPABILITY_MISMATCH: Final = "capability_mismatch"
MAX_SESSION_ID: Final = 1024
_UNSET: Final = Spec(prompt="")
_BASE_URLS: Final = {"claude-code": "ANTHROPIC_BASE_URL", "gemini": "GOOGLE_GEMINI_BASE_URL"}
"""The variable in which a harness takes the address of its model API."""
_CODEX_PROVIDER: Final = "makai-endpoint"
_OPENCODE_PACKAGES: Final = {
    "anthropic-messages": "@ai-sdk/anthropic",
    "openai-chat": "@ai-sdk/openai-compatible",
    "openai-responses": "@ai-sdk/openai",
}
"""The library by which opencode speaks a protocol; it brings them along."""
_HOST_VARIABLES: Final = {
    ("claude-code", "bedrock"): {"CLAUDE_CODE_USE_BEDROCK": "1"},
    ("claude-code", "vertex"): {"CLAUDE_CODE_USE_VERTEX": "1"},
}
_VENDORS: Final = {"local": "ollama"}
"""Vendors of the catalog that have another name than their company."""


class SpawnPlan(msgspec.Struct, frozen=True, kw_only=True):
    create: CreateSession
    run: ev.RunTerms
    prompt: str
    environ: dict[str, str]
    mcp_values: dict[str, McpServerValues]
    policy: PermissionPolicy
    notices: tuple[SystemEvent, ...]
    """What the harness ignores of the spec."""


def plan(declared: HarnessDeclaration, harness_id: str, spec: Spec, cwd: str, *, resumed: str = "") -> SpawnPlan:
    """`resumed` is the id of the agent's earlier session. Raises `InvalidRequest` for what cannot be meant."""
    is_native = harness_id == NATIVE
    wanted, notices = _honoured(declared, spec)
    environ = {**wanted.env, **_endpoint_variables(declared, wanted.endpoint, is_native)}
    _check_variables(environ)
    if wanted.max_turns is not None and wanted.max_turns < 1:
        raise InvalidRequest(f"max_turns is {wanted.max_turns}.", hint="Allow one turn at least, or leave it out.")
    options = {**_endpoint_options(declared, wanted.endpoint), **wanted.provider_config}
    policy = PermissionPolicy.of(msgspec.structs.replace(wanted, disallowed_tools=spec.disallowed_tools), cwd)
    servers = wanted.mcp_servers
    _check_servers(servers)
    schema = wanted.response_schema
    terms = ev.SessionTerms(
        system_append=_instructions(wanted),
        agent_options_json="" if not options else msgspec.json.encode(options).decode(),
        agent_session_id="" if is_native else resumed,
        builtin_tools=is_native,
        mcp_servers=tuple(map(_named_server, servers)),
        sandbox=wanted.effective_sandbox_level or "workspace-write",
    )
    run = ev.RunTerms(
        options=StreamOptions(
            reasoning_effort=wanted.effort,
            json_schema=None if schema is None else msgspec.json.encode(schema).decode(),
        ),
        max_turns=wanted.max_turns,
        allow=policy.allow,
        deny=policy.deny,
    )
    prompt = wanted.prompt
    if wanted.initial_context:
        prompt = f"{wanted.initial_context}\n\n{prompt}"
    return SpawnPlan(
        create=CreateSession(
            model_ref=_model_ref(declared, wanted, is_native),
            mode="never_ask" if policy.fallback == "allow" and (is_native or not _asks(harness_id)) else "ask",
            harness=harness_id,
            cwd=cwd,
            terms=terms,
        ),
        run=run,
        prompt=prompt,
        environ=environ,
        mcp_values={
            server.name: McpServerValues(env=dict(server.env), headers=dict(server.headers)) for server in servers
        },
        policy=policy,
        notices=notices,
    )


def _honoured(declared: HarnessDeclaration, spec: Spec) -> tuple[Spec, tuple[SystemEvent, ...]]:
    """The spec without what the harness does not honour, and the notices that say so (DM-SPEC-008, DM-CAP-006).
    Context that cannot be sent with the first turn becomes a part of the instructions (DM-SPEC-010)."""
    honoured = declared.honoured_fields()
    given = [name for name in SPEC_FIELDS if getattr(spec, name) != getattr(_UNSET, name)]
    ignored = sorted(set(given) - honoured - {"initial_context"})
    kept = msgspec.structs.replace(spec, **{name: getattr(_UNSET, name) for name in ignored})
    label, notices = declared.capabilities.human_label, []
    if "effort" in ignored:
        raw = {"capability": "reasoning_effort", "field": "effort", "value": spec.effort}
        message = f"{label} does not support reasoning effort: {spec.effort} is not passed on."
        notices.append(SystemEvent(subtype=CAPABILITY_MISMATCH, message=message, raw=raw))
    if ignored:
        message = f"{label} ignores these settings: {', '.join(ignored)}."
        notices.append(SystemEvent(subtype=SETTING_IGNORED, message=message, raw={"fields": ignored}))
    if spec.initial_context and "initial_context" not in honoured:
        append = "\n\n".join(part for part in (kept.system_prompt_append, spec.initial_context) if part)
        kept = msgspec.structs.replace(kept, initial_context="", system_prompt_append=append)
    return kept, tuple(notices)


def _instructions(spec: Spec) -> str:
    """Base instructions, then what is appended to the system prompt (DM-SPEC-012)."""
    return "\n\n".join(part for part in (spec.base_instructions, spec.system_prompt_append) if part)


def _asks(harness_id: str) -> bool:
    """Whether the agent asks before it acts. One that does not runs for a spec that allows everything only."""
    spec = known_agents().get(harness_id)
    return spec is None or spec.asks


def _model_ref(declared: HarnessDeclaration, spec: Spec, is_native: bool) -> str:
    """The native loop and opencode know models by their vendor and name."""
    model, endpoint = spec.effective_model, spec.endpoint
    if endpoint is None or not endpoint.company or not model or "/" in model:
        return model
    if is_native:
        return f"{_VENDORS.get(endpoint.company, endpoint.company)}/{model}"
    return f"{endpoint.company}/{model}" if declared.name == "opencode" else model


def _endpoint_variables(
    declared: HarnessDeclaration, endpoint: EndpointBinding | None, is_native: bool
) -> dict[str, str]:
    """What the host of an endpoint needs wins over the endpoint's own variables. `EndpointError` for an endpoint that
    the harness cannot use: it would ask another one without a word."""
    if endpoint is None:
        return {}
    name = declared.capabilities.human_label or declared.name
    if endpoint.protocol and endpoint.protocol not in declared.drives:
        raise EndpointError(f"{name} does not speak {endpoint.protocol}.", kind="unknown_host")
    if endpoint.host and endpoint.host not in declared.hosts:
        raise EndpointError(f"{name} cannot use models on {endpoint.host}.", kind="unknown_host")
    variables = {key: value for key, value in endpoint.env.items() if value}
    variables |= _HOST_VARIABLES.get((declared.name, endpoint.host), {})
    if endpoint.brings_own_auth and not is_native:
        # The agent's own login is meant: a key in the environment would be used, and paid, instead of it.
        company = builtin_vendors().find(endpoint.company)
        variables = dict.fromkeys(company.key_variables if company is not None else (), "") | variables
    if not endpoint.base_url or endpoint.host in ("bedrock", "vertex") or declared.name == "codex":
        return variables
    if declared.name == "opencode":
        return variables | {"OPENCODE_CONFIG_CONTENT": _opencode_configuration(endpoint)}
    variable = _BASE_URLS.get(declared.name, "")
    if is_native:
        vendor = builtin_vendors().find(_VENDORS.get(endpoint.company, endpoint.company))
        variable = vendor.base_url_variable if vendor is not None else ""
    if not variable:
        raise EndpointError(f"{name} cannot be sent to {endpoint.base_url}.", kind="unknown_host")
    return variables | {variable: endpoint.base_url}


def _endpoint_options(declared: HarnessDeclaration, endpoint: EndpointBinding | None) -> dict[str, Any]:
    """The endpoint as Codex's configuration has it: it takes an address from nowhere else. No secret is in it."""
    if declared.name != "codex" or endpoint is None or not endpoint.base_url:
        return {}
    provider = {"name": endpoint.company or _CODEX_PROVIDER, "base_url": endpoint.base_url, "wire_api": "responses"}
    if key := _key_variable(endpoint):
        provider["env_key"] = key
    return {"model_provider": _CODEX_PROVIDER, "model_providers": {_CODEX_PROVIDER: provider}}


def _opencode_configuration(endpoint: EndpointBinding) -> str:
    options = {"baseURL": endpoint.base_url}
    if key := _key_variable(endpoint):
        options["apiKey"] = f"{{env:{key}}}"
    provider: dict[str, Any] = {"options": options, "models": {endpoint.model: {}} if endpoint.model else {}}
    if package := _OPENCODE_PACKAGES.get(endpoint.protocol):
        provider["npm"] = package
    return msgspec.json.encode({"provider": {endpoint.company: provider}}).decode()


def _key_variable(endpoint: EndpointBinding) -> str:
    """The variable of the endpoint that holds its key."""
    return next((name for name, value in endpoint.env.items() if value and name.endswith("_API_KEY")), "")


def _check_servers(servers: tuple[MCPServerConfig, ...]) -> None:
    """DM-SPEC-004: a server without a name, or without what its transport needs, would be passed on and fail there."""
    names: set[str] = set()
    for server in servers:
        if not server.name or server.name in names:
            raise InvalidRequest(f"MCP servers need names of their own: {server.name!r} is empty or given twice.")
        names.add(server.name)
        if not (server.url if server.transport == "http" else server.command):
            missing = "url" if server.transport == "http" else "command"
            raise InvalidRequest(f"The MCP server {server.name!r} has no {missing}.")
        _check_variables(server.env)


def _check_variables(variables: Mapping[str, str]) -> None:
    """`InvalidRequest` for variables that no process can have: `A=B` would become A, with a value that begins with B.
    The message has no value, which may be a secret."""
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name:
            raise InvalidRequest(f"{name!r} cannot be the name of an environment variable.")
        if "\0" in value:
            raise InvalidRequest(f"The value of the environment variable {name} holds a NUL character.")


def check_session_id(session_id: str) -> None:
    """`SessionNotFound` for an id that no agent gives and that could mean a file or an option to the agent."""
    is_path = bool({"", ".", ".."} & set(session_id.replace("\\", "/").split("/")))
    if is_path or session_id.startswith("-") or not session_id.isprintable() or len(session_id) > MAX_SESSION_ID:
        raise SessionNotFound(f"{session_id[:100]!r} cannot be the id of a session.")


def _named_server(server: MCPServerConfig) -> ev.McpServer:
    """Terms are logged, so they name variables and headers without their values."""
    fields: dict[str, Any] = {"name": server.name, "transport": server.transport}
    if server.transport == "http":
        return ev.McpServer(**fields, url=server.url, header_names=tuple(server.headers))
    return ev.McpServer(**fields, command=server.command, args=server.args, env_names=tuple(server.env))
