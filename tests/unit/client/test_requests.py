"""Every way to write a request means the same request, and what of it travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

import makai
from makai.client import requests
from makai.client.requests import chat_messages, payload_of, request_of, run_request_of
from makai.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage

TOOL = {"name": "f", "description": "d", "parameters_schema_json": "{}"}


def request(
    request: makai.ProviderCompleteRequest | Mapping[str, Any] | None = None, **fields: Any
) -> makai.ProviderCompleteRequest:
    names = ("model_ref", "messages", "tools", "options")
    return request_of(request, *(fields.get(name) for name in names))


TYPED = makai.ProviderCompleteRequest(
    model_ref="m",
    messages=(makai.ChatMessage(role="user", content="Hi"),),
    tools=(makai.ToolDefinition(name="f", description="d", parameters_schema_json="{}"),),
    options=makai.RunOptions(temperature=0.5, auth_retry_policy="auto_once"),
)


SESSION = "4ACB66D3-f669-454e-8f57-07ca938cc8a4"
AGENT_TYPED = makai.AgentRunRequest(
    model_ref="m",
    messages=(makai.ChatMessage(role="user", content="Hi"),),
    tools=(makai.AgentTool(name="f", description="d", parameters_schema_json="{}"),),
    options=makai.AgentRunOptions(temperature=0.5, auth_retry_policy="auto_once"),
)
ASKED = {"model_ref": "m", "messages": "Hi"}
SAID = {"role": "user", "content": "Hi"}
TWO_SCHEMAS = {"name": "f", "parameters_schema_json": "{}", "schema": {}}
OPTIONS = {"temperature": 0.5, "auth_retry_policy": "auto_once"}


def agent_request(**fields: Any) -> makai.AgentRunRequest:
    return run_request_of(None, fields)  # what callers write is not always typed


@pytest.mark.req("MK-SDK-002")
@pytest.mark.parametrize(
    ("written", "typed"),
    [
        (request(TYPED), TYPED),
        (request({"model_ref": "m", "messages": "Hi", "tools": [TOOL], "options": TYPED.options}), TYPED),
        (request(model_ref="m", messages="Hi", tools=TYPED.tools, options=TYPED.options), TYPED),
        (request(model_ref="m", messages=[SAID], tools=[TOOL], options=OPTIONS), TYPED),
        (run_request_of(AGENT_TYPED, {}), AGENT_TYPED),
        (
            run_request_of({"model_ref": "m", "messages": "Hi", "tools": AGENT_TYPED.tools, "options": OPTIONS}, {}),
            AGENT_TYPED,
        ),
        (agent_request(model_ref="m", messages=[SAID], tools=TYPED.tools, options=TYPED.options), AGENT_TYPED),
        (agent_request(model_ref="m", messages="Hi", tools=[TOOL], options=OPTIONS), AGENT_TYPED),
    ],
)
def test_objects_dicts_and_keywords_are_the_same_request(written: object, typed: object) -> None:
    assert written == typed


@pytest.mark.req("MK-SDK-002")
def test_every_option_travels_but_the_retry_policy() -> None:
    options = {
        "temperature": 0.5,
        "max_tokens": 7,
        "reasoning_effort": "high",
        "session_id": "s",
        "metadata": {"a": "b"},
    }
    policy = {"auth_retry_policy": "auto_once"}
    asked = request(model_ref="m", messages="Hi", tools=[TOOL], options=options | policy)

    assert msgspec.to_builtins(payload_of(asked)) == {
        "model_ref": "m",
        "context": {"messages": ({"role": "user", "content": "Hi"},), "tools": (TOOL,)},
        "options": options,
    }


@pytest.mark.req("MK-SDK-003")
@pytest.mark.parametrize(
    ("part", "shape"),
    [
        (makai.TextContentPart(text="a", text_signature="s"), {"type": "text", "text": "a", "text_signature": "s"}),
        (makai.TextContentPart(text="a"), {"type": "text", "text": "a"}),
        (makai.ThinkingContentPart(thinking="a"), {"type": "thinking", "thinking": "a"}),
        (
            makai.ThinkingContentPart(thinking="a", thinking_signature="s"),
            {"type": "thinking", "thinking": "a", "thinking_signature": "s"},
        ),
        (
            makai.ToolResultContentPart(tool_call_id="1", tool_name="f", content="x"),
            {"type": "tool_result", "tool_call_id": "1", "tool_name": "f", "content": "x"},
        ),
        (
            makai.ImageContentPart(data="aa", mime_type="image/png"),
            {"type": "image", "data": "aa", "mime_type": "image/png"},
        ),
        (
            makai.ToolCallContentPart(tool_call_id="1", name="f", arguments_json="{}"),
            {"type": "tool_call", "tool_call_id": "1", "name": "f", "arguments_json": "{}"},
        ),
        (
            makai.ToolResultContentPart(tool_call_id="1", tool_name="f", content="x", is_error=True, details_json="{}"),
            {
                "type": "tool_result",
                "tool_call_id": "1",
                "tool_name": "f",
                "content": "x",
                "is_error": True,
                "details_json": "{}",
            },
        ),
    ],
)
def test_parts_have_the_documents_fields(part: msgspec.Struct, shape: dict[str, object]) -> None:
    (message,) = chat_messages([{"role": "user", "content": [shape]}])

    assert message.content == (part,)
    assert msgspec.to_builtins(message) == {"role": "user", "content": (shape,)}


@pytest.mark.req("MK-SDK-004")
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_a_chat_message_has_one_of_five_roles(role: Any) -> None:
    (message,) = chat_messages([{"role": role, "content": "a", "name": "n", "tool_call_id": "1"}])

    assert message == makai.ChatMessage(role=role, content="a", name="n", tool_call_id="1")


def test_messages_of_the_core_are_accepted() -> None:
    result = makai.ToolResultContentPart(tool_call_id="1", tool_name="f", content="x")
    answer = AssistantMessage(content=(makai.TextContentPart(text="b"),), provider="p", api="x", model="m", timestamp=3)

    assert chat_messages(
        [SystemMessage(content="s"), UserMessage(content="a"), answer, ToolMessage(result=result), "c"]
    ) == (
        makai.ChatMessage(role="system", content="s"),
        makai.ChatMessage(role="user", content="a"),
        makai.ChatMessage(
            role="assistant",
            content=(makai.TextContentPart(text="b"),),
            provider="p",
            api="x",
            model="m",
            usage=makai.UsageSummary(),
            timestamp=3,
        ),
        makai.ChatMessage(role="tool", content=(result,)),
        makai.ChatMessage(role="user", content="c"),
    )


@pytest.mark.req("MK-SDK-004")
@pytest.mark.parametrize(
    ("make", "fields", "problem"),
    [
        *((make, {"messages": "Hi"}, "model_ref is missing") for make in (request, agent_request)),
        *((make, {"model_ref": "m"}, "messages is missing") for make in (request, agent_request)),
        *(
            (make, {"model_ref": "m", "messages": given}, "messages is neither a text nor a list of messages")
            for make in (request, agent_request)
            for given in (SAID, b"Hi", 5)
        ),
        (request, {"model_ref": "m", "messages": [{"role": "robot", "content": ""}]}, r"messages\[0\]"),
        (request, {"model_ref": "m", "messages": ["a", 7]}, r"messages\[1\]"),
        (request, ASKED | {"options": {"temprature": 1}}, "temprature"),
        (request, ASKED | {"options": {"auth_retry_policy": "always"}}, "options"),
        (request, ASKED | {"tools": [{"name": "f"}]}, "tools"),
        (request, {"request": TYPED, "messages": "Hi"}, "not both: messages"),
        (request, {"request": ASKED | {"stream": True}}, "has no stream"),
        (agent_request, ASKED | {"speed": 3}, "has no speed"),
        (agent_request, ASKED | {"options": {"max_turn": 3}}, "options"),
        (agent_request, ASKED | {"tools": [{"name": "f", "run": print}]}, "tools"),
        (agent_request, ASKED | {"tools": [TWO_SCHEMAS]}, "not both"),
        (lambda **fields: run_request_of(AGENT_TYPED, fields), {"model_ref": "m"}, "not both"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_is_sent(
    make: Callable[..., object], fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(makai.InvalidRequest, match=problem):
        make(**fields)


def test_what_travels_in_which_message() -> None:
    request = agent_request(
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

    assert [msgspec.to_builtins(one) for one in requests.starts_of(request, is_new=False)] == [
        start | {"resume": True},
        start,
    ]
    assert [msgspec.to_builtins(one) for one in requests.starts_of(request, is_new=True)] == [start]
    assert msgspec.to_builtins(requests.message_of(request)) == {
        "messages": ({"role": "user", "content": "Hi"},),
        "options": {"temperature": 0.5, "max_turns": 3, "allow": ("Bash(ls)",)},
    }
    assert requests.session_of(request) == SESSION.lower()


def test_without_a_session_every_run_has_a_new_one() -> None:
    assert requests.session_of(AGENT_TYPED) != requests.session_of(AGENT_TYPED)
