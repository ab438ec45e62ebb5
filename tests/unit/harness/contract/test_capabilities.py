"""Capabilities: flat JSON, named flags, one rule for the permission format."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from makai.harness import Capabilities, Capability, decode, encode, is_supported

ALWAYS = {"supportsMessageInjection": False, "supportsSessionResume": False, "emitsSubagentEvents": False}
FLAGS = {
    "message_injection": ("supports_message_injection", "supportsMessageInjection"),
    "session_resume": ("supports_session_resume", "supportsSessionResume"),
    "tool_plugins": ("supports_tool_plugins", "supportsToolPlugins"),
    "base_instructions": ("needs_base_instructions", "needsBaseInstructions"),
    "permission_config": ("needs_permission_config", "needsPermissionConfig"),
    "code_intel_enforcement": ("supports_code_intelligence_enforcement", "supportsCodeIntelligenceEnforcement"),
    "subagent_events": ("emits_subagent_events", "emitsSubagentEvents"),
    "reasoning_effort": ("supports_reasoning_effort", "supportsReasoningEffort"),
    "accepts_allowed_tools_list": ("accepts_allowed_tools_list", "acceptsAllowedToolsList"),
    "accepts_mcp_server_spec": ("accepts_mcp_server_spec", "acceptsMcpServerSpec"),
    "turn_input_context": ("supports_turn_input_context", "supportsTurnInputContext"),
}
FORMAT = "tool_perm_format_claude"


def with_flags(*names: str, **fields: Any) -> Capabilities:
    return Capabilities(**fields | dict.fromkeys(names, True))


@pytest.mark.req("DM-CAP-001")
def test_three_flags_are_always_written_and_the_others_when_they_are_set() -> None:
    texts = Capabilities(tool_permission_format="codex", human_label="Codex")

    assert json.loads(encode(Capabilities())) == ALWAYS
    assert json.loads(encode(texts)) == {**ALWAYS, "toolPermissionFormat": "codex", "humanLabel": "Codex"}
    for field, name in FLAGS.values():
        caps = with_flags(field)
        assert json.loads(encode(caps)) == {**ALWAYS, name: True}
        assert decode(encode(caps), Capabilities) == caps


@pytest.mark.req("DM-CAP-002")
def test_the_named_capabilities_are_exactly_these() -> None:
    assert set(get_args(Capability)) == {*FLAGS, FORMAT}
    assert len(get_args(Capability)) == 12


@pytest.mark.req("DM-CAP-003")
@pytest.mark.parametrize("name", FLAGS)
def test_a_capability_is_supported_exactly_when_its_field_is_set(name: str) -> None:
    caps = with_flags(FLAGS[name][0], tool_permission_format="codex")

    assert [other for other in (*get_args(Capability), "", "magic") if is_supported(caps, other)] == [name]


@pytest.mark.req("DM-CAP-003")
@pytest.mark.parametrize("name", ["", "magic", "human_label", "supports_session_resume", "supportsSessionResume"])
def test_an_unknown_name_is_not_supported(name: str) -> None:
    everything = with_flags(*(field for field, _ in FLAGS.values()), human_label="x")

    assert not is_supported(everything, name)


@pytest.mark.req("DM-CAP-004")
@pytest.mark.parametrize(
    ("text", "expected"), [("", True), ("claude", True), ("codex", False), ("spring-ai", False), ("Claude", False)]
)
def test_an_empty_permission_format_counts_as_that_of_claude(text: str, expected: bool) -> None:
    assert is_supported(Capabilities(tool_permission_format=text), FORMAT) is expected
