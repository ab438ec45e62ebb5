"""Modes and models: the same choices in all three forms, and the commands that choose them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.acp_schema import FrameChecker
from support.acp_updates import wire

from makai.core import session_events as ev
from makai.protocols.acp.settings import (
    ModelChoice,
    command_for_mode,
    command_for_model,
    command_for_option,
    session_settings,
    settings_updates,
)
from makai.sessions import commands as cmd
from makai.sessions.state import SessionState
from makai.wire.json_rpc_errors import RpcError

MODELS = (
    ModelChoice(model_ref="a/x@1", name="One", description="The first"),
    ModelChoice(model_ref="a/x@2", name="Two"),
    ModelChoice(model_ref="a/x@2", name="Two again"),
)
NATIVE = SessionState(last_event_id=1, model_ref="a/x@1", mode="accept_edits")
AGENT = ev.AgentSession(
    agent_session_id="own",
    modes=(ev.AgentOption(id="code", name="Code"), ev.AgentOption(id="architect", name="Architect")),
    mode="code",
    models=(ev.AgentOption(id="fast", name="Fast"), ev.AgentOption(id="slow")),
    model="slow",
)
EXTERNAL = SessionState(
    last_event_id=1,
    harness="external",
    capabilities=ev.HarnessCapabilities(needs_model=False),
    agent=AGENT,
    agent_mode="architect",
)
FIXED = SessionState(last_event_id=1, capabilities=ev.HarnessCapabilities(change_mode=False, change_model=False))


def shown(state: SessionState, models: Any = MODELS) -> dict[str, Any]:
    """The settings as the client receives them; fails when the schema does not allow them."""
    checker = FrameChecker("agent")
    checker.received(b'{"jsonrpc":"2.0","id":1,"method":"session/load"}')
    answer = {"jsonrpc": "2.0", "id": 1, "result": session_settings(state, models)}
    result: dict[str, Any] = checker.sent(msgspec.json.encode(answer))["result"]
    return result


def in_all_forms(settings: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Current and offered ids; fails when the forms differ."""
    forms = {option["id"]: option for option in settings.get("configOptions", [])}
    found = {}
    for name, group, current, offered, key in (
        ("mode", "modes", "currentModeId", "availableModes", "id"),
        ("model", "models", "currentModelId", "availableModels", "modelId"),
    ):
        assert (name in forms) == (group in settings)
        if name in forms:
            option, old = forms[name], settings[group]
            ids = [each["value"] for each in option["options"]]
            assert option["category"] == name
            assert (option["currentValue"], ids) == (old[current], [each[key] for each in old[offered]])
            assert [each["name"] for each in option["options"]] == [each["name"] for each in old[offered]]
            assert option["currentValue"] in ids
            found[name] = (option["currentValue"], ids)
    return found


@pytest.mark.req("ACP-SESS-005")
def test_our_modes_and_the_models_of_the_catalog_are_the_same_in_every_form() -> None:
    settings = shown(NATIVE)

    assert in_all_forms(settings) == {
        "mode": ("accept_edits", ["ask", "accept_edits", "plan", "never_ask"]),
        "model": ("a/x@1", ["a/x@1", "a/x@2"]),
    }
    assert settings["models"]["availableModels"][0] == {
        "modelId": "a/x@1",
        "name": "One",
        "description": "The first",
    }
    assert settings == shown(NATIVE)


def test_modes_and_models_of_an_external_agent_stand_in_place_of_ours() -> None:
    assert in_all_forms(shown(EXTERNAL)) == {
        "mode": ("architect", ["code", "architect"]),
        "model": ("slow", ["fast", "slow"]),
    }
    chosen = msgspec.structs.replace(EXTERNAL, model_ref="fast")
    assert in_all_forms(shown(chosen))["model"] == ("fast", ["fast", "slow"])


@pytest.mark.req("ACP-SESS-005")
@pytest.mark.parametrize(
    ("state", "models", "expected"),
    [
        (msgspec.structs.replace(NATIVE, model_ref="gone"), MODELS, ("gone", ["gone", "a/x@1", "a/x@2"])),
        (NATIVE, (), ("a/x@1", ["a/x@1"])),
        (msgspec.structs.replace(NATIVE, model_ref=""), MODELS, ("a/x@1", ["a/x@1", "a/x@2"])),
    ],
)
def test_the_current_value_is_always_among_the_offered_ones(state: SessionState, models: Any, expected: Any) -> None:
    assert in_all_forms(shown(state, models))["model"] == expected


