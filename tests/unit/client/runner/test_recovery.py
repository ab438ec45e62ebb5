"""What an agent that continues another one's work is shown, and what a harness is shown of a spec."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from makai.client.runner.gating import fitted
from makai.client.runner.recovery import MAX_TRANSCRIPT_CHARS, transcript_prompt
from makai.harness.contract.capabilities import Capabilities
from makai.harness.contract.events import (
    AgentErrorEvent,
    AssistantTextEvent,
    InitEvent,
    ResultEvent,
    SystemEvent,
    ToolProgressEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from makai.harness.contract.spec import CodeIntelEnforcement, MCPServerConfig, PermissionConfig, Spec


def test_the_transcript_has_the_task_and_what_was_recorded() -> None:
    events = (
        InitEvent(session_id="s"),
        SystemEvent(subtype="x"),
        AssistantTextEvent(text="I look.\n"),
        AssistantTextEvent(text="  "),
        ToolUseEvent(tool_name="Bash", input={"command": "ls"}),
        ToolProgressEvent(tool_name="Bash", elapsed_seconds=1.0),
        ToolResultEvent(content="a.txt\n"),
        ToolResultEvent(content="no", is_error=True),
        ResultEvent(success=False, errors=("a", "b")),
        AgentErrorEvent(message="died"),
        ResultEvent(success=True),
    )
    record = 'agent: I look.\ncall Bash: {"command":"ls"}\noutput: a.txt\nerror: no\nfailed: a; b\nfailed: died'

    prompt = transcript_prompt("Fix it", events)

    assert f"<task>\nFix it\n</task>\n\n<record>\n{record}\n</record>" in prompt
    assert prompt.endswith("Check what is already done, then finish the task.")
    assert transcript_prompt("Fix it", events, "Now push").endswith("Now push")


def test_a_long_record_keeps_its_end_and_an_empty_one_says_so() -> None:
    events = [AssistantTextEvent(text=f"{number} " + "x" * 5000) for number in range(100)]

    prompt = transcript_prompt("t", events)

    assert len(prompt) < MAX_TRANSCRIPT_CHARS + 1000
    assert "[71 earlier entries are left out]\nagent: 71 xxx" in prompt
    assert "agent: 99 xxx" in prompt
    assert "(nothing was recorded)" in transcript_prompt("t", [])


FULL = Spec(
    prompt="p",
    effort="high",
    base_instructions="b",
    permission_config=PermissionConfig(),
    code_intel_enforcement=CodeIntelEnforcement(),
    allowed_tools=("Bash",),
    mcp_servers=(MCPServerConfig(name="m", command="c"),),
    mcp_tool_names=("mcp__m__x",),
    system_prompt_append="s",
    initial_context="c",
    model="m",
)
BOUND = {
    *("effort", "base_instructions", "permission_config", "code_intel_enforcement", "allowed_tools"),
    *("mcp_servers", "mcp_tool_names"),
}
ABLE = Capabilities(
    needs_base_instructions=True,
    needs_permission_config=True,
    supports_code_intelligence_enforcement=True,
    supports_reasoning_effort=True,
    accepts_allowed_tools_list=True,
    accepts_mcp_server_spec=True,
    supports_turn_input_context=True,
)


@pytest.mark.req("DM-CAP-005", "DM-SPEC-008", "DM-SPEC-010")
def test_a_harness_never_sees_a_field_that_needs_a_capability_it_lacks() -> None:
    assert fitted(FULL, ABLE) == (FULL, ())
    assert fitted(FULL, Capabilities()) == (
        Spec(prompt="p", model="m", system_prompt_append="s\n\nc"),
        (
            *("effort", "base_instructions", "permission_config", "code_intel_enforcement", "allowed_tools"),
            *("mcp_servers", "mcp_tool_names"),
        ),
    )
    assert fitted(Spec(prompt="p"), Capabilities()) == (Spec(prompt="p"), ())


@pytest.mark.req("DM-CAP-005", "DM-CAP-007", "DM-SPEC-005", "DM-SPEC-008", "DM-SPEC-010")
@pytest.mark.parametrize(
    ("flag", "kept"),
    [
        ("supports_tool_plugins", {}),
        ("supports_reasoning_effort", {"effort": FULL.effort}),
        ("needs_base_instructions", {"base_instructions": "b"}),
        ("needs_permission_config", {"permission_config": FULL.permission_config}),
        ("supports_code_intelligence_enforcement", {"code_intel_enforcement": FULL.code_intel_enforcement}),
        ("accepts_allowed_tools_list", {"allowed_tools": ("Bash",), "mcp_tool_names": ("mcp__m__x",)}),
        ("accepts_mcp_server_spec", {"mcp_servers": FULL.mcp_servers}),
        ("supports_turn_input_context", {"initial_context": "c", "system_prompt_append": "s"}),
    ],
)
def test_each_capability_alone_lets_its_own_fields_pass(flag: str, kept: dict[str, Any]) -> None:
    fit, dropped = fitted(FULL, msgspec.structs.replace(Capabilities(), **{flag: True}))

    assert fit == Spec(**{"prompt": "p", "model": "m", "system_prompt_append": "s\n\nc", **kept})
    assert set(dropped) == BOUND - set(kept)
