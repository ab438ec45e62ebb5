"""What harnesses declare about themselves, read without one of them."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import msgspec
import pytest

from makai.core.errors import NoProvider
from makai.harness import (
    Capabilities,
    EndpointBinding,
    HarnessCaps,
    HarnessName,
    PermissionConfig,
    Spec,
    decode,
    encode,
    harness_declaration,
    harness_manifests,
    honoured_fields,
    ignored_fields,
)
from makai.harness.acp.known_agents import LaunchSetting, known_agents
from makai.harness.manifests import DECLARATIONS, HarnessDeclaration, provider_name_of
from makai.harness.registry import DRIVERS, NATIVE, harness_id_of

NAMES = sorted(DECLARATIONS)
EACH = pytest.mark.parametrize("name", NAMES)
SHARED = set(HarnessCaps.__struct_fields__) & set(Capabilities.__struct_fields__)
GATES = {
    "effort": "supports_reasoning_effort",
    "base_instructions": "needs_base_instructions",
    "permission_config": "needs_permission_config",
    "code_intel_enforcement": "supports_code_intelligence_enforcement",
    "initial_context": "supports_turn_input_context",
    "allowed_tools": "accepts_allowed_tools_list",
    "mcp_servers": "accepts_mcp_server_spec",
}

STARTED_WITH: dict[LaunchSetting, set[str]] = {
    "model": {"model"},
    "effort": {"effort"},
    "sandbox": {"sandbox_enabled", "sandbox_level"},
    "system_append": {"system_prompt_append"},
    "allow": {"allowed_tools"},
    "deny": {"disallowed_tools"},
    "max_turns": {"max_turns"},
    "json_schema": {"response_schema"},
    "options_json": {"provider_config"},
}


@pytest.mark.req("DM-ENDP-002")
def test_every_harness_of_the_contract_and_one_of_makai_has_a_manifest() -> None:
    assert [manifest.name for manifest in harness_manifests()] == NAMES
    assert set(NAMES) == {*get_args(HarnessName), "gemini"}


@pytest.mark.req("DM-ENDP-004")
@EACH
def test_a_manifest_has_its_family_and_version_and_survives_json(name: str) -> None:
    manifest = harness_declaration(name).manifest()

    assert (manifest.name, manifest.family, manifest.contract_abi) == (name, "agent-runtime", "harness/v2")
    assert manifest.human_label == harness_declaration(name).capabilities.human_label != ""
    assert decode(encode(manifest), type(manifest)) == manifest


@pytest.mark.req("DM-ENDP-004")
def test_reading_every_manifest_loads_no_driver_and_starts_nothing() -> None:
    program = (
        "import sys\n"
        "sys.addaudithook(lambda event, _: event in ('subprocess.Popen', 'os.posix_spawn', 'socket.connect', 'os.exec')"
        " and sys.exit(event))\n"
        "import os, shutil\n"
        "from makai.harness import harness_manifests\n"
        "os.stat = os.access = lambda *_, **__: sys.exit('a program is looked for')\n"
        "assert len(harness_manifests()) == 8\n"
        "print(*(name for name in sys.modules if name.startswith('makai.harness.')))\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name for name in finished.stdout.split() if not name.startswith("makai.harness.contract")}

    assert loaded == {"makai.harness.manifests"}


@pytest.mark.req("DM-ENDP-006")
@EACH
def test_the_flags_of_a_manifest_are_those_of_the_capabilities(name: str) -> None:
    declaration = harness_declaration(name)
    caps = declaration.manifest().caps

    assert len(SHARED) == 8
    assert {flag: getattr(caps, flag) for flag in SHARED} == {
        flag: getattr(declaration.capabilities, flag) for flag in SHARED
    }


@pytest.mark.req("DM-PROV-014", "DM-RES-001")
def test_results_name_their_provider_as_the_contract_does() -> None:
    assert {name: provider_name_of(name) for name in (*DECLARATIONS, "native", "claude", "acp:my-agent --x")} == {
        "amp": "amp",
        "antigravity": "agy-cli",
        "claude-code": "claude",
        "codex": "codex",
        "gemini": "gemini",
        "opencode": "opencode",
        "raw": "raw",
        "stub": "stub",
        "native": "raw",
        "claude": "claude",
        "acp:my-agent --x": "acp:my-agent --x",
    }


@EACH
def test_a_harness_drives_something_somewhere(name: str) -> None:
    caps = harness_declaration(name).manifest().caps

    assert caps.drives
    assert caps.drives_hosts
    assert caps.supports_one_shot == (name != "antigravity")


@pytest.mark.req("DM-SPEC-008", "DM-ONE-004", "DM-CAP-007")
@EACH
def test_a_field_with_a_capability_is_honoured_exactly_with_it(name: str) -> None:
    declaration = harness_declaration(name)
    honoured = honoured_fields(name)

    assert {field: field in honoured for field in GATES} == {
        field: getattr(declaration.capabilities, flag) for field, flag in GATES.items()
    }
    assert ("response_schema" in honoured) == declaration.native_json_mode
    assert ("mcp_tool_names" in honoured) == declaration.capabilities.accepts_allowed_tools_list
    assert {"prompt", "cwd", "autonomous"} <= honoured <= set(Spec.__struct_fields__)


@EACH
def test_a_declaration_does_not_honour_by_hand_what_a_capability_decides(name: str) -> None:
    if name != "stub":
        assert harness_declaration(name).honours & {*GATES, "response_schema", "mcp_tool_names"} == set()


@EACH
def test_context_reaches_every_agent_in_its_first_input_or_in_its_instructions(name: str) -> None:
    declaration = harness_declaration(name)

    assert (
        declaration.capabilities.supports_turn_input_context or "system_prompt_append" in declaration.honoured_fields()
    )


def test_an_agent_with_a_driver_honours_what_its_process_is_started_with_and_no_more() -> None:
    driven = {name: spec for name, spec in known_agents().items() if spec.protocol != "acp"}
    for name, spec in driven.items():
        honoured = honoured_fields(name)
        taken = {field for setting in spec.takes for field in STARTED_WITH[setting]}
        elsewhere = {"allowed_tools", "disallowed_tools"}  # makai's own rules answer the agent's questions

        assert taken <= honoured, name
        assert set().union(*STARTED_WITH.values()) & honoured - elsewhere <= taken, name
    assert driven


@pytest.mark.parametrize("name", sorted(known_agents().keys() & set(NAMES)))
def test_forbidden_tools_are_honoured_by_the_agents_whose_questions_makai_answers(name: str) -> None:
    assert ("disallowed_tools" in honoured_fields(name)) == known_agents()[name].obeys_rules


@pytest.mark.req("DM-ENDP-011")
def test_a_zero_binding_is_reported_as_set_by_a_harness_that_ignores_endpoints() -> None:
    assert ignored_fields("amp", Spec(prompt="p", endpoint=EndpointBinding())) == ("endpoint",)


def test_fields_that_are_set_and_ignored_are_reported_in_order() -> None:
    spec = Spec(
        prompt="p",
        sandbox_enabled=True,
        allowed_tools=("Read",),
        max_turns=3,
        model="m",
        endpoint=EndpointBinding(),
        effort="low",
        response_schema={"type": "object"},
        permission_config=PermissionConfig(),
    )

    assert ignored_fields("native", spec) == ()
    assert ignored_fields("claude-code", spec) == ("sandbox_enabled",)
    assert ignored_fields("codex", spec) == ("allowed_tools", "max_turns")
    assert ignored_fields("opencode", spec) == (
        *("sandbox_enabled", "allowed_tools", "max_turns", "effort", "response_schema"),
    )
    assert [ignored_fields(name, Spec(prompt="p", cwd="/w", autonomous=True)) for name in NAMES] == [()] * len(NAMES)


def test_a_harness_is_found_by_every_name_of_its() -> None:
    assert harness_declaration("native") is harness_declaration("raw")
    assert harness_declaration("claude") is harness_declaration("claude-code")
    assert harness_declaration("agy-cli") is harness_declaration("antigravity")
    ids = {harness_id_of(name) for name in ("opencode", "gemini")} | {NATIVE, *DRIVERS, *DRIVERS.values()}
    assert {type(harness_declaration(name)) for name in ids} == {HarnessDeclaration}


def test_no_name_means_two_harnesses() -> None:
    names = [name for row in DECLARATIONS.values() for name in (row.name, *row.aliases)]

    assert len(set(names)) == len(names)


def test_an_unknown_harness_is_refused_with_the_names_of_the_others() -> None:
    for ask in (harness_declaration, honoured_fields):
        with pytest.raises(NoProvider, match="'jules'") as refusal:
            ask("jules")
        assert "claude-code" in str(refusal.value.hint)


def test_a_declaration_is_data() -> None:
    row = harness_declaration("codex")

    assert row == msgspec.structs.replace(row)
    with pytest.raises(AttributeError):
        row.name = "other"  # type: ignore[misc]
