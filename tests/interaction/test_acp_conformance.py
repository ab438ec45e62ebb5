"""`makai acp` does what the protocol's conformance kit asks of an agent: all its mandatory, capability and advisory
checks. Every frame of the agent is held to the official schema, without members that the schema does not have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.acp_peer import EVERYTHING, AcpPeer, acp_process, choosing, chosen_values, offered_values, text_of
from support.acp_schema import JSON
from support.acp_server import AcpHouse, acp_house

STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
SCENARIO = """
say: Let me write that down.
tool: write {"path": "note.txt", "content": "written"}
---
say: It is written.
---
tool: shell {"command": "cp note.txt copy.txt"}
---
say: It was copied.
---
tool: read {"path": "note.txt"}
---
say: It was read.
---
when: at length
pace: 5ms
repeat: 100000 word
---
when: hello
say: Good day.
"""
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[AcpHouse]:
    async with acp_house(tmp_path, SCENARIO) as made:
        yield made


@pytest.fixture
async def peer(house: AcpHouse) -> AsyncIterator[AcpPeer]:
    """A client that offers nothing, after initialize."""
    async with house.connect() as connected:
        await connected.initialize()
        yield connected


@pytest.fixture
async def session_id(peer: AcpPeer, project: Path) -> str:
    return str((await peer.new_session(project))["sessionId"])


# The transport, on the real process.


@pytest.mark.req("ACP-INIT-001")
async def test_every_line_of_the_process_is_one_message_in_utf_8_and_it_exits_after_its_input(
    tmp_path: Path, project: Path
) -> None:
    async with acp_process(tmp_path, "say: Grüße, 世界 🎉\u2028 done") as process:
        async with AcpPeer(process) as peer:
            await peer.initialize()
            session_id = (await peer.new_session(project))["sessionId"]
            result = await peer.prompt(session_id, "Hello 🎉")
            process.end_input()

            assert await process.ended() == 0
            await peer.until(lambda frame: frame.get("id") == "r3")
        assert result == {"stopReason": "end_turn"}
        assert text_of(peer.updates(session_id)) == "Grüße, 世界 🎉\u2028 done"
        assert peer.violations == []
        assert "Traceback" not in process.said()


# JSON-RPC.


@pytest.mark.req("ACP-INIT-001")
@pytest.mark.parametrize("request_id", [0, 1, -5, 2**53 - 1, "", "text", "0", "ünï"])
async def test_an_answer_repeats_the_id_of_its_request(house: AcpHouse, request_id: int | str) -> None:
    async with house.connect() as peer:
        await peer.ask("initialize", {"protocolVersion": 1}, request_id=request_id)
        answer = await peer.answer_to(request_id)

    assert (answer["id"], type(answer["id"])) == (request_id, type(request_id))
    assert answer.keys() == {"jsonrpc", "id", "result"}


@pytest.mark.req("ACP-INIT-001")
async def test_an_error_is_a_code_and_a_message_of_one_line(peer: AcpPeer) -> None:
    answers = [await peer.request("no/such"), await peer.request("session/prompt", {"sessionId": 1})]

    assert [(answer["jsonrpc"], answer["id"]) for answer in answers] == [("2.0", "r2"), ("2.0", "r3")]
    assert [answer.keys() for answer in answers] == [{"jsonrpc", "id", "error"}] * 2
    for answer in answers:
        assert isinstance(answer["error"]["code"], int)
        assert answer["error"]["message"].strip() != ""
        assert "\n" not in answer["error"]["message"]


@pytest.mark.req("ACP-EXT-002", "ACP-PROMPT-009")
async def test_notifications_are_never_answered(peer: AcpPeer, session_id: str) -> None:
    before = len([frame for frame in peer.frames if "method" not in frame])
    for method, params in (
        ("session/cancel", {"sessionId": session_id}),
        ("session/cancel", {"sessionId": "unknown"}),
        ("session/cancel", {}),
        ("no/such", {}),
        ("_vendor/said", {"any": 1}),
        ("$/cancel_request", {"requestId": "unknown"}),
        ("session/new", {"cwd": "/", "mcpServers": []}),
    ):
        await peer.notify(method, params)
    await peer.prompt(session_id, "hello")

    answers = [frame for frame in peer.frames if "method" not in frame]
    assert len(answers) == before + 1


@pytest.mark.req("ACP-INIT-002")
async def test_an_unknown_method_gets_method_not_found_and_the_connection_stays_usable(
    peer: AcpPeer, project: Path
) -> None:
    codes = [await peer.refused(method) for method in ("no/such", "session/invented", "fs/read_text_file")]

    assert codes == [-32601] * 3
    assert (await peer.new_session(project))["sessionId"] != ""


@pytest.mark.req("ACP-EXT-001")
async def test_an_unknown_extension_request_gets_an_answer(peer: AcpPeer) -> None:
    assert await peer.refused("_vendor/unknown", {"any": 1}) == -32601


METHODS: dict[str, JSON] = {
    "authenticate": {"methodId": "invented"},
    "session/new": {"cwd": "/", "mcpServers": []},
    "session/load": {"cwd": "/", "mcpServers": [], "sessionId": "SESSION"},
    "session/prompt": {"sessionId": "SESSION", "prompt": [{"type": "text", "text": "hello"}]},
    "session/set_mode": {"sessionId": "SESSION", "modeId": "plan"},
    "session/set_model": {"sessionId": "SESSION", "modelId": "invented"},
}


@pytest.mark.req("ACP-INIT-003")
async def test_every_method_of_the_agent_is_served(peer: AcpPeer, session_id: str, project: Path) -> None:
    codes = {}
    for method, params in METHODS.items():
        known = {"SESSION": session_id, "/": str(project)}
        answer = await peer.request(method, {name: known.get(str(value), value) for name, value in params.items()})
        codes[method] = answer.get("error", {}).get("code")
    assert codes == {
        "authenticate": -32602,  # a login that is not offered
        "session/new": None,
        "session/load": None,
        "session/prompt": None,
        "session/set_mode": None,
        "session/set_model": -32602,  # a model that is not offered
    }


# initialize.


@pytest.mark.req("ACP-INIT-004", "ACP-INIT-006")
async def test_initialize_answers_version_1_with_capabilities_and_a_name(house: AcpHouse) -> None:
    async with house.connect() as peer:
        result = await peer.initialize()

    capabilities = result["agentCapabilities"]
    assert result["protocolVersion"] == 1
    assert result["agentInfo"].keys() >= {"name", "version"}
    assert result["agentInfo"]["name"] == "makai"
    assert capabilities["loadSession"] is True
    assert capabilities["sessionCapabilities"].keys() >= {"list", "resume", "close", "delete"}


@pytest.mark.req("ACP-INIT-004")
@pytest.mark.parametrize("version", [0, 2, 65535])
async def test_a_version_that_is_not_supported_is_answered_with_version_1(house: AcpHouse, version: int) -> None:
    async with house.connect() as peer:
        newer = {"info": {"name": "future", "version": "9"}, "capabilities": {}}
        result = await peer.initialize(protocolVersion=version, **newer)

    assert result["protocolVersion"] == 1


async def test_the_ids_of_logins_are_unique_and_no_login_needs_a_terminal_unless_the_client_has_one(
    house: AcpHouse,
) -> None:
    async with house.connect() as bare, house.connect() as able:
        methods = (await bare.initialize()).get("authMethods", [])
        more = (await able.initialize(EVERYTHING)).get("authMethods", [])

    for offered in (methods, more):
        ids = [method["id"] for method in offered]
        assert len(ids) == len({*ids}) > 0
    assert [method for method in methods if method.get("type") == "terminal"] == []
    assert [method for method in more if method.get("type") == "terminal"] != []


# Sessions.


@pytest.mark.req("ACP-SESS-001", "ACP-SESS-011")
async def test_sessions_have_distinct_ids(peer: AcpPeer, project: Path) -> None:
    sessions = [(await peer.new_session(project))["sessionId"] for _ in range(3)]

    assert len({*sessions}) == 3
    assert all(isinstance(session_id, str) and session_id for session_id in sessions)


@pytest.mark.req("ACP-SESS-002")
@pytest.mark.parametrize("cwd", ["relative", ".", "", "~"])
async def test_a_folder_that_is_not_absolute_is_refused(peer: AcpPeer, cwd: str) -> None:
    assert await peer.refused("session/new", {"cwd": cwd, "mcpServers": []}) == -32602


async def test_no_update_of_a_session_comes_before_its_id(peer: AcpPeer, project: Path) -> None:
    request_id = await peer.ask("session/new", {"cwd": str(project), "mcpServers": []})
    answer = await peer.answer_to(request_id)
    await peer.prompt(answer["result"]["sessionId"], "hello")

    before = peer.frames[: peer.position_of(answer)]
    assert [frame for frame in before if frame.get("method") == "session/update"] == []


async def test_further_folders_are_taken_when_they_are_absolute(peer: AcpPeer, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()

    session = await peer.new_session(project, additionalDirectories=[str(other)])
    relative = {"cwd": str(project), "mcpServers": [], "additionalDirectories": ["other"]}

    assert session["sessionId"] != ""
    assert await peer.refused("session/new", relative) == -32602


# Prompts.


@pytest.mark.req("ACP-PROMPT-001", "ACP-PROMPT-006")
async def test_a_prompt_of_text_ends_with_a_stop_reason_after_updates_of_its_session(
    peer: AcpPeer, project: Path, session_id: str
) -> None:
    other = (await peer.new_session(project))["sessionId"]
    before = len(peer.frames)

    assert await peer.prompt(session_id, "hello") == {"stopReason": "end_turn"}

    of_turn = peer.frames[before:]
    assert of_turn[-1]["result"] == {"stopReason": "end_turn"}
    assert text_of(peer.updates(session_id, after=before)) == "Good day."
    assert [update["sessionUpdate"] for update in peer.updates(other, after=before) if "chunk" in str(update)] == []


@pytest.mark.req("ACP-PROMPT-002")
async def test_a_link_to_a_resource_is_taken_beside_text(peer: AcpPeer, session_id: str, project: Path) -> None:
    link = {"type": "resource_link", "uri": (project / "note.txt").as_uri(), "name": "note.txt"}

    assert (await peer.prompt(session_id, "hello", link))["stopReason"] in STOP_REASONS


@pytest.mark.req("ACP-PROMPT-003", "ACP-INIT-006")
@pytest.mark.parametrize(
    ("capability", "block"),
    [
        ("image", {"type": "image", "data": IMAGE, "mimeType": "image/png"}),
        ("audio", {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}),
        ("embeddedContext", {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "An attachment."}}),
        ("embeddedContext", {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAEC"}}),
    ],
)
async def test_richer_content_is_taken_exactly_when_it_is_offered(
    house: AcpHouse, project: Path, capability: str, block: JSON
) -> None:
    async with house.connect() as peer:
        offered = (await peer.initialize())["agentCapabilities"]["promptCapabilities"].get(capability, False)
        session_id = (await peer.new_session(project))["sessionId"]
        if offered:
            assert (await peer.prompt(session_id, "hello", block))["stopReason"] in STOP_REASONS
        else:
            assert await peer.refused("session/prompt", peer.prompt_params(session_id, "hello", block)) == -32602


@pytest.mark.req("ACP-INIT-008")
async def test_metadata_of_a_prompt_is_accepted(peer: AcpPeer, session_id: str) -> None:
    meta = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01", "any.example/x": [1, None]}

    assert await peer.prompt(session_id, "hello", _meta=meta) == {"stopReason": "end_turn"}


@pytest.mark.req("ACP-PROMPT-007", "ACP-PROMPT-008")
async def test_cancel_ends_the_prompt_as_cancelled_with_all_its_updates_before(peer: AcpPeer, session_id: str) -> None:
    request_id = await peer.ask("session/prompt", peer.prompt_params(session_id, "at length"))
    await peer.until_update("agent_message_chunk", session_id)
    await peer.notify("session/cancel", {"sessionId": session_id})
    answer = await peer.answer_to(request_id)
    position = peer.position_of(answer)

    assert answer["result"] == {"stopReason": "cancelled"}
    assert await peer.prompt(session_id, "hello") == {"stopReason": "end_turn"}
    late = [update for update in peer.updates(session_id, after=position + 1) if "word" in json.dumps(update)]
    assert late == []


# What the client did not offer is not asked of it.


@pytest.mark.req("ACP-FS-001", "ACP-TERM-001", "ACP-PERM-001", "ACP-INIT-003", "ACP-INIT-005", "ACP-SESS-002")
@pytest.mark.parametrize("declared", [{}, {"clientCapabilities": {}}, {"clientCapabilities": {"fs": {}}}])
async def test_a_client_without_files_terminals_and_forms_is_asked_for_permission_only(
    house: AcpHouse, project: Path, declared: JSON
) -> None:
    async with house.connect() as peer:
        await peer.call("initialize", {"protocolVersion": 1, **declared})
        await _asked_for_permission_only(peer, project)


async def _asked_for_permission_only(peer: AcpPeer, project: Path) -> None:
    session_id = (await peer.new_session(project))["sessionId"]
    peer.answers["session/request_permission"] = choosing("allow_once")

    for text in ("Write.", "Copy.", "Read."):
        assert await peer.prompt(session_id, text) == {"stopReason": "end_turn"}

    assert peer.called() == {"session/update", "session/request_permission"}
    assert [(project / name).read_text() for name in ("note.txt", "copy.txt")] == ["written", "written"]
    assert len([frame for frame in peer.frames if frame.get("method") == "session/request_permission"]) == 2
    statuses = {update["toolCallId"]: update.get("status") for update in peer.updates() if "toolCallId" in update}
    assert [*statuses.values()] == ["completed"] * 3


# Settings.


@pytest.mark.req("ACP-SESS-005", "ACP-SESS-006")
async def test_the_mode_is_one_of_those_offered_and_can_be_changed(peer: AcpPeer, project: Path) -> None:
    session = await peer.new_session(project)
    modes = session["modes"]
    ids = [mode["id"] for mode in modes["availableModes"]]
    other = next(each for each in ids if each != modes["currentModeId"])

    assert modes["currentModeId"] in ids
    assert len({*ids}) == len(ids)
    assert await peer.call("session/set_mode", {"sessionId": session["sessionId"], "modeId": other}) == {}
    params = {"sessionId": session["sessionId"], "modeId": "invented"}
    assert await peer.refused("session/set_mode", params) == -32602
    loaded = await peer.call("session/resume", {"sessionId": session["sessionId"], "cwd": str(project)})
    assert loaded["modes"]["currentModeId"] == other


async def test_options_have_values_that_they_offer_and_none_is_a_boolean_unless_the_client_takes_them(
    house: AcpHouse, project: Path
) -> None:
    async with house.connect() as bare, house.connect() as able:
        await bare.initialize()
        await able.initialize(EVERYTHING)
        options = (await bare.new_session(project))["configOptions"]
        more = (await able.new_session(project))["configOptions"]

    assert {option["type"] for option in options} == {"select"}
    for option in [*options, *more]:
        if option["type"] == "boolean":
            assert isinstance(option["currentValue"], bool)
        else:
            assert option["currentValue"] in [*offered_values(option)]
    assert {"mode", "model"} <= {option.get("category") for option in options}


async def test_a_changed_option_answers_with_all_options_and_the_new_value(peer: AcpPeer, project: Path) -> None:
    session = await peer.new_session(project)
    before = chosen_values(session["configOptions"])
    for option in session["configOptions"]:
        value = next(each for each in offered_values(option) if each != option["currentValue"])
        params = {"sessionId": session["sessionId"], "configId": option["id"], "value": value}
        after = chosen_values((await peer.call("session/set_config_option", params))["configOptions"])

        assert after.keys() == before.keys()
        assert after[option["id"]] == value
        undo = {**params, "value": option["currentValue"]}
        assert chosen_values((await peer.call("session/set_config_option", undo))["configOptions"]) == before


async def test_modes_and_the_option_of_category_mode_agree(peer: AcpPeer, project: Path) -> None:
    session = await peer.new_session(project)
    option = next(option for option in session["configOptions"] if option.get("category") == "mode")
    other = next(each for each in offered_values(option) if each != option["currentValue"])
    params = {"sessionId": session["sessionId"], "configId": option["id"], "value": other}
    await peer.call("session/set_config_option", params)
    resumed = await peer.call("session/resume", {"sessionId": session["sessionId"], "cwd": str(project)})

    assert option["currentValue"] == session["modes"]["currentModeId"]
    assert {*offered_values(option)} == {mode["id"] for mode in session["modes"]["availableModes"]}
    assert resumed["modes"]["currentModeId"] == other
    assert chosen_values(resumed["configOptions"])[option["id"]] == other


# Stored sessions.


@pytest.mark.req("ACP-SESS-008", "ACP-SESS-009")
async def test_load_replays_the_conversation_before_its_answer(
    house: AcpHouse, peer: AcpPeer, session_id: str, project: Path
) -> None:
    await peer.prompt(session_id, "hello")
    async with house.connect() as later:
        await later.initialize()
        request_id = await later.ask("session/load", {"sessionId": session_id, "cwd": str(project), "mcpServers": []})
        answer = await later.answer_to(request_id)
        replayed = later.updates(session_id)
        position = later.position_of(answer)
        assert await later.prompt(session_id, "hello") == {"stopReason": "end_turn"}

        assert isinstance(answer["result"], dict)
        assert "sessionId" not in answer["result"]
        assert (text_of(replayed, "user_message_chunk"), text_of(replayed)) == ("hello", "Good day.")
        assert later.updates(session_id, after=position)[:1] != replayed[:1]
        assert text_of(later.updates(session_id, after=position)) == "Good day."


async def test_resume_replays_nothing(house: AcpHouse, peer: AcpPeer, session_id: str, project: Path) -> None:
    await peer.prompt(session_id, "hello")
    async with house.connect() as later:
        await later.initialize()
        request_id = await later.ask("session/resume", {"sessionId": session_id, "cwd": str(project)})
        answer = await later.answer_to(request_id)
        before = later.frames[: later.position_of(answer)]
        assert await later.prompt(session_id, "hello") == {"stopReason": "end_turn"}

    assert isinstance(answer["result"], dict)
    assert [frame for frame in before if frame.get("method") == "session/update"] == []
    assert text_of(later.updates(session_id)) == "Good day."


async def test_the_list_has_the_sessions_of_a_folder_and_is_empty_for_an_unknown_one(
    peer: AcpPeer, session_id: str, project: Path, tmp_path: Path
) -> None:
    everything = await peer.call("session/list")
    here = await peer.call("session/list", {"cwd": str(project)})
    nowhere = await peer.call("session/list", {"cwd": str(tmp_path / "unused")})

    assert [each["sessionId"] for each in everything["sessions"]] == [session_id]
    assert [(each["sessionId"], each["cwd"]) for each in here["sessions"]] == [(session_id, str(project))]
    assert nowhere["sessions"] == []


async def test_a_session_is_deleted_once_and_deleting_it_again_succeeds(
    peer: AcpPeer, session_id: str, project: Path
) -> None:
    assert await peer.call("session/delete", {"sessionId": session_id}) == {}
    assert await peer.call("session/delete", {"sessionId": session_id}) == {}
    assert (await peer.call("session/list"))["sessions"] == []
    params = {"sessionId": session_id, "cwd": str(project), "mcpServers": []}
    assert await peer.refused("session/load", params) == -32002


async def test_close_ends_an_idle_session_and_cancels_a_running_prompt(
    peer: AcpPeer, session_id: str, project: Path
) -> None:
    busy = (await peer.new_session(project))["sessionId"]
    request_id = await peer.ask("session/prompt", peer.prompt_params(busy, "at length"))
    await peer.until_update("agent_message_chunk", busy)

    assert await peer.call("session/close", {"sessionId": session_id}) == {}
    assert await peer.call("session/close", {"sessionId": busy}) == {}
    assert (await peer.answer_to(request_id))["result"] == {"stopReason": "cancelled"}
    assert len((await peer.call("session/list"))["sessions"]) == 2


# Logins.


@pytest.mark.req("ACP-AUTH-002")
async def test_an_unknown_login_is_refused_and_the_offered_logout_succeeds(house: AcpHouse) -> None:
    async with house.connect() as peer:
        capabilities: dict[str, Any] = (await peer.initialize())["agentCapabilities"]

        assert await peer.refused("authenticate", {"methodId": "invented"}) == -32602
        assert capabilities["auth"] == {"logout": {}}
        assert await peer.call("logout") == {}
