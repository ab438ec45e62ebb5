"""The checker that holds makai's ACP frames to the official schema notices what it is there for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.acp_schema import JSON, FrameChecker, SchemaViolation, Side

TEXT: JSON = {"type": "text", "text": "Hi"}


def update(**fields: Any) -> JSON:
    return {"method": "session/update", "params": {"sessionId": "s", "update": fields}}


def check(side: Side, frame: JSON, *received: JSON, unstable: bool = False) -> None:
    checker = FrameChecker(side, unstable=unstable)
    for each in received:
        checker.received(json.dumps({"jsonrpc": "2.0", **each}))
    checker.sent(json.dumps({"jsonrpc": "2.0", **frame}))


NEW: JSON = {"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
OPTION: JSON = {
    "id": "mode",
    "name": "Mode",
    "type": "select",
    "currentValue": "a",
    "options": [{"value": "a", "name": "A"}],
}


@pytest.mark.parametrize(
    "frame",
    [
        update(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m"),
        update(sessionUpdate="agent_message_chunk", content=TEXT | {"_meta": {"any": 1}}, _meta={"any": [1]}),
        update(sessionUpdate="tool_call", toolCallId="c", title="Look", rawInput={"any": 1}, rawOutput=[1]),
        update(
            sessionUpdate="tool_call_update", toolCallId="c", content=[{"type": "diff", "path": "/a", "newText": ""}]
        ),
        update(sessionUpdate="config_option_update", configOptions=[OPTION]),
        update(sessionUpdate="session_info_update", title=None),
        {"method": "_vendor/said", "params": {"any": 1}},
        {"id": 1, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/a"}},
        {"method": "$/cancel_request", "params": {"requestId": 1}},
    ],
)
def test_what_the_schema_allows_passes(frame: JSON) -> None:
    check("agent", frame)


@pytest.mark.parametrize(
    "frame",
    [
        update(sessionUpdate="agent_message_chunk", content=TEXT, extra=1),
        update(sessionUpdate="agent_message_chunk", content=TEXT | {"extra": 1}),
        update(sessionUpdate="agent_message_chunk"),
        update(sessionUpdate="invented", content=TEXT),
        update(sessionUpdate="tool_call", toolCallId="c", title="Look", kind="weird"),
        update(
            sessionUpdate="tool_call_update",
            toolCallId="c",
            content=[{"type": "diff", "path": "/a", "newText": "", "x": 1}],
        ),
        update(sessionUpdate="config_option_update", configOptions=[OPTION | {"value": "a"}]),
        {"method": "session/update", "params": {"sessionId": "s", "update": {}}, "extra": 1},
        {"method": "session/cancel", "params": {"sessionId": "s"}},
        {"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
        {"id": 1, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/a", "line": None, "x": 1}},
        {"id": None, "error": {"code": -32700, "message": "No"}},
        {"id": 7, "result": {}},
    ],
)
def test_what_the_protocol_forbids_is_noticed(frame: JSON) -> None:
    with pytest.raises(SchemaViolation):
        check("agent", frame)


def test_an_answer_is_held_to_the_request_it_answers() -> None:
    check("agent", {"id": 1, "result": {"sessionId": "s"}}, NEW)
    check(
        "agent", {"id": 1, "result": {"sessionId": "s", "models": {"currentModelId": "a", "availableModels": []}}}, NEW
    )
    check("agent", {"id": 1, "error": {"code": -32602, "message": "No"}}, NEW)
    wrong_answers: list[JSON] = [
        {"result": {}},
        {"result": {"sessionId": "s", "x": 1}},
        {"result": None},
        {"error": {"code": 1, "message": ""}},
    ]
    for wrong in wrong_answers:
        with pytest.raises(SchemaViolation):
            check("agent", {"id": 1, **wrong}, NEW)


def test_an_answer_is_given_once() -> None:
    checker = FrameChecker("agent")
    checker.received(json.dumps({"jsonrpc": "2.0", **NEW}))
    assert checker.unanswered == ["session/new"]
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "s"}})
    checker.sent(answer)

    with pytest.raises(SchemaViolation, match="answered before"):
        checker.sent(answer)
    assert checker.unanswered == []


def test_a_line_that_cannot_be_read_explains_an_error_without_an_id() -> None:
    checker = FrameChecker("agent")
    checker.received(b"{broken")

    checker.sent(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"No JSON."}}\n')


@pytest.mark.parametrize(
    "line", [b"[]", b"hello", b"{}", b'{"jsonrpc":"2.0","jsonrpc":"2.0","method":"_a"}', b'{"a":1}\n{}']
)
def test_lines_that_are_no_frames_are_noticed(line: bytes) -> None:
    with pytest.raises(SchemaViolation):
        FrameChecker("agent").sent(line)


def test_a_client_may_send_what_an_agent_serves_and_the_other_way_round() -> None:
    check("client", NEW)
    check("client", {"method": "session/cancel", "params": {"sessionId": "s"}})
    check("client", {"id": 3, "result": {"content": ""}}, {"id": 3, "method": "fs/read_text_file", "params": {}})
    with pytest.raises(SchemaViolation):
        check("client", update(sessionUpdate="agent_message_chunk", content=TEXT))


def test_unstable_methods_need_the_unstable_schema() -> None:
    fork: JSON = {"id": 1, "method": "session/fork", "params": {"sessionId": "s", "cwd": "/"}}
    check("client", fork, unstable=True)
    with pytest.raises(SchemaViolation):
        check("client", fork)
