"""Every way to write an agent's request means the same request, and what of it travels."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import makai
from makai.client.requests import message_of, run_request_of, session_of, starts_of

SESSION = "4ACB66D3-f669-454e-8f57-07ca938cc8a4"
TYPED = makai.AgentRunRequest(
    model_ref="m",
    messages=(makai.ChatMessage(role="user", content="Hi"),),
    tools=(makai.AgentTool(name="f", description="d", parameters_schema_json="{}"),),
    options=makai.AgentRunOptions(temperature=0.5, auth_retry_policy="auto_once"),
)
TWO_SCHEMAS = {"name": "f", "parameters_schema_json": "{}", "schema": {}}
OPTIONS = {"temperature": 0.5, "auth_retry_policy": "auto_once"}


def written(**fields: Any) -> makai.AgentRunRequest:
    return run_request_of(None, fields)  # type: ignore[arg-type]  # what callers write is not always typed


@pytest.mark.parametrize(
    "request_",
    [
        run_request_of(TYPED, {}),
        run_request_of({"model_ref": "m", "messages": "Hi", "tools": TYPED.tools, "options": OPTIONS}, {}),
        written(
            model_ref="m",
            messages=[{"role": "user", "content": "Hi"}],
            tools=[makai.ToolDefinition(name="f", description="d", parameters_schema_json="{}")],
            options=makai.RunOptions(temperature=0.5, auth_retry_policy="auto_once"),
        ),
        written(
            model_ref="m",
            messages="Hi",
            tools=[{"name": "f", "description": "d", "parameters_schema_json": "{}"}],
            options=OPTIONS,
        ),
    ],
)
def test_objects_dicts_and_keywords_are_the_same_request(request_: makai.AgentRunRequest) -> None:
    assert request_ == TYPED


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"messages": "Hi"}, "model_ref is missing"),
        ({"model_ref": "m"}, "messages is missing"),
        ({"model_ref": "m", "messages": "Hi", "speed": 3}, "has no speed"),
        ({"model_ref": "m", "messages": "Hi", "options": {"max_turn": 3}}, "options"),
        ({"model_ref": "m", "messages": "Hi", "tools": [{"name": "f", "run": print}]}, "tools"),
        (
            {
                "model_ref": "m",
                "messages": "Hi",
                "tools": [{"name": "f", "parameters_schema_json": "{}", "schema": {}}],
            },
            "not both",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(makai.InvalidRequest, match=problem):
        written(**fields)


def test_a_request_and_fields_at_once_are_refused() -> None:
    with pytest.raises(makai.InvalidRequest, match="not both"):
        run_request_of(TYPED, {"model_ref": "m"})


def test_what_travels_in_which_message() -> None:
    request = written(
        model_ref="m",
        messages=[{"role": "system", "content": "Be brief."}, "Hi"],
        tools=[makai.AgentTool(name="f", schema={"type": "object"}, execute=print)],
        options={"session_id": SESSION, "max_turns": 3, "allow": ["Bash(ls)"], **OPTIONS},
        builtin_tools=True,
        cwd="/work",
        mode="plan",
        on_permission_request=lambda request: None,
    )
    tool = {"name": "f", "description": "", "parameters_schema_json": '{"type":"object"}'}
    start = {
        "model_ref": "m",
        "system_prompt": "Be brief.",
        "tools": (tool,),
        "builtin_tools": True,
        "cwd": "/work",
        "mode": "plan",
    }

    assert [msgspec.to_builtins(one) for one in starts_of(request, is_new=False)] == [start | {"resume": True}, start]
    assert [msgspec.to_builtins(one) for one in starts_of(request, is_new=True)] == [start]
    assert msgspec.to_builtins(message_of(request)) == {
        "messages": ({"role": "user", "content": "Hi"},),
        "options": {"temperature": 0.5, "max_turns": 3, "allow": ("Bash(ls)",)},
    }
    assert session_of(request) == SESSION.lower()


def test_without_a_session_every_run_has_a_new_one() -> None:
    assert session_of(TYPED) != session_of(TYPED)