def test_what_the_agent_of_a_session_cannot_change_is_not_offered() -> None:
    assert shown(FIXED) == {}
    assert "models" not in shown(msgspec.structs.replace(EXTERNAL, agent=None)), "the catalog is not the agent's"
    assert shown(msgspec.structs.replace(NATIVE, model_ref=""), ()).keys() == {"modes", "configOptions"}


@pytest.mark.req("ACP-SESS-006", "ACP-SESS-007")
def test_a_choice_is_a_command_in_every_form() -> None:
    plan, two = cmd.SetMode(now=0, mode="plan"), cmd.SetModel(now=0, model_ref="a/x@2")

    assert command_for_mode("plan", NATIVE) == command_for_option("mode", "plan", NATIVE, MODELS) == plan
    assert command_for_model("a/x@2", MODELS) == command_for_option("model", "a/x@2", NATIVE, MODELS) == two
    assert command_for_mode("full_access", NATIVE) == cmd.SetMode(now=0, mode="never_ask")
    assert command_for_mode("code", EXTERNAL) == cmd.SetMode(now=0, mode="ask", agent_mode="code")
    assert command_for_option("model", "fast", EXTERNAL, MODELS) == cmd.SetModel(now=0, model_ref="fast")


@pytest.mark.req("ACP-SESS-006", "ACP-SESS-007")
@pytest.mark.parametrize(
    ("config_id", "value", "state"),
    [
        ("mode", "yolo", NATIVE),
        ("mode", "ask", EXTERNAL),
        ("mode", "ask", FIXED),
        ("mode", True, NATIVE),
        ("model", "a/x@3", NATIVE),
        ("model", "", NATIVE),
        ("model", "a/x@1", EXTERNAL),
        ("model", "a/x@1", FIXED),
        ("color", "red", NATIVE),
    ],
)
def test_what_is_not_offered_is_refused(config_id: str, value: str | bool, state: SessionState) -> None:
    with pytest.raises(RpcError) as refused:
        command_for_option(config_id, value, state, MODELS)

    assert refused.value.rpc_code == -32602


def test_the_thinking_level_is_offered_for_a_model_that_thinks_and_kept_in_the_terms() -> None:
    models = (ModelChoice(model_ref="a/x@1", name="One", can_think=True), *MODELS[1:])
    terms = ev.SessionTerms(builtin_tools=True, reasoning_effort="high")
    thinking = msgspec.structs.replace(NATIVE, terms=terms)

    option = shown(thinking, models)["configOptions"][-1]
    assert (option["category"], option["currentValue"]) == ("thought_level", "high")
    assert [each["value"] for each in option["options"]] == [
        "default", "off", "minimal", "low", "medium", "high", "xhigh"
    ]  # fmt: skip
    assert shown(NATIVE, models)["configOptions"][-1]["currentValue"] == "default"
    assert command_for_option("thought_level", "low", thinking, models) == cmd.SetTerms(
        now=0, terms=ev.SessionTerms(builtin_tools=True, reasoning_effort="low")
    )
    assert command_for_option("thought_level", "default", thinking, models) == cmd.SetTerms(
        now=0, terms=ev.SessionTerms(builtin_tools=True)
    )
    for state, wanted, known in ((thinking, "wild", models), (thinking, "low", MODELS), (EXTERNAL, "low", models)):
        with pytest.raises(RpcError):
            command_for_option("thought_level", wanted, state, known)


@pytest.mark.req("ACP-UPD-011")
def test_a_change_is_announced_in_both_forms_and_only_when_there_is_one() -> None:
    before = session_settings(NATIVE, MODELS)
    changed = session_settings(msgspec.structs.replace(NATIVE, mode="plan"), MODELS)
    other_model = session_settings(msgspec.structs.replace(NATIVE, model_ref="a/x@2"), MODELS)

    mode, options = map(wire, settings_updates(before, changed))
    assert mode == {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
    assert options["configOptions"][0]["currentValue"] == "plan"
    assert [wire(each)["sessionUpdate"] for each in settings_updates(before, other_model)] == ["config_option_update"]
    assert settings_updates(before, before) == []
