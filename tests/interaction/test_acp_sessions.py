"""Sessions over ACP: opened, replayed, listed, changed and ended, and shared with clients of other protocols."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.acp_client import JSON, AcpClient, Place, RpcFailed, acp_place, connected
from support.live_sessions import SCENARIO_MODEL, Desk, desk, whole_log
from support.minicodex_client import BOTH
from support.serving import serving

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.server.acp_connection import AcpServer
from makai.sessions.commands import SetMode, SetTitle
from makai.sessions.requests import GetSession, GetState
from makai.sessions.service import Sessions

SCENARIO = """
say: Hello there.
usage: input=5 output=2
---
say: Hello again.
---
when: The user adds: keep the names
say: Ann and Bo said little.
---
when: Summarise the transcript
say: Little was said.
---
when: much
repeat: 2000 word
---
when: stall
say: Hel
stall
---
when: cut
say: Half a
cut
---
when: echo
echo
"""
ASKING = """
tool: write {"path": "a.txt", "content": "A"}
---
say: Done.
---
when: cut
say: Half a
cut
---
when: again
tool: write {"path": "b.txt", "content": "B"}
---
when: echo
echo
"""
ALLOW_ONCE = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with acp_place(tmp_path, SCENARIO) as made:
        yield made


@pytest.fixture
async def client(place: Place) -> AsyncIterator[AcpClient]:
    async with connected(place.server) as made:
        await made.initialize()
        yield made


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Place]:
    """A place whose model wants to write a file first."""
    async with acp_place(tmp_path, ASKING) as made:
        yield made


@pytest.fixture
async def editor(asking: Place) -> AsyncIterator[AcpClient]:
    async with connected(asking.server) as made:
        await made.initialize()
        yield made


def opening(session_id: str, place: Place, **fields: Any) -> JSON:
    return {"sessionId": session_id, "cwd": str(place.folder), "mcpServers": [], **fields}


async def failure(client: AcpClient, method: str, params: JSON) -> RpcFailed:
    with pytest.raises(RpcFailed) as caught:
        await client.ask(method, params)
    return caught.value


def without_commands(client: AcpClient, session_id: str) -> list[JSON]:
    ignored = ("available_commands_update", "usage_update")
    return [update for update in client.updates(session_id) if update["sessionUpdate"] not in ignored]


# Opening


@pytest.mark.req("ACP-SESS-001", "ACP-SESS-005")
async def test_a_new_session_says_what_can_be_chosen(client: AcpClient, place: Place) -> None:
    made = await client.ask("session/new", {"cwd": str(place.folder), "mcpServers": []})
    other = await client.new_session(place.folder)
    assert made["sessionId"] != other
    assert made["modes"]["currentModeId"] == "ask"
    assert [mode["id"] for mode in made["modes"]["availableModes"]] == ["ask", "accept_edits", "plan", "never_ask"]
    models = {model["modelId"] for model in made["models"]["availableModels"]}
    assert made["models"]["currentModelId"] in models
    current = {option["id"]: option["currentValue"] for option in made["configOptions"]}
    assert current == {"mode": "ask", "model": made["models"]["currentModelId"], "thought_level": "default"}


@pytest.mark.req("ACP-SESS-001", "ACP-SESS-002", "ACP-SESS-004")
@pytest.mark.parametrize(
    "params",
    [
        {"cwd": "work", "mcpServers": []},
        {"cwd": "", "mcpServers": []},
        {"mcpServers": []},
        {"cwd": "/"},
        {"cwd": "/nowhere/at/all", "mcpServers": []},
        {"cwd": f"/{'x' * 256}", "mcpServers": []},
        {"cwd": f"/{'x/' * 4_000}", "mcpServers": []},
        {"cwd": "/", "mcpServers": [], "additionalDirectories": [f"/{'x' * 256}"]},
        {"cwd": "/", "mcpServers": [], "additionalDirectories": ["work"]},
        {"cwd": "/", "mcpServers": [{"name": "x", "type": "smoke-signals"}]},
        {"cwd": "/", "mcpServers": [{"name": "x", "command": "true"}]},
        {"cwd": "/", "mcpServers": [{"name": "x", "command": "true", "args": [], "env": []}] * 2},
    ],
)
async def test_a_session_that_cannot_work_is_refused(client: AcpClient, params: JSON) -> None:
    error = await failure(client, "session/new", params)
    assert error.code == -32602


@pytest.mark.req("ACP-SESS-002")
async def test_folders_become_roots(client: AcpClient, place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    session_id = await client.new_session(place.folder, additionalDirectories=[str(other)])
    state = await place.sessions.dispatch(GetState(session_id))
    assert (state.cwd, state.roots) == (str(place.folder), (str(place.folder), str(other)))
    assert state.terms.builtin_tools
    await client.ask("session/load", opening(session_id, place, additionalDirectories=[str(other)]))
    assert (await failure(client, "session/load", opening(session_id, place, cwd="/"))).code == -32602
    added = opening(session_id, place, additionalDirectories=["/"])
    assert (await failure(client, "session/load", added)).code == -32602


@pytest.mark.req("ACP-SESS-003", "ACP-SESS-004", "ACP-INIT-006")
async def test_values_of_mcp_servers_do_not_enter_the_log(client: AcpClient, place: Place) -> None:
    assert client.frames[0]["result"]["agentCapabilities"]["mcpCapabilities"] == {"http": True, "sse": True}
    servers: list[JSON] = [
        {"name": "one", "command": "/bin/true", "args": ["-x"], "env": [{"name": "KEY", "value": "s3cret-1"}]},
        {"type": "http", "name": "two", "url": "http://127.0.0.1:9/", "headers": [{"name": "A", "value": "s3cret-2"}]},
        {"type": "sse", "name": "three", "url": "http://127.0.0.1:9/sse", "headers": []},
    ]
    session_id = await client.new_session(place.folder, servers)
    terms = (await place.sessions.dispatch(GetState(session_id))).terms
    assert terms.mcp_servers == (
        ev.McpServer(name="one", command="/bin/true", args=("-x",), env_names=("KEY",)),
        ev.McpServer(name="two", transport="http", url="http://127.0.0.1:9/", header_names=("A",)),
        ev.McpServer(name="three", transport="sse", url="http://127.0.0.1:9/sse"),
    )
    assert "s3cret" not in repr(await whole_log(place.sessions, session_id))


@pytest.mark.req("ACP-AUTH-003")
async def test_a_session_without_a_login_is_refused_with_the_ways_to_log_in(tmp_path: Path) -> None:
    async with acp_place(tmp_path, SCENARIO, model="openai/gpt-5") as place, connected(place.server) as client:
        await client.initialize()
        error = await failure(client, "session/new", {"cwd": str(place.folder), "mcpServers": []})
        assert (error.code, error.data) == (-32000, {"code": "auth_required", "authMethods": []})


async def test_a_home_that_cannot_be_used_is_no_fault_of_the_parameters(place: Place) -> None:
    async def refused() -> Sessions:
        raise InvalidRequest("/home/me is open to other users.", hint="Make it yours alone, with mode 700.")

    async with connected(AcpServer(refused, place.server.backend, model=SCENARIO_MODEL)) as client:
        await client.initialize()
        error = await failure(client, "session/new", {"cwd": str(place.folder), "mcpServers": []})
    assert (error.code, error.data) == (-32603, {"code": "storage_unavailable"})
    assert error.message == "/home/me is open to other users. Make it yours alone, with mode 700."


# Replay


@pytest.mark.req("ACP-SESS-008", "ACP-SESS-009", "ACP-INIT-006")
async def test_a_loaded_session_is_replayed_before_the_answer_and_continues(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    await client.run(session_id, "hi")
    async with connected(place.server) as other:
        await other.initialize()
        answer = await other.ask("session/load", opening(session_id, place))
        assert answer.keys() == {"modes", "models", "configOptions"}
        assert (answer["modes"]["currentModeId"], answer["models"]["currentModelId"]) == (
            "ask",
            "scripted/scripted@scenario",
        )
        before = other.frames[1 : other.frames.index({"jsonrpc": "2.0", "id": 2, "result": answer})]
        said = [frame["params"]["update"] for frame in before]
        assert [(one["sessionUpdate"], one["content"]["text"]) for one in said if "content" in one] == [
            ("user_message_chunk", "hi"),
            ("agent_message_chunk", "Hello there."),
        ]
        assert await other.run(session_id, "and") == "end_turn"
        assert other.text() == "Hello there.Hello again."


@pytest.mark.req("ACP-SESS-009")
async def test_any_session_of_the_log_can_be_loaded(editor: AcpClient, asking: Place) -> None:
    made = await desk(asking.sessions, cwd=asking.folder, mode="never_ask")
    await made.run("go")
    await made.send("cut")
    await made.until_settled()
    await editor.ask("session/load", opening(made.session_id, asking))
    updates = without_commands(editor, made.session_id)
    said = [update["content"]["text"] for update in updates if update["sessionUpdate"] == "user_message_chunk"]
    assert said == ["go", "cut"]
    assert "Half a" in editor.text()  # words of an answer that broke off are in no other event
    (call,) = editor.updates(made.session_id, "tool_call")
    ends = [update for update in editor.updates(made.session_id, "tool_call_update") if "status" in update]
    assert {update["toolCallId"] for update in ends} == {call["toolCallId"]}
    assert ends[-1]["status"] == "completed"


async def test_what_was_seen_live_is_what_is_replayed(editor: AcpClient, asking: Place) -> None:
    session_id = await editor.new_session(asking.folder)
    editor.answers["session/request_permission"] = lambda question: ALLOW_ONCE
    for text in ("hi", "go", "echo this"):
        await editor.run(session_id, text)
    async with connected(asking.server) as other:
        await other.initialize()
        await other.ask("session/load", opening(session_id, asking))
        assert other.text() == editor.text()
        assert other.updates(session_id, "tool_call") == editor.updates(session_id, "tool_call")


async def test_a_resumed_session_is_not_replayed(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    await client.run(session_id, "hi")
    async with connected(place.server) as other:
        await other.initialize()
        await other.ask("session/resume", {"sessionId": session_id, "cwd": str(place.folder)})
        assert await other.run(session_id, "and") == "end_turn"
        assert other.text() == "Hello again."
        assert other.text(kind="user_message_chunk") == ""


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_run_and_its_question_are_continued_by_another_connection(
    editor: AcpClient, asking: Place, method: str
) -> None:
    session_id = await editor.new_session(asking.folder)
    prompt = editor.prompt(session_id, "go")
    question = await editor.until_asked("session/request_permission")
    async with connected(asking.server) as other:
        await other.initialize()
        await other.ask(method, opening(session_id, asking))
        again = await other.until_asked("session/request_permission")
        assert again["params"] == question["params"]
        assert [update["toolCallId"] for update in other.updates(session_id, "tool_call")] == [
            question["params"]["toolCall"]["toolCallId"]
        ]
        await other.answer(again, ALLOW_ONCE)
        assert await prompt == {"stopReason": "end_turn"}
        assert editor.notifications("$/cancel_request") == [{"requestId": question["id"]}]
        ended = [{"status": "completed"} for one in other.updates(session_id) if one.get("status") == "completed"]
        assert ended == [{"status": "completed"}]


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_the_text_of_a_turn_that_is_joined_is_whole(client: AcpClient, place: Place, method: str) -> None:
    session_id = await client.new_session(place.folder)
    prompt = client.prompt(session_id, "stall")
    await client.until_update("agent_message_chunk")
    async with connected(place.server) as other:
        await other.initialize()
        await other.ask(method, opening(session_id, place))
        await client.notify("session/cancel", {"sessionId": session_id})
        await prompt
        await client.run(session_id, "echo end")
        await other.until(lambda: "end" in other.text())
        assert other.text() == ("Helecho end" if method == "session/load" else "echo end")


@pytest.mark.parametrize("methods", [("session/load", "session/load"), ("session/load", "session/resume")])
async def test_a_session_that_is_opened_twice_at_once_is_followed_once(
    editor: AcpClient, asking: Place, methods: tuple[str, str]
) -> None:
    session_id = await editor.new_session(asking.folder)
    async with connected(asking.server) as other:
        await other.initialize()
        await asyncio.gather(*(other.begin(method, opening(session_id, asking)) for method in methods))
        prompt = other.prompt(session_id, "go")
        await other.answer(await other.until_asked("session/request_permission"), ALLOW_ONCE)
        assert await prompt == {"stopReason": "end_turn"}
        assert await other.run(session_id, "echo once") == "end_turn"
        asked = [frame for frame in other.frames if frame.get("method") == "session/request_permission"]
        assert (other.text(), len(asked)) == ("Done.echo once", 1)


async def test_requests_about_a_session_keep_their_order_behind_one_that_opens_it(
    client: AcpClient, place: Place
) -> None:
    session_id = await client.new_session(place.folder)
    named = {"sessionId": session_id}
    for _ in range(2):  # it is open, then it is not
        opened = client.begin("session/load", opening(session_id, place))
        prompt = client.prompt(session_id, "stall")
        await asyncio.sleep(0)  # both are sent before the notification
        await client.notify("session/cancel", named)
        changed = client.begin("session/set_mode", {**named, "modeId": "plan"})
        closed = client.begin("session/close", named)
        assert (await opened)["modes"]["currentModeId"] in ("ask", "plan")
        assert [await prompt, await changed, await closed] == [{"stopReason": "cancelled"}, {}, {}]
        assert (await failure(client, "session/set_mode", {**named, "modeId": "ask"})).code == -32002
    deleted = client.begin("session/load", opening(session_id, place)), client.begin("session/delete", named)
    await asyncio.gather(*deleted)
    assert (await failure(client, "session/prompt", {**named, "prompt": []})).code == -32002


@pytest.mark.req("ACP-PROMPT-009", "ACP-PROMPT-010")
async def test_a_prompt_directly_behind_a_cancel_waits_for_the_cancelled_one(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    stalled = client.prompt(session_id, "stall")
    await client.until_update("agent_message_chunk")
    await client.notify("session/cancel", {"sessionId": session_id})
    second = client.prompt(session_id, "echo second")
    await asyncio.sleep(0)  # it is sent before the third
    third = {"sessionId": session_id, "prompt": [{"type": "text", "text": "third"}]}
    assert (await failure(client, "session/prompt", third)).data == {"code": "BUSY"}
    assert [await stalled, await second] == [{"stopReason": "cancelled"}, {"stopReason": "end_turn"}]
    assert client.text() == "Helecho second"


@pytest.mark.req("ACP-PROMPT-009")
@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_prompt_that_waits_for_a_cancelled_one_can_be_cancelled_and_closed(
    client: AcpClient, place: Place, is_closed: bool
) -> None:
    session_id = await client.new_session(place.folder)
    stalled = client.prompt(session_id, "stall")
    await client.until_update("agent_message_chunk")
    await client.notify("session/cancel", {"sessionId": session_id})
    second = client.prompt(session_id, "echo second")
    await asyncio.sleep(0)  # it is sent before what follows
    if is_closed:
        await client.ask("session/close", {"sessionId": session_id})
    else:
        await client.notify("session/cancel", {"sessionId": session_id})
    assert [await stalled, await second] == [{"stopReason": "cancelled"}] * 2
    inputs = [logged.event for logged in await whole_log(place.sessions, session_id)]
    assert [event.content for event in inputs if isinstance(event, ev.UserInput)] == ["stall"]


# Listing and ending


async def test_sessions_are_listed_by_folder(client: AcpClient, place: Place, tmp_path: Path) -> None:
    one, other = await client.new_session(place.folder), await client.new_session(tmp_path)
    await Desk(place.sessions, one).do(SetTitle(now=0, title="A title"))
    listed = (await client.ask("session/list", {}))["sessions"]
    assert [session["sessionId"] for session in listed] == [one, other]
    (found,) = (await client.ask("session/list", {"cwd": str(place.folder)}))["sessions"]
    assert (found["cwd"], found["title"]) == (str(place.folder), "A title")
    assert found["updatedAt"].endswith("+00:00")
    assert await client.ask("session/list", {"cwd": "/nowhere"}) == {"sessions": []}
    for bad in ({"cwd": "work"}, {"cursor": "x"}, {"cursor": "-1"}):
        assert (await failure(client, "session/list", bad)).code == -32602


async def test_a_long_list_has_pages(client: AcpClient, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.server.acp_requests.PAGE", 2)
    made = [await client.new_session(place.folder) for _ in range(5)]
    found: list[str] = []
    cursor: JSON = {}
    while True:
        page = await client.ask("session/list", cursor)
        found += [session["sessionId"] for session in page["sessions"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert sorted(found) == sorted(made)


async def test_a_closed_session_is_cancelled_and_stays_in_the_log(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    prompt = client.prompt(session_id, "stall")
    await client.until_update("agent_message_chunk")
    assert await client.ask("session/close", {"sessionId": session_id}) == {}
    assert await prompt == {"stopReason": "cancelled"}
    error = await failure(client, "session/set_mode", {"sessionId": session_id, "modeId": "plan"})
    assert error.code == -32002
    assert await place.sessions.dispatch(GetSession(session_id)) is not None
    await client.ask("session/load", opening(session_id, place))
    assert await client.run(session_id, "echo hi") == "end_turn"


async def test_a_session_can_be_deleted_twice(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    for _ in range(2):
        assert await client.ask("session/delete", {"sessionId": session_id}) == {}
    assert await place.sessions.dispatch(GetSession(session_id)) is None
    assert (await failure(client, "session/load", opening(session_id, place))).code == -32002


# Settings


@pytest.mark.req("ACP-SESS-006", "ACP-SESS-007", "ACP-UPD-011")
async def test_settings_change_in_all_their_forms(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    assert await client.ask("session/set_mode", {"sessionId": session_id, "modeId": "plan"}) == {}
    assert (await client.until_update("current_mode_update"))["currentModeId"] == "plan"
    (changed,) = client.updates(session_id, "config_option_update")
    assert [option["currentValue"] for option in changed["configOptions"] if option["id"] == "mode"] == ["plan"]
    wanted = {"sessionId": session_id, "configId": "model", "value": "scripted/scripted@echo"}
    complete = await client.ask("session/set_config_option", wanted)
    current = {option["id"]: option["currentValue"] for option in complete["configOptions"]}
    assert current == {"mode": "plan", "model": "scripted/scripted@echo", "thought_level": "default"}
    await client.run(session_id, "as I say")
    assert client.text() == "as I say"
    assert (
        await client.ask("session/set_model", {"sessionId": session_id, "modelId": "scripted/scripted@scenario"}) == {}
    )
    state = await place.sessions.dispatch(GetState(session_id))
    assert (state.mode, state.model_ref) == ("plan", "scripted/scripted@scenario")
    await client.run(session_id, "and now")
    assert client.text() == "as I sayHello again."


@pytest.mark.req("ACP-SESS-006")
@pytest.mark.parametrize(("mode", "is_written"), [("never_ask", True), ("plan", False)])
async def test_a_mode_holds_for_later_prompts(editor: AcpClient, asking: Place, mode: str, is_written: bool) -> None:
    session_id = await editor.new_session(asking.folder)
    assert await editor.ask("session/set_mode", {"sessionId": session_id, "modeId": mode}) == {}
    assert await editor.run(session_id, "go") == "end_turn"
    asked = [frame for frame in editor.frames if frame.get("method") == "session/request_permission"]
    assert (asked, (asking.folder / "a.txt").exists()) == ([], is_written)


@pytest.mark.req("ACP-SESS-006", "ACP-SESS-007")
async def test_unknown_settings_change_nothing(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    before = await place.sessions.dispatch(GetState(session_id))
    named = {"sessionId": session_id}
    for method, params in (
        ("session/set_mode", {"modeId": "yolo"}),
        ("session/set_model", {"modelId": "no/model"}),
        ("session/set_config_option", {"configId": "mode", "value": "yolo"}),
        ("session/set_config_option", {"configId": "colour", "value": "red"}),
        ("session/set_config_option", {"configId": "mode", "value": True, "type": "boolean"}),
    ):
        assert (await failure(client, method, named | params)).code == -32602
    assert await place.sessions.dispatch(GetState(session_id)) == before


@pytest.mark.req("ACP-UPD-011")
async def test_changes_of_other_clients_are_announced(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    await Desk(place.sessions, session_id).do(SetMode(now=0, mode="accept_edits"))
    assert (await client.until_update("current_mode_update"))["currentModeId"] == "accept_edits"
    await client.until_update("config_option_update")


@pytest.mark.req("ACP-UPD-010")
async def test_commands_are_offered_and_carried_out(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    offered = await client.until_update("available_commands_update")
    assert [command["name"] for command in offered["availableCommands"]] == ["compact", "undo", "redo", "diff"]
    await client.run(session_id, "much")
    assert await client.run(session_id, "/compact keep the names") == "end_turn"
    log = await whole_log(place.sessions, session_id)
    (compacted,) = [logged.event for logged in log if isinstance(logged.event, ev.Compacted)]
    assert "Ann and Bo said little." in compacted.summary


@pytest.mark.req("ACP-UPD-010")
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_command_is_carried_out_although_something_is_attached(
    client: AcpClient, place: Place, is_first: bool
) -> None:
    session_id = await client.new_session(place.folder)
    await client.run(session_id, "much")
    attached = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}
    for text in ("/compact keep the names", "/diff"):
        blocks = [{"type": "text", "text": text}, attached]
        params = {"sessionId": session_id, "prompt": blocks[:: 1 if is_first else -1]}
        assert await client.ask("session/prompt", params) == {"stopReason": "end_turn"}
    log = await whole_log(place.sessions, session_id)
    assert [logged.event.content for logged in log if isinstance(logged.event, ev.UserInput)] == ["much"]
    assert len([logged for logged in log if isinstance(logged.event, ev.Compacted)]) == 1


# Shared with others


async def test_runs_of_other_clients_are_shown_between_prompts(client: AcpClient, place: Place) -> None:
    session_id = await client.new_session(place.folder)
    terminal = Desk(place.sessions, session_id)
    await terminal.run("echo from the terminal")
    await client.until(lambda: client.text() == "echo from the terminal")
    assert client.text(kind="user_message_chunk") == "echo from the terminal"
    await terminal.send("stall")
    error = await failure(
        client, "session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": "me too"}]}
    )
    assert (error.code, error.data) == (-32600, {"code": "BUSY"})
    await client.notify("session/cancel", {"sessionId": session_id})  # of no prompt: the other's run continues
    await client.ask("session/list", {})
    state = await place.sessions.dispatch(GetState(session_id))
    assert state.active_run is not None
    assert state.active_run.status != "aborting"


async def test_one_session_in_an_editor_a_browser_and_a_terminal(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with contextlib.AsyncExitStack() as stack:
        site = await stack.enter_async_context(serving(tmp_path, ASKING))

        async def sessions() -> Sessions:
            return site.sessions

        server = AcpServer(sessions, site.makai.backend, model=SCENARIO_MODEL)
        editor = await stack.enter_async_context(connected(server))
        await editor.initialize()
        session_id = await editor.new_session(work)
        browser = await site.client(session_id, *BOTH)
        terminal = Desk(site.sessions, session_id)
        prompt = editor.prompt(session_id, "go")
        question = await editor.until_asked("session/request_permission")
        asked = (await browser.until("approval_pending"))[-1]
        call_id = (await terminal.until_asked()).call_id
        assert question["params"]["toolCall"]["toolCallId"] == call_id == asked["call_id"]
        assert await browser.ask("approve", call_id=call_id) == "accepted"
        assert await prompt == {"stopReason": "end_turn"}
        assert editor.notifications("$/cancel_request") == [{"requestId": question["id"]}]
        await browser.until_over()
        await terminal.until_settled()
        assert (work / "a.txt").read_text() == "A"
        await browser.ask("send", text="echo from the browser")
        await editor.until(lambda: editor.text().endswith("echo from the browser"))
        editor.asked.clear()
        stopped = editor.prompt(session_id, "again")
        again = await editor.until_asked("session/request_permission")
        await editor.answer(again, {"outcome": {"outcome": "cancelled"}})
        assert await stopped == {"stopReason": "cancelled"}
        await browser.until_over()
        await browser.close()


async def test_a_deleted_session_ends_its_prompt(client: AcpClient, place: Place) -> None:
    from makai.sessions.requests import DeleteSession

    session_id = await client.new_session(place.folder)
    prompt = client.prompt(session_id, "stall")
    await client.until_update("agent_message_chunk")
    async with asyncio.timeout(30):
        await place.sessions.dispatch(DeleteSession(session_id))
        assert await prompt == {"stopReason": "cancelled"}
