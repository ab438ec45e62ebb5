"""Every field of a spec is honoured or reported as ignored, per harness; secrets of a spec are in no log."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.live_sessions import WAIT_S

from makai.client.harness import opening
from makai.client.harness.opening import open_harness
from makai.client.harness.plan import SpawnPlan, plan
from makai.core.errors import EndpointError, InvalidRequest
from makai.core.session_events import McpServer
from makai.harness.acp.known_agents import known_agents
from makai.harness.contract.endpoint import EndpointBinding
from makai.harness.contract.events import SystemEvent, encode_event
from makai.harness.contract.spec import CodeIntelEnforcement, MCPServerConfig, PermissionConfig, Spec
from makai.harness.editor_calls import McpServerValues
from makai.harness.manifests import DECLARATIONS, SPEC_FIELDS, HarnessDeclaration, honoured_fields
from makai.harness.registry import harness_id_of
from makai.sessions.log.memory import MemoryLog

WORK = "/work-folder"
GIVEN: Mapping[str, Any] = {
    "prompt": "Another prompt",
    "cwd": "/elsewhere",
    "env": {"KEY": "value"},
    "autonomous": True,
    "sandbox_enabled": True,
    "sandbox_level": "read-only",
    "allowed_tools": ("Read",),
    "disallowed_tools": ("Bash",),
    "mcp_servers": (MCPServerConfig(name="files", command="serve"),),
    "mcp_tool_names": ("mcp__files__read",),
    "max_turns": 3,
    "model": "scripted/echo",
    "endpoint": EndpointBinding(company="x", model="other-model"),
    "effort": "high",
    "response_schema": {"type": "object"},
    "base_instructions": "Be brief.",
    "system_prompt_append": "Be kind.",
    "initial_context": "Remember this.",
    "permission_config": PermissionConfig(default_decision="deny"),
    "code_intel_enforcement": CodeIntelEnforcement(enforce_usage=True),
    "provider_config": {"speed": "fast"},
    "sub_agent_provider": "codex",
    "on_process_spawned": print,
}
ELSEWHERE = {"cwd", "on_process_spawned", "code_intel_enforcement", "sub_agent_provider"}
"""Fields that `MakaiHarness` reads itself, or that only the stub claims to know."""


def _has_driver(name: str) -> bool:
    return name in known_agents() and known_agents()[name].protocol != "acp"


def planned(declared: HarnessDeclaration, **fields: Any) -> SpawnPlan:
    name = "native" if declared.name == "raw" else declared.name
    spec = Spec(**{"prompt": "Do it", "sandbox_enabled": "sandbox_level" in fields, **fields})
    return plan(declared, harness_id_of(name), spec, WORK)


@pytest.mark.req("DM-SPEC-008", "DM-CAP-005", "DM-CAP-007")
@pytest.mark.parametrize("declared", DECLARATIONS.values(), ids=lambda declared: declared.name)
@pytest.mark.parametrize("field", sorted(SPEC_FIELDS - ELSEWHERE))
def test_a_field_changes_the_session_or_is_reported_as_ignored(declared: HarnessDeclaration, field: str) -> None:
    plain = planned(declared, **({"sandbox_level": None} if field == "sandbox_level" else {}))
    plain = msgspec.structs.replace(plain, notices=())
    changed = planned(declared, **{field: GIVEN[field]})

    without_notices = msgspec.structs.replace(changed, notices=())
    ignored = [notice.raw["fields"] for notice in changed.notices if notice.subtype == "setting_ignored"]
    if field in declared.honoured_fields():
        assert ignored == []
        assert field == "sandbox_enabled" or without_notices != plain
    elif field == "initial_context":
        assert (ignored, changed.create.terms.system_append) == ([], "Remember this.")
    else:
        assert ignored == [[field]] or (field == "sandbox_level" and ignored == [["sandbox_enabled", field]])
        assert field == "disallowed_tools" or without_notices == plain  # what is forbidden stays forbidden


@pytest.mark.req("DM-SPEC-008")
@pytest.mark.parametrize("name", [name for name in DECLARATIONS if _has_driver(name)])
def test_a_driver_is_started_with_the_fields_that_its_harness_honours(name: str) -> None:
    settings = {
        "max_turns": "max_turns",
        "effort": "effort",
        "response_schema": "json_schema",
        "system_prompt_append": "system_append",
        "base_instructions": "system_append",
        "provider_config": "options_json",
        "model": "model",
        "sandbox_level": "sandbox",
    }
    needed = {settings[field] for field in honoured_fields(name) if field in settings}
    assert needed - set(known_agents()[name].takes) == set()


@pytest.mark.req("DM-CAP-006")
def test_effort_that_is_not_supported_is_dropped_and_told_to_observers() -> None:
    changed = planned(DECLARATIONS["amp"], effort="xhigh")

    assert changed.run.options.reasoning_effort is None
    assert changed.notices[0] == SystemEvent(
        subtype="capability_mismatch",
        message="Amp does not support reasoning effort: xhigh is not passed on.",
        raw={"capability": "reasoning_effort", "field": "effort", "value": "xhigh"},
    )


@pytest.mark.req("DM-SPEC-010", "DM-SPEC-012")
def test_instructions_and_context_come_in_their_order() -> None:
    fields = {"base_instructions": "Base.", "system_prompt_append": "After.", "initial_context": "Context."}
    native, claude = planned(DECLARATIONS["raw"], **fields), planned(DECLARATIONS["claude-code"], **fields)

    assert (native.create.terms.system_append, native.prompt) == ("Base.\n\nAfter.", "Context.\n\nDo it")
    assert (claude.create.terms.system_append, claude.prompt) == ("After.\n\nContext.", "Do it")


@pytest.mark.req("DM-SPEC-007")
def test_tools_of_mcp_servers_are_allowed_once_and_forbidden_ones_stay_forbidden() -> None:
    fields = {"allowed_tools": ("Read", "mcp__a__b"), "mcp_tool_names": ("mcp__a__b", "mcp__a__c")}
    native = planned(DECLARATIONS["raw"], **fields, disallowed_tools=("Read",))
    codex, amp = (planned(DECLARATIONS[name], **fields, disallowed_tools=("Read",)) for name in ("codex", "amp"))

    assert (native.run.allow, native.run.deny) == (("Read", "mcp__a__b", "mcp__a__c"), ("Read",))
    assert (codex.run.allow, codex.run.deny, codex.policy.deny) == ((), ("Read",), ("Read",))
    assert "disallowed_tools" not in honoured_fields("amp"), "it takes no list, so makai's own must count"
    assert (amp.run.allow, amp.run.deny, amp.policy.deny) == ((), ("Read",), ("Read",))


@pytest.mark.req("DM-SPEC-005")
def test_a_permission_config_counts_only_for_a_harness_that_declares_it() -> None:
    config = PermissionConfig(default_decision="allow", allow_patterns=("Bash",), disallow_patterns=("Read",))
    codex, amp = (planned(DECLARATIONS[name], permission_config=config) for name in ("codex", "amp"))

    assert (codex.policy.allow, codex.policy.deny, codex.policy.fallback) == (("Bash",), ("Read",), "allow")
    assert (amp.policy.allow, amp.policy.deny, amp.policy.fallback) == ((), (), "prompt")


@pytest.mark.req("DM-SPEC-003", "DM-SPEC-013")
def test_levels_count_only_with_the_sandbox_and_unset_fields_are_the_harness_own_defaults() -> None:
    native = DECLARATIONS["raw"]
    off = plan(native, "native", Spec(prompt="x", sandbox_level="full-access"), WORK)
    on = plan(native, "native", Spec(prompt="x", sandbox_level="full-access", sandbox_enabled=True), WORK)

    assert (off.create.terms.sandbox, on.create.terms.sandbox) == ("workspace-write", "full-access")
    assert (off.run.max_turns, off.create.model_ref) == (None, "")
    set_ones = planned(DECLARATIONS["codex"], provider_config={"b": [1, None], "a": {"x": "é"}}, model="m")
    assert (set_ones.create.terms.agent_options_json, set_ones.create.model_ref) == (
        '{"b":[1,null],"a":{"x":"é"}}',
        "m",
    )


@pytest.mark.req("DM-SPEC-004", "DM-ENDP-010")
def test_values_of_mcp_servers_are_kept_apart_from_the_terms() -> None:
    servers = (
        MCPServerConfig(name="a", command="serve", args=("x",), env={"TOKEN": "canary-1"}),
        MCPServerConfig(name="b", type="http", url="https://b.test", headers={"Authorization": "canary-2"}),
    )
    result = planned(DECLARATIONS["raw"], mcp_servers=servers)

    assert result.create.terms.mcp_servers == (
        McpServer(name="a", command="serve", args=("x",), env_names=("TOKEN",)),
        McpServer(name="b", transport="http", url="https://b.test", header_names=("Authorization",)),
    )
    assert result.mcp_values == {
        "a": McpServerValues(env={"TOKEN": "canary-1"}),
        "b": McpServerValues(headers={"Authorization": "canary-2"}),
    }


@pytest.mark.req("DM-SPEC-009")
def test_the_variables_of_an_endpoint_win_over_those_of_the_spec() -> None:
    endpoint = EndpointBinding(
        company="anthropic",
        model="claude-x",
        base_url="https://proxy.test",
        protocol="anthropic-messages",
        host="direct",
        env={"ANTHROPIC_API_KEY": "of the endpoint", "EMPTY": ""},
    )
    env = {"ANTHROPIC_API_KEY": "of the spec", "OTHER": "1"}
    claude = planned(DECLARATIONS["claude-code"], endpoint=endpoint, env=env, model="ignored")
    native = planned(DECLARATIONS["raw"], endpoint=endpoint, env=env)

    variables = {"ANTHROPIC_API_KEY": "of the endpoint", "OTHER": "1", "ANTHROPIC_BASE_URL": "https://proxy.test"}
    assert (claude.environ, claude.create.model_ref) == (variables, "claude-x")
    assert (native.environ, native.create.model_ref) == (variables, "anthropic/claude-x")
    with pytest.raises(EndpointError, match="does not speak anthropic-messages"):
        planned(DECLARATIONS["codex"], endpoint=endpoint)


@pytest.mark.req("DM-ENDP-009")
def test_codex_gets_the_address_of_an_endpoint_in_its_configuration_and_the_name_of_its_key() -> None:
    endpoint = EndpointBinding(
        company="openai",
        model="m",
        base_url="https://proxy.test/v1",
        protocol="openai-responses",
        host="azure",
        env={"AZURE_OPENAI_ENDPOINT": "x", "AZURE_OPENAI_API_KEY": "secret"},
    )
    codex = planned(DECLARATIONS["codex"], endpoint=endpoint)

    assert msgspec.json.decode(codex.create.terms.agent_options_json) == {
        "model_provider": "makai-endpoint",
        "model_providers": {
            "makai-endpoint": {
                "name": "openai",
                "base_url": "https://proxy.test/v1",
                "wire_api": "responses",
                "env_key": "AZURE_OPENAI_API_KEY",
            }
        },
    }
    assert codex.environ == {"AZURE_OPENAI_ENDPOINT": "x", "AZURE_OPENAI_API_KEY": "secret"}


@pytest.mark.req("DM-ENDP-009")
def test_opencode_gets_the_address_of_an_endpoint_and_its_models_by_their_provider() -> None:
    endpoint = EndpointBinding(
        company="local", model="m", base_url="http://127.0.0.1:1/v1", protocol="openai-chat", host="local"
    )
    opencode = planned(DECLARATIONS["opencode"], endpoint=endpoint)

    assert opencode.create.model_ref == "local/m"
    assert {name: msgspec.json.decode(value) for name, value in opencode.environ.items()} == {
        "OPENCODE_CONFIG_CONTENT": {
            "provider": {
                "local": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": "http://127.0.0.1:1/v1"},
                    "models": {"m": {}},
                }
            }
        }
    }


def test_the_own_login_of_an_agent_is_not_replaced_by_a_key_of_the_environment() -> None:
    endpoint = EndpointBinding(company="anthropic", host="oauth-cli", brings_own_auth=True)

    assert planned(DECLARATIONS["claude-code"], endpoint=endpoint).environ["ANTHROPIC_API_KEY"] == ""


def test_an_address_that_cannot_be_passed_on_is_refused() -> None:
    endpoint = EndpointBinding(company="stub", model="m", base_url="https://proxy.test", host="local")
    with pytest.raises(EndpointError, match="makai cannot be sent to https://proxy"):
        planned(DECLARATIONS["raw"], endpoint=endpoint)


@pytest.mark.parametrize(("autonomous", "mode"), [(True, "never_ask"), (False, "ask")])
def test_an_agent_that_does_not_ask_runs_for_a_spec_that_allows_everything(autonomous: bool, mode: str) -> None:
    assert planned(DECLARATIONS["antigravity"], autonomous=autonomous).create.mode == mode
    assert planned(DECLARATIONS["codex"], autonomous=autonomous).create.mode == "ask"


@pytest.mark.req("DM-SPEC-004")
@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ([{"name": "", "command": "c"}], "need names of their own"),
        ([{"name": "a", "command": "c"}, {"name": "a", "command": "d"}], "need names of their own"),
        ([{"name": "a", "command": ""}], "'a' has no command"),
        ([{"name": "a", "type": "http", "url": ""}], "'a' has no url"),
    ],
)
def test_an_mcp_server_that_cannot_be_started_is_refused(servers: list[dict[str, str]], problem: str) -> None:
    configs = msgspec.convert(servers, tuple[MCPServerConfig, ...])
    with pytest.raises(InvalidRequest, match=problem):
        planned(DECLARATIONS["claude-code"], mcp_servers=configs)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"max_turns": 0}, "max_turns is 0."),
        ({"max_turns": -1}, "max_turns is -1."),
        ({"env": {"A=B": "c"}}, "'A=B' cannot be the name of an environment variable."),
        ({"env": {"A\0B": "c"}}, "'A\\x00B' cannot be the name of an environment variable."),
        ({"env": {"": "c"}}, "'' cannot be the name of an environment variable."),
        ({"env": {"A": "s3cret\0"}}, "The value of the environment variable A holds a NUL character."),
        ({"endpoint": EndpointBinding(env={"A=B": "c"})}, "'A=B' cannot be the name of an environment variable."),
        (
            {"mcp_servers": (MCPServerConfig(name="a", command="c", env={"A=B": "c"}),)},
            "'A=B' cannot be the name of an environment variable.",
        ),
    ],
)
def test_what_no_process_can_be_started_with_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        planned(DECLARATIONS["claude-code"], **fields)

    assert refused.value.message == problem


@pytest.mark.req("DM-ENDP-010", "DM-SPEC-011", "DM-SPEC-002")
async def test_variables_of_a_spec_reach_the_process_and_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog()
    monkeypatch.setattr(opening, "MemoryLog", lambda: log)
    agent = tmp_path / "agent.py"
    support = Path(__file__).parents[2] / "support" / "acp_agent.py"
    agent.write_text(
        "import os, runpy\nseen = [os.environ.get(name) for name in ('CANARY', 'LANG', 'TZ')]\n"
        f"open({str(tmp_path / 'env')!r}, 'w').write(str(seen))\n"
        f"runpy.run_path({str(support)!r}, run_name='__main__')\n"
    )
    environ = {
        **{"PATH": os.environ["PATH"], "MAKAI_HOME": str(tmp_path / "home")},
        **{"AGENT_ENV_BLOCKLIST": "CANARY LANG", "CANARY": "outer", "LANG": "C", "TZ": "UTC"},
    }
    seen: list[bytes] = []
    async with (
        asyncio.timeout(WAIT_S),
        open_harness(f"acp:{sys.executable} {agent}", environ=environ) as harness,
    ):
        spec = Spec(prompt="say Hi", cwd=str(tmp_path), env={"CANARY": "c4n4ry"}, effort="high")
        handle = await harness.spawn(spec)
        stored = await log.read_raw(handle.makai_session_id, 0, 1000)
        seen += [encode_event(event) async for event in handle]

    assert (tmp_path / "env").read_text() == "['c4n4ry', None, 'UTC']"
    assert stored
    assert not [line for line in [*(record.line for record in stored), *seen] if b"c4n4ry" in line]
    assert "c4n4ry" not in repr(spec)
