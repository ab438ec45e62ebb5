"""`makai acp` as an editor drives it: the handshake, prompts, cancellation and permission requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from support.acp_client import JSON, AcpClient, Place, RpcFailed, acp_place, connected
from support.live_sessions import Desk, whole_log
from support.wire import encode

from makai.core import session_events as ev
from makai.core.access import Caller
from makai.core.content import Audio, Image, Resource, ResourceLink, Text
from makai.core.version import __version__
from makai.sessions.commands import SetTerms
from makai.sessions.log.encoding import decoded
from makai.sessions.requests import GetState
from makai.transports.channel import Channel
from makai.transports.memory import memory_pair
from makai.wire.acp.updates import ToolKind

SCENARIO = """
think: Let me see.
say: Hello there.
usage: input=5 output=2
---
say: Hello again.
---
when: stall
say: Hel
stall
---
when: long
say: And so
stop: max_tokens
---
when: refuse
stop: refusal
---
when: broken
fail: provider_error The model is on fire.
---
when: login
fail: auth_required Log in first.
---
when: many
repeat: 20000 word
---
when: echo
echo
"""
ASKING = """
tool: write {"path": "a.txt", "content": "A"}
usage: input=1 output=1
---
say: Done.
---
when: echo
echo
"""
EVERYTHING: JSON = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
ALLOW_ONCE = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with acp_place(tmp_path, SCENARIO) as made:
        yield made


@pytest.fixture
async def client(place: Place) -> AsyncIterator[AcpClient]:
    async with connected(place.server) as made:
        await made.initialize(clientInfo={"name": "Test\nEditor", "version": "1"})
        yield made


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Place]:
    """A place whose model wants to write a file first."""
    async with acp_place(tmp_path, ASKING) as made:
        yield made


@pytest.fixture
async def editor(asking: Place) -> AsyncIterator[AcpClient]:
    async with connected(asking.server) as made:
        await made.initialize(clientInfo={"name": "Test\nEditor", "version": "1"})
        yield made


async def refused(client: AcpClient, method: str, params: Any = None) -> int:
    with pytest.raises(RpcFailed) as caught:
        await client.ask(method, params)
    assert "\n" not in caught.value.message
    return caught.value.code


def kinds(client: AcpClient, session_id: str) -> list[str]:
    return [update["sessionUpdate"] for update in client.updates(session_id)]


# The handshake


@pytest.mark.req("ACP-INIT-004", "ACP-INIT-005", "ACP-INIT-006")
@pytest.mark.parametrize("version", [0, 1, 2, 65535])
async def test_every_version_is_answered_with_ours_and_what_we_can_do(place: Place, version: int) -> None:
    async with connected(place.server) as client:
        assert await client.ask("initialize", {"protocolVersion": version}) == {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    "list": {}, "delete": {}, "additionalDirectories": {}, "resume": {}, "close": {},
                },
                "auth": {"logout": {}},
            },
            "authMethods": [],
            "agentInfo": {"name": "makai", "title": "Makai", "version": __version__},
            "_meta": {"steering": {"supported": True}},
        }  # fmt: skip


@pytest.mark.req("ACP-INIT-002", "ACP-INIT-005")
@pytest.mark.parametrize(
    "params", [None, {}, {"protocolVersion": "1"}, {"protocolVersion": -1}, {"protocolVersion": 65536}, []]
)
async def test_a_handshake_without_a_version_is_refused_and_can_be_repeated(place: Place, params: Any) -> None:
    async with connected(place.server) as client:
        assert await refused(client, "initialize", params) == -32602
        assert (await client.initialize())["protocolVersion"] == 1


async def test_the_handshake_comes_first_and_once(place: Place, tmp_path: Path) -> None:
    async with connected(place.server) as client:
        for method in ("session/new", "session/prompt", "authenticate", "_x/y"):
            assert await refused(client, method, {"cwd": str(tmp_path), "mcpServers": []}) == -32600
        await client.initialize()
        assert await refused(client, "initialize", {"protocolVersion": 1}) == -32600
        await client.new_session(place.folder)


@pytest.mark.req("ACP-INIT-002", "ACP-EXT-001", "ACP-EXT-002")
async def test_junk_is_answered_and_the_connection_lives(client: AcpClient, place: Place) -> None:
    assert await refused(client, "_x/y", {"any": "thing"}) == -32601
    assert await refused(client, "session/fork", {"sessionId": "s", "cwd": "/"}) == -32601
    await client.notify("_x/y", {"any": "thing"})
    await client.notify("session/cancel", {"no": "session"})
    sent = len(client.frames)
    await client.say_raw(b"not json", b"[]", b"42", b'{"jsonrpc":"2.0","id":7}', b"")
    await client.until(lambda: client.frames[sent + 3 :])
    answers = [(frame["id"], frame["error"]["code"]) for frame in client.frames[sent:]]
    assert answers == [(None, -32700), (None, -32600), (None, -32600), (7, -32600)]
    assert await client.run(await client.new_session(place.folder), "hi") == "end_turn"


@pytest.mark.req("ACP-PROMPT-003")
async def test_a_line_that_is_too_long_is_refused_under_its_id(place: Place) -> None:
    async with connected(place.server, max_frame_bytes=10_000) as client:
        await client.initialize()
        session_id = await client.new_session(place.folder)
        image = {"type": "image", "data": "QUJD" * 5_000, "mimeType": "image/png"}
        assert await refused(client, "session/prompt", {"sessionId": session_id, "prompt": [image]}) == -32600
        assert await client.run(session_id, "hi") == "end_turn"


# Prompts


@pytest.mark.req("ACP-PROMPT-001", "ACP-UPD-001", "ACP-UPD-002")
async def test_updates_of_a_turn_come_before_its_answer(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    prompt = client.prompt(session_id, "hi")
    assert await prompt == {"stopReason": "end_turn"}
    assert client.text(kind="agent_thought_chunk") == "Let me see."
    assert client.text() == "Hello there."
    assert "user_message_chunk" not in kinds(client, session_id)
    assert "result" in client.frames[-1]


async def test_a_new_session_is_answered_before_anything_is_said_about_it(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    await client.until_update("available_commands_update")
    answer, first = client.frames[1:3]
    assert answer["result"]["sessionId"] == session_id
    assert first["params"]["update"]["sessionUpdate"] == "available_commands_update"


@pytest.mark.req("ACP-PROMPT-006")
@pytest.mark.parametrize(("text", "reason"), [("hi", "end_turn"), ("long", "max_tokens"), ("refuse", "refusal")])
async def test_the_reason_why_a_turn_ended(client: AcpClient, place: Place, text: str, reason: str) -> None:
    assert await client.run(await client.new_session(place.folder), text) == reason


@pytest.mark.req("ACP-PROMPT-006")
async def test_a_limit_of_turns_is_a_reason_to_stop(tmp_path: Path) -> None:
    async with acp_place(tmp_path, 'tool: plan {"steps": []}', max_turns=2) as place, connected(place.server) as client:
        await client.initialize()
        assert await client.run(await client.new_session(place.folder), "hi") == "max_turn_requests"


@pytest.mark.req("ACP-PROMPT-011", "ACP-AUTH-003")
async def test_a_failure_of_the_provider_is_an_error_with_its_message(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    for text, code, message in (("broken", -32603, "The model is on fire."), ("login", -32000, "Log in first.")):
        with pytest.raises(RpcFailed, match=message) as caught:
            await client.run(session_id, text)
        assert caught.value.code == code
    assert await client.run(session_id, "echo hi") == "end_turn"


@pytest.mark.req("ACP-PROMPT-002", "ACP-PROMPT-003")
async def test_what_a_prompt_holds_reaches_the_session(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    blocks = [
        {"type": "text", "text": "echo"},
        {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"},
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        {"type": "audio", "data": "QUJD", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "print()"}},
    ]
    await client.ask("session/prompt", {"sessionId": session_id, "prompt": blocks})
    (said,) = [
        logged.event for logged in await whole_log(place.sessions, session_id) if isinstance(logged.event, ev.UserInput)
    ]
    assert said.content == (
        Text(text="echo"),
        ResourceLink(uri="file:///a.py", name="a.py"),
        Image(data="QUJD", mime_type="image/png"),
        Audio(data="QUJD", mime_type="audio/wav"),
        Resource(uri="file:///b.py", text="print()"),
    )


@pytest.mark.req("ACP-PROMPT-010")
async def test_a_second_prompt_is_refused_and_the_first_continues(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    first, second = client.prompt(session_id, "stall"), client.prompt(session_id, "hi")
    with pytest.raises(RpcFailed, match="running"):
        await second
    await client.notify("session/cancel", {"sessionId": session_id})
    assert await first == {"stopReason": "cancelled"}


@pytest.mark.req("ACP-SESS-010")
async def test_requests_about_unknown_sessions_are_refused(client: AcpClient) -> None:
    named = {"sessionId": "nowhere"}
    prompt = [{"type": "text", "text": "hi"}]
    for method, params in (
        ("session/prompt", {"prompt": prompt}),
        ("_session/steering", {"prompt": prompt}),
        ("session/set_mode", {"modeId": "ask"}),
        ("session/set_model", {"modelId": "x"}),
        ("session/set_config_option", {"configId": "mode", "value": "ask"}),
        ("session/load", {"cwd": "/", "mcpServers": []}),
        ("session/resume", {"cwd": "/"}),
        ("session/close", {}),
    ):
        assert await refused(client, method, named | params) == -32002


@pytest.mark.req("ACP-EXT-003")
async def test_meta_never_replaces_a_parameter(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    hostile = {"sessionId": "other", "session_id": "other", "prompt": [], "cwd": "/", "__class__": 1}
    prompt = [{"type": "text", "text": "hi", "_meta": hostile}]
    assert await client.ask("session/prompt", {"sessionId": session_id, "prompt": prompt, "_meta": hostile}) == {
        "stopReason": "end_turn"
    }


async def test_usage_of_a_turn_is_unstable(tmp_path: Path) -> None:
    async with acp_place(tmp_path, SCENARIO, unstable=True) as place, connected(place.server) as client:
        answer = await client.initialize()
        assert answer["agentCapabilities"]["sessionCapabilities"]["fork"] == {}
        session_id = await client.new_session(place.folder)
        assert await client.prompt(session_id, "hi") == {
            "stopReason": "end_turn",
            "usage": {"totalTokens": 7, "inputTokens": 5, "outputTokens": 2},
        }
        forked = await client.ask("session/fork", {"sessionId": session_id, "cwd": str(place.folder)})
        assert forked["sessionId"] != session_id
        assert await client.run(forked["sessionId"], "go on") == "end_turn"
        assert client.text(forked["sessionId"]) == "Hello again."


# Cancellation


@pytest.mark.req("ACP-PROMPT-006", "ACP-PROMPT-007", "ACP-PROMPT-008", "ACP-INIT-010")
async def test_a_cancelled_prompt_is_answered_at_once_and_nothing_follows(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    for _ in range(5):
        before = client.text()
        prompt = client.prompt(session_id, "stall")
        await client.until(partial(client.has_said, before + "Hel"))
        began = time.monotonic()
        await client.notify("session/cancel", {"sessionId": session_id})
        assert await prompt == {"stopReason": "cancelled"}
        assert time.monotonic() - began < 5  # at most one second on a quiet machine, which the benchmark checks
        assert "result" in client.frames[-1]
    assert await client.run(session_id, "echo hi") == "end_turn"


@pytest.mark.req("ACP-PROMPT-007")
async def test_a_cancellation_hits_the_prompt_that_was_sent_before_it(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "stall"}]}
    await client.say(
        {"id": "p", "method": "session/prompt", "params": prompt},
        {"method": "session/cancel", "params": {"sessionId": session_id}},
    )
    answer = await client.until(lambda: [frame for frame in client.frames if frame.get("id") == "p"])
    assert answer[0]["result"] == {"stopReason": "cancelled"}


@pytest.mark.req("ACP-PROMPT-009")
async def test_a_cancellation_without_a_prompt_has_no_effect(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    assert await client.run(session_id, "echo one") == "end_turn"
    before = await place.sessions.dispatch(GetState(session_id))
    sent = len(client.frames)
    for named in ("nowhere", session_id, session_id):
        await client.notify("session/cancel", {"sessionId": named})
    await client.ask("session/list", {})
    assert [frame.keys() for frame in client.frames[sent:]] == [{"jsonrpc", "id", "result"}]
    assert await place.sessions.dispatch(GetState(session_id)) == before
    assert await client.run(session_id, "echo two") == "end_turn"
    assert client.text() == "echo oneecho two"


async def test_a_cancelled_request_of_a_prompt_is_a_cancelled_prompt(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "stall"}]}
    asking = asyncio.create_task(client.ask("session/prompt", prompt, request_id="p"))
    await client.until_update("agent_message_chunk")
    await client.notify("$/cancel_request", {"requestId": "p"})
    assert await asking == {"stopReason": "cancelled"}
    state = await place.sessions.dispatch(GetState(session_id))
    assert state.active_run is None


@pytest.mark.req("ACP-SESS-011")
async def test_sessions_of_one_connection_are_independent(client: AcpClient, place: Place, tmp_path: Path) -> None:
    one, other = await client.new_session(place.folder), await client.new_session(tmp_path)
    await client.ask("session/set_mode", {"sessionId": one, "modeId": "plan"})
    model = (await place.sessions.dispatch(GetState(other))).model_ref
    await client.ask("session/set_model", {"sessionId": other, "modelId": "scripted/scripted@echo"})
    stalled = client.prompt(one, "stall")
    await client.until(lambda: client.text(one) == "Hel")
    assert await client.run(other, "hi") == "end_turn"
    await client.notify("session/cancel", {"sessionId": other})
    assert await client.run(other, "again") == "end_turn"
    assert not stalled.done()
    assert (client.text(one), client.text(other)) == ("Hel", "hiagain")
    await client.notify("session/cancel", {"sessionId": one})
    assert await stalled == {"stopReason": "cancelled"}
    states = [await place.sessions.dispatch(GetState(session_id)) for session_id in (one, other)]
    assert [(state.mode, state.cwd, state.model_ref) for state in states] == [
        ("plan", str(place.folder), model),
        ("ask", str(tmp_path), "scripted/scripted@echo"),
    ]
    said = [
        [
            logged.event.content
            for logged in await whole_log(place.sessions, each)
            if isinstance(logged.event, ev.UserInput)
        ]
        for each in (one, other)
    ]
    assert said == [["stall"], ["hi", "again"]]


@pytest.mark.req("ACP-PROMPT-008")
@pytest.mark.parametrize("text", ["stall", "many"])
async def test_a_run_that_does_not_end_in_time_is_not_shown_any_more(
    client: AcpClient, place: Place, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("makai.server.acp_session.CANCEL_S", 0.0)
    session_id = await client.new_session(place.folder)
    prompt = client.prompt(session_id, text)
    await client.until_update("agent_message_chunk")
    await client.notify("session/cancel", {"sessionId": session_id})
    assert await prompt == {"stopReason": "cancelled"}
    before = len(client.updates())
    assert await client.run(session_id, "echo hi") == "end_turn"
    texts = [update["content"]["text"] for update in client.updates()[before:] if "content" in update]
    assert "".join(texts) == "echo hi"


async def test_the_title_of_a_session_is_what_the_person_wrote_and_not_the_file_before_it(
    client: AcpClient, place: Place
) -> None:
    session_id = await client.new_session(place.folder)
    file = {"type": "resource", "resource": {"uri": "file:///project/app.py", "text": "import os"}}
    prompt = [file, {"type": "text", "text": "Explain"}, file, {"type": "text", "text": "to me"}]
    await client.ask("session/prompt", {"sessionId": session_id, "prompt": prompt})
    assert (await place.sessions.dispatch(GetState(session_id))).title == "Explain app.py to me"


# Steering


@pytest.mark.req("ACP-EXT-001")
async def test_steering_reaches_the_running_turn(editor: AcpClient, asking: Place) -> None:
    session_id = await editor.new_session(asking.folder)
    prompt = editor.prompt(session_id, "go")
    question = await editor.until_asked("session/request_permission")
    steering = {"sessionId": session_id, "prompt": [{"type": "text", "text": "echo: be brief"}]}
    assert await editor.ask("_session/steering", steering) == {"outcome": "injected"}
    await editor.answer(question, ALLOW_ONCE)
    assert await prompt == {"stopReason": "end_turn"}
    assert editor.text() == "echo: be brief"
    assert await editor.ask("_session/steering", steering) == {"outcome": "startedNewTurn"}


@pytest.mark.req("ACP-PROMPT-008", "ACP-EXT-001")
async def test_a_cancelled_turn_takes_steering_with_it_that_it_has_not_read(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    prompt = client.prompt(session_id, "stall")
    await client.until_update("agent_message_chunk")
    steering = {"sessionId": session_id, "prompt": [{"type": "text", "text": "stall too"}]}
    assert await client.ask("_session/steering", steering) == {"outcome": "injected"}
    await client.notify("session/cancel", {"sessionId": session_id})
    assert await prompt == {"stopReason": "cancelled"}
    assert await client.run(session_id, "echo hi") == "end_turn"


@pytest.mark.req("ACP-PROMPT-008", "ACP-EXT-001")
async def test_a_turn_that_steering_started_can_be_cancelled(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    steering = {"sessionId": session_id, "prompt": [{"type": "text", "text": "stall"}]}
    assert await client.ask("_session/steering", steering) == {"outcome": "startedNewTurn"}
    await client.notify("session/cancel", {"sessionId": session_id})
    async with asyncio.timeout(10):
        follower, kinds_seen = place.sessions.follow(session_id, 0), set[type]()
        while not kinds_seen & {ev.RunFinished, ev.RunFailed}:
            kinds_seen |= {type(each.event) for each in decoded(await follower.next()) if isinstance(each, ev.Logged)}
    assert await client.run(session_id, "echo hi") == "end_turn"


@pytest.mark.req("ACP-UPD-006", "ACP-UPD-008")
async def test_every_built_in_tool_says_what_kind_it_is_and_which_files_it_touches(tmp_path: Path) -> None:
    calls = {
        'read {"path": "a.txt"}': ("read", ["a.txt"]),
        'list {"path": "."}': ("read", [""]),
        'glob {"pattern": "*.txt"}': ("search", [""]),
        'grep {"pattern": "A"}': ("search", [""]),
        'edit {"path": "a.txt", "old_text": "A", "new_text": "B"}': ("edit", ["a.txt"]),
        'write {"path": "b.txt", "content": "B"}': ("edit", ["b.txt"]),
        'shell {"command": "true"}': ("execute", [""]),
        'plan {"steps": []}': ("think", []),
        'fetch {"url": "http://127.0.0.1:9/"}': ("fetch", []),
        'invented {"x": 1}': ("other", []),
    }
    scenario = "\n---\n".join([*(f"tool: {call}" for call in calls), "say: Done."])
    async with acp_place(tmp_path, scenario) as place, connected(place.server) as client:
        (place.folder / "a.txt").write_text("A\n")
        await client.initialize()
        client.answers["session/request_permission"] = lambda question: ALLOW_ONCE
        session_id = await client.new_session(place.folder)
        assert await client.run(session_id, "go") == "end_turn"
        shown = [
            (call["kind"], [str(Path(each["path"]).relative_to(place.folder)) for each in call.get("locations", ())])
            for call in client.updates(session_id, "tool_call")
        ]
        assert shown == [(kind, [path or "." for path in paths]) for kind, paths in calls.values()]
        assert {each["kind"] for each in client.updates(session_id, "tool_call")} <= set(get_args(ToolKind))


# Permissions


async def asked(editor: AcpClient, asking: Place) -> tuple[str, asyncio.Task[JSON], JSON]:
    session_id = await editor.new_session(asking.folder)
    prompt = editor.prompt(session_id, "go")
    return session_id, prompt, await editor.until_asked("session/request_permission")


@pytest.mark.req("ACP-PERM-001", "ACP-PERM-002", "ACP-INIT-010")
async def test_a_call_waits_for_the_editors_permission(editor: AcpClient, asking: Place) -> None:
    session_id, prompt, question = await asked(editor, asking)
    (call,) = editor.updates(session_id, "tool_call")
    assert question["params"]["sessionId"] == session_id
    assert question["params"]["toolCall"]["toolCallId"] == call["toolCallId"]
    assert {option["kind"] for option in question["params"]["options"]} >= {"allow_once", "reject_once"}
    assert not (asking.folder / "a.txt").exists()
    await editor.answer(question, ALLOW_ONCE)
    assert await prompt == {"stopReason": "end_turn"}
    assert (asking.folder / "a.txt").read_text() == "A"
    (decided,) = [
        logged.event
        for logged in await whole_log(asking.sessions, session_id)
        if isinstance(logged.event, ev.ApprovalDecided)
    ]
    assert (decided.decision, decided.by) == ("approve", "acp:TestEditor")


@pytest.mark.req("ACP-PERM-004", "ACP-PERM-006")
@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"outcome": {"outcome": "selected", "optionId": "reject_once"}}},
        {"result": {"outcome": {"outcome": "selected", "optionId": "no such option"}}},
        {"result": {"outcome": "allow_once"}},
        {"result": None},
        {"error": {"code": -32603, "message": "no window"}},
    ],
)
async def test_everything_but_a_permission_is_a_rejection(editor: AcpClient, asking: Place, answer: JSON) -> None:
    session_id, prompt, question = await asked(editor, asking)
    await editor.say({"id": question["id"], **answer})
    assert await prompt == {"stopReason": "end_turn"}
    assert not (asking.folder / "a.txt").exists()
    assert editor.updates(session_id, "tool_call_update")[-1]["status"] == "failed"


@pytest.mark.req("ACP-PERM-003", "ACP-PERM-004", "ACP-PERM-005")
@pytest.mark.parametrize(
    ("option", "asked_twice", "statuses", "on_disk"),
    [
        ("allow_once", True, ["completed", "completed"], "2"),
        ("allow_always", False, ["completed", "completed"], "2"),
        ("reject_once", True, ["failed", "failed"], None),
        ("reject_always", False, ["failed", "failed"], None),
    ],
)
async def test_a_choice_holds_for_this_call_or_for_later_ones_too(
    tmp_path: Path, option: str, asked_twice: bool, statuses: list[str], on_disk: str | None
) -> None:
    write = 'tool: write {"path": "a.txt", "content": "%s"}'
    scenario = "\n---\n".join((write % 1, "say: One.", write % 2, "say: Two."))
    async with acp_place(tmp_path, scenario) as place, connected(place.server) as client:
        await client.initialize()
        answer = {"outcome": {"outcome": "selected", "optionId": option}}
        client.answers["session/request_permission"] = lambda question: answer
        session_id = await client.new_session(place.folder)
        assert [await client.run(session_id, text) for text in ("one", "two")] == ["end_turn", "end_turn"]
        assert client.text() == "One.Two."
        calls = [call["toolCallId"] for call in client.updates(session_id, "tool_call")]
        asked = [frame["params"] for frame in client.frames if frame.get("method") == "session/request_permission"]
        assert [each["toolCall"]["toolCallId"] for each in asked] == (calls if asked_twice else calls[:1])
        ends = {each["toolCallId"]: each["status"] for each in client.updates(session_id) if "status" in each}
        assert ends == dict(zip(calls, statuses, strict=True))
        file = place.folder / "a.txt"
        assert (file.read_text() if file.exists() else None) == on_disk


@pytest.mark.req("ACP-PERM-005")
async def test_a_cancelled_question_ends_the_turn(editor: AcpClient, asking: Place) -> None:
    _, prompt, question = await asked(editor, asking)
    await editor.answer(question, {"outcome": {"outcome": "cancelled"}})
    assert await prompt == {"stopReason": "cancelled"}
    assert not (asking.folder / "a.txt").exists()


@pytest.mark.req("ACP-PROMPT-008")
async def test_cancelling_a_prompt_withdraws_its_question(editor: AcpClient, asking: Place) -> None:
    session_id, prompt, question = await asked(editor, asking)
    await editor.notify("session/cancel", {"sessionId": session_id})
    assert await prompt == {"stopReason": "cancelled"}
    assert editor.notifications("$/cancel_request") == [{"requestId": question["id"]}]
    await editor.answer(question, ALLOW_ONCE)  # too late
    assert await editor.run(session_id, "echo hi") == "end_turn"
    assert not (asking.folder / "a.txt").exists()


@pytest.mark.req("ACP-PROMPT-008")
async def test_nothing_about_a_call_follows_the_answer_to_a_prompt_whose_run_ends_later(
    editor: AcpClient, asking: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makai.server.acp_session.CANCEL_S", 0.0)
    session_id, prompt, _ = await asked(editor, asking)
    await editor.notify("session/cancel", {"sessionId": session_id})
    assert await prompt == {"stopReason": "cancelled"}
    before = len(editor.updates())
    assert editor.updates(kind="tool_call_update")[-1]["status"] == "failed"
    assert await editor.run(session_id, "echo hi") == "end_turn"
    assert "tool_call_update" not in {update["sessionUpdate"] for update in editor.updates()[before:]}


@pytest.mark.req("ACP-PERM-001")
async def test_a_question_that_was_answered_elsewhere_is_withdrawn(editor: AcpClient, asking: Place) -> None:
    session_id, prompt, question = await asked(editor, asking)
    desk = Desk(asking.sessions, session_id)
    await desk.approve(question["params"]["toolCall"]["toolCallId"])
    assert await prompt == {"stopReason": "end_turn"}
    assert editor.notifications("$/cancel_request") == [{"requestId": question["id"]}]
    assert (asking.folder / "a.txt").read_text() == "A"
    await editor.answer(question, {"outcome": {"outcome": "cancelled"}})
    assert await editor.run(session_id, "echo hi") == "end_turn"


async def test_a_question_without_an_answer_expires(editor: AcpClient, asking: Place) -> None:
    session_id = await editor.new_session(asking.folder)
    terms = (await asking.sessions.dispatch(GetState(session_id))).terms
    soon = SetTerms(now=0, terms=msgspec.structs.replace(terms, approval_s=0.2))
    await Desk(asking.sessions, session_id).do(soon)
    assert await editor.run(session_id, "go") == "end_turn"
    assert editor.notifications("$/cancel_request")
    assert not (asking.folder / "a.txt").exists()


async def test_a_token_that_may_not_approve_is_not_asked(editor: AcpClient, asking: Place) -> None:
    async with connected(asking.server, Caller(name="phone", scope="prompt")) as phone:
        await phone.initialize()
        session_id, prompt, question = await asked(editor, asking)
        loading = {"sessionId": session_id, "cwd": str(asking.folder), "mcpServers": []}
        await phone.ask("session/load", loading)
        await editor.answer(question, ALLOW_ONCE)
        await prompt
        assert phone.asked == []
        assert await refused(phone, "authenticate", {"methodId": "openrouter"}) == -32600
        assert await refused(phone, "session/delete", {"sessionId": session_id}) == -32600


async def test_a_token_that_may_only_observe_watches(editor: AcpClient, asking: Place) -> None:
    async with connected(asking.server, Caller(name="screen", scope="observe")) as screen:
        await screen.initialize(EVERYTHING)
        session_id = await editor.new_session(asking.folder)
        await screen.ask("session/load", {"sessionId": session_id, "cwd": str(asking.folder), "mcpServers": []})
        prompt = [{"type": "text", "text": "echo"}]
        assert await refused(screen, "session/prompt", {"sessionId": session_id, "prompt": prompt}) == -32600
        assert await refused(screen, "session/new", {"cwd": str(asking.folder), "mcpServers": []}) == -32600
        assert await editor.run(session_id, "echo seen") == "end_turn"
        await screen.until(lambda: screen.text() == "echo seen")


# Backpressure


async def heard(channel: Channel) -> JSON:
    async with asyncio.timeout(30):
        frame = await channel.receive()
    assert isinstance(frame, bytes)
    return msgspec.json.decode(frame, type=JSON)


async def test_a_client_that_does_not_read_holds_up_only_itself(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    here, there = memory_pair(bound=1_000)
    serving = asyncio.create_task(place.server.serve(there))
    sleeper = {"sessionId": session_id, "cwd": str(place.folder), "mcpServers": []}
    requests = (("initialize", {"protocolVersion": 1}), ("session/load", sleeper))
    for number, (method, params) in enumerate(requests):
        await here.send([encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})])
        while "result" not in await heard(here):
            pass
    assert await client.run(session_id, "many") == "end_turn"
    assert client.text() == "word" * 20_000
    text = ""
    while len(text) < len(client.text()):  # what was not read is still there
        update = (await heard(here))["params"]["update"]
        text += update["content"]["text"] if update["sessionUpdate"] == "agent_message_chunk" else ""
    assert text == client.text()
    await here.close()
    async with asyncio.timeout(30):
        await serving
