"""A spec as JSON: what is always there, what is left out, and what never leaves the process."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.errors import ParseError
from makai.harness import (
    CodeIntelEnforcement,
    EffortLevel,
    EndpointBinding,
    MCPServerConfig,
    PermissionConfig,
    SandboxLevel,
    Spec,
    decode,
    encode,
)

ALWAYS = {"prompt": "", "cwd": "", "env": {}, "autonomous": False, "sandboxEnabled": False}
BINDING = EndpointBinding(company="openai", model="m", protocol="openai-responses", host="direct", auth="byok")
OPTIONAL: dict[str, tuple[Any, str, Any]] = {
    "sandbox_level": ("read-only", "sandboxLevel", "read-only"),
    "allowed_tools": (("Bash(git:*)",), "allowedTools", ["Bash(git:*)"]),
    "disallowed_tools": (("Bash(rm:*)",), "disallowedTools", ["Bash(rm:*)"]),
    "mcp_servers": ((MCPServerConfig(name="a", command="b"),), "mcpStdioServers", [{"name": "a", "command": "b"}]),
    "mcp_tool_names": (("mcp__a__b",), "mcpToolNames", ["mcp__a__b"]),
    "max_turns": (0, "maxTurns", 0),
    "model": ("claude-sonnet-4-5", "model", "claude-sonnet-4-5"),
    "endpoint": (
        BINDING,
        "endpoint",
        {
            "company": "openai",
            "model": "m",
            "baseUrl": "",
            "protocol": "openai-responses",
            "host": "direct",
            "auth": "byok",
            "costModel": "",
            "bringsOwnAuth": False,
        },
    ),
    "effort": ("xhigh", "effort", "xhigh"),
    "response_schema": ({"enum": [None, 1]}, "responseSchema", {"enum": [None, 1]}),
    "base_instructions": ("b", "baseInstructions", "b"),
    "system_prompt_append": ("s", "systemPromptAppend", "s"),
    "initial_context": ("i", "initialContext", "i"),
    "permission_config": (PermissionConfig(), "permissionConfig", {}),
    "code_intel_enforcement": (
        CodeIntelEnforcement(),
        "codeIntelligenceEnforcement",
        {"enforceUsage": False, "fallbackAfterAttempt": False},
    ),
    "provider_config": ({"serviceTier": "fast"}, "providerConfig", {"serviceTier": "fast"}),
    "sub_agent_provider": ("codex", "subAgentProvider", "codex"),
}
TEXTS = st.lists(st.text(), max_size=3).map(tuple)
VARIABLES = st.dictionaries(st.text(), st.text(), max_size=3)
SERVERS = st.builds(
    MCPServerConfig,
    name=st.text(),
    type=st.sampled_from(["", "stdio", "http"]),
    command=st.text(),
    args=TEXTS,
    env=VARIABLES,
    url=st.text(),
    headers=VARIABLES,
)
SPECS = st.builds(
    Spec,
    prompt=st.text(),
    cwd=st.text(),
    env=VARIABLES,
    autonomous=st.booleans(),
    sandbox_enabled=st.booleans(),
    sandbox_level=st.none() | st.sampled_from(get_args(SandboxLevel)),
    allowed_tools=TEXTS,
    disallowed_tools=TEXTS,
    mcp_servers=st.lists(SERVERS, max_size=2).map(tuple),
    mcp_tool_names=TEXTS,
    max_turns=st.none() | st.integers(0, 10),
    model=st.text(),
    endpoint=st.none() | st.builds(EndpointBinding, company=st.text(), model=st.text(), brings_own_auth=st.booleans()),
    effort=st.none() | st.sampled_from(get_args(EffortLevel)),
    response_schema=st.none() | st.booleans() | st.dictionaries(st.text(), st.none() | st.integers(), max_size=2),
    base_instructions=st.text(),
    system_prompt_append=st.text(),
    initial_context=st.text(),
    permission_config=st.none()
    | st.builds(
        PermissionConfig,
        allow_patterns=TEXTS,
        disallow_patterns=TEXTS,
        default_decision=st.sampled_from(["", "allow", "deny", "prompt"]),
    ),
    code_intel_enforcement=st.none()
    | st.builds(CodeIntelEnforcement, enforce_usage=st.booleans(), fallback_after_attempt=st.booleans()),
    provider_config=st.dictionaries(st.text(), st.none() | st.integers() | st.text(), max_size=2),
    sub_agent_provider=st.text(),
)


@pytest.mark.req("DM-SPEC-001", "DM-SPEC-009")
def test_five_fields_are_always_written_and_no_other_one_of_an_empty_spec() -> None:
    assert json.loads(encode(Spec(prompt=""))) == ALWAYS


@pytest.mark.req("DM-SPEC-001")
@pytest.mark.parametrize("field", OPTIONAL)
def test_an_optional_field_is_written_under_its_name_when_it_is_set(field: str) -> None:
    value, name, written = OPTIONAL[field]
    spec = Spec(prompt="", **{field: value})

    assert json.loads(encode(spec)) == {**ALWAYS, name: written}
    assert decode(encode(spec), Spec) == spec


@pytest.mark.req("DM-SPEC-001")
def test_the_table_above_has_every_field() -> None:
    always = {"prompt", "cwd", "env", "autonomous", "sandbox_enabled"}

    assert always | set(OPTIONAL) | {"on_process_spawned"} == set(Spec.__struct_fields__)


@pytest.mark.req("DM-SPEC-001")
@given(spec=SPECS)
def test_a_spec_survives_the_way_through_json(spec: Spec) -> None:
    assert decode(encode(spec), Spec) == spec


@pytest.mark.req("DM-SPEC-002")
def test_the_callback_is_never_written_and_never_read() -> None:
    spec = Spec(prompt="p", on_process_spawned=list[int]().append)

    assert json.loads(encode(spec)) == {**ALWAYS, "prompt": "p"}
    assert decode('{"prompt":"p","onProcessSpawned":7}', Spec) == Spec(prompt="p")
    with pytest.raises(TypeError):
        msgspec.json.encode(spec)


@pytest.mark.req("DM-SPEC-003")
def test_sandbox_and_effort_levels_are_exactly_those_of_the_contract() -> None:
    assert get_args(SandboxLevel) == ("read-only", "workspace-write", "full-access")
    assert get_args(EffortLevel) == ("low", "medium", "high", "xhigh")
    for field in ("sandboxLevel", "effort"):
        with pytest.raises(ParseError, match=field):
            decode(json.dumps({"prompt": "", field: "max"}), Spec)


@pytest.mark.req("DM-SPEC-003")
def test_a_sandbox_level_counts_only_with_an_enabled_sandbox() -> None:
    level: SandboxLevel = "read-only"

    assert Spec(prompt="", sandbox_level=level).effective_sandbox_level is None
    assert Spec(prompt="", sandbox_level=level, sandbox_enabled=True).effective_sandbox_level == level
    assert Spec(prompt="", sandbox_enabled=True).effective_sandbox_level is None


@pytest.mark.req("DM-SPEC-004")
def test_an_mcp_server_without_a_type_is_a_command() -> None:
    command = MCPServerConfig(name="a", command="c", args=("x",), env={"K": "v"})
    address = MCPServerConfig(name="b", type="http", url="https://m.example", headers={"Authorization": "Bearer t"})

    assert (command.transport, address.transport, MCPServerConfig(name="c", type="stdio").transport) == (
        "stdio",
        "http",
        "stdio",
    )
    assert json.loads(encode(command)) == {"name": "a", "command": "c", "args": ["x"], "env": {"K": "v"}}
    assert json.loads(encode(address)) == {
        "name": "b",
        "type": "http",
        "url": "https://m.example",
        "headers": {"Authorization": "Bearer t"},
    }
    with pytest.raises(ParseError):
        decode('{"name":"a","type":"sse"}', MCPServerConfig)


@pytest.mark.req("DM-SPEC-005")
def test_an_empty_default_decision_means_prompt() -> None:
    config = PermissionConfig(allow_patterns=("Bash(ls)",), disallow_patterns=("Bash(rm:*)",), default_decision="deny")

    assert json.loads(encode(config)) == {
        "allowPatterns": ["Bash(ls)"],
        "disallowPatterns": ["Bash(rm:*)"],
        "defaultDecision": "deny",
    }
    assert [PermissionConfig().fallback, config.fallback] == ["prompt", "deny"]
    with pytest.raises(ParseError):
        decode('{"defaultDecision":"maybe"}', PermissionConfig)


@pytest.mark.req("DM-SPEC-006")
def test_both_booleans_of_code_intelligence_are_always_written() -> None:
    assert json.loads(encode(CodeIntelEnforcement(enforce_usage=True))) == {
        "enforceUsage": True,
        "fallbackAfterAttempt": False,
    }


@pytest.mark.req("DM-SPEC-007")
def test_names_of_mcp_tools_are_allowed_once_and_in_order() -> None:
    spec = Spec(prompt="", allowed_tools=("Read", "mcp__a__b", "Read"), mcp_tool_names=("mcp__a__b", "mcp__a__c"))

    assert spec.effective_allowed_tools == ("Read", "mcp__a__b", "mcp__a__c")


@pytest.mark.req("DM-SPEC-009")
def test_a_spec_from_before_endpoints_comes_back_byte_for_byte() -> None:
    old = b'{"prompt":"p","cwd":"/w","env":{"A":"1"},"autonomous":true,"sandboxEnabled":false,"model":"m"}'

    assert decode(old, Spec).endpoint is None
    assert encode(decode(old, Spec)) == old


@pytest.mark.req("DM-SPEC-009", "DM-ENDP-011")
def test_an_empty_binding_is_written_because_only_none_is_unset() -> None:
    spec = Spec(prompt="", endpoint=EndpointBinding())

    assert json.loads(encode(spec))["endpoint"]["company"] == ""
    assert decode(encode(spec), Spec).endpoint == EndpointBinding()


def test_the_model_of_the_endpoint_wins() -> None:
    assert Spec(prompt="", model="a", endpoint=BINDING).effective_model == "m"
    assert Spec(prompt="", model="a", endpoint=EndpointBinding()).effective_model == "a"
    assert Spec(prompt="", model="a").effective_model == "a"
    assert Spec(prompt="").effective_model == ""


def test_null_means_unset_also_for_objects_and_lists() -> None:
    text = '{"prompt":"p","cwd":null,"env":null,"allowedTools":null,"endpoint":null,"maxTurns":null}'

    assert decode(text, Spec) == Spec(prompt="p")


@pytest.mark.parametrize("text", ["{}", '{"prompt":3}', '{"prompt":"a","env":{"A":1}}', "[]", "x"])
def test_what_is_no_spec_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        decode(text, Spec)
