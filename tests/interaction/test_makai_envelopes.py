"""What holds for every envelope alike, over all five transports: numbers, refusals, keys from the future, sizes."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.agents import LOOK, REF, AgentPeer, types_of, words
from support.peers import TRANSPORTS, Peer, open_peer
from support.upstream import answers, upstream
from support.wire import JSON, ask, encode, envelope, new_id

from makai.core.errors import TransportError
from makai.transports.channel import MAX_FRAME_BYTES

ECHO = "scripted/scripted@echo"
SCENARIO = """
say: Hello there.
---
when: wait
say: Hel
stall
---
when: look
tool: look {"at": "sea"}
---
when: fail
say: Hel
fail: rate_limited Slow down.
"""
UNKNOWN = {"future": {"deep": [1, None]}, "x": True}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def peer(transport: str, tmp_path: Path) -> AsyncIterator[Peer]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(SCENARIO)
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home"), "MAKAI_TEST_LOGIN": "1"}
    async with open_peer(transport, environ) as opened:
        yield opened


def scope_of(frame: JSON) -> str:
    return str(frame.get("stream_id") or frame["session_id"])


def requests_of_every_type(more: JSON) -> list[list[JSON]]:
    """Per scope what a client sends, each with these keys added to the envelope and its payload; the last answer to
    each scope is in `TERMINALS`."""

    def made(kind: str, payload: JSON | None = None, **fields: Any) -> JSON:
        return envelope(kind, {**(payload or {}), **more}, **fields, **more)

    context = {"messages": [{"role": "user", "content": "Hi", **more}], "tools": [], **more}
    asked = {"model_ref": ECHO, "context": context, "options": {"temperature": 0.5, **more}}
    tool = {"name": "look", "description": "", "parameters_schema_json": "{}", **more}
    session: Any = {"stream_id": None, "session_id": new_id()}
    flow: Any = {"stream_id": new_id()}
    flow_id = {"flow_id": flow["stream_id"]}
    return [
        [made("stream_request", asked)],
        [made("stream_request", asked, encoding="proxy")],
        [made("complete_request", asked)],
        [made("models_request", {"provider_id": "scripted"})],
        [made("models_request", {"provider_id": "scripted"}, stream_id=None, session_id=new_id())],
        [made("auth_providers_request")],
        [made("ping")],
        [
            made("auth_login_start", {"provider_id": "test-fixture"}, **flow),
            made("auth_prompt_response", {**flow_id, "prompt_id": "none", "answer": "x"}, **flow, sequence=2),
            made("auth_cancel", flow_id, **flow, sequence=3),
        ],
        [
            made("agent_start", {"model_ref": REF, "tools": [tool], "options": more}, **session),
            made("agent_status", **session, sequence=2),
            made("tool_list", {"prefix": "l"}, **session, sequence=3),
            made("agent_message", {**words("Hi"), "options": more}, **session, sequence=4),
        ],
    ]


TERMINALS = frozenset({"result", "models_response", "auth_providers_response", "pong", "auth_login_result"})


async def answered(peer: Peer, scopes: list[list[JSON]]) -> dict[str, list[JSON]]:
    """Send everything at once, interleaved; per scope what came back."""
    rounds = max(map(len, scopes))
    await peer.say(*(scope[number] for number in range(rounds) for scope in scopes if number < len(scope)))
    heard: dict[str, list[JSON]] = {scope_of(scope[0]): [] for scope in scopes}
    ended = 0
    while ended < len(scopes):
        frame = await peer.hear()
        heard[scope_of(frame)].append(frame)
        assert frame["type"] not in ("nack", "error", "agent_error", "stream_error"), frame
        ended += frame["type"] in {*TERMINALS, "agent_result"}
    return heard


@pytest.mark.req("MK-ENV-001", "MK-ENV-002", "MK-ENV-003", "MK-ENV-004")
async def test_every_envelope_has_its_keys_one_scope_and_an_id_of_its_own(peer: Peer) -> None:
    scopes = requests_of_every_type({})
    asked = {request["message_id"] for scope in scopes for request in scope}
    before = time.time_ns() // 1_000_000
    frames = [frame for heard in (await answered(peer, scopes)).values() for frame in heard]
    after = time.time_ns() // 1_000_000
    for frame in frames:
        assert len({"stream_id", "session_id", "server_id"} & frame.keys()) == 1
        assert {"type", "message_id", "sequence", "timestamp", "version", "payload"} <= frame.keys()
        assert (type(frame["version"]), frame["version"]) == (int, 1)
        assert isinstance(frame["payload"], dict)
        assert type(frame["timestamp"]) is int
        assert before <= frame["timestamp"] <= after
        assert str(uuid.UUID(frame["message_id"])) == frame["message_id"]
        assert None not in frame.values()
        if frame["type"] in DIRECT_REPLIES:
            assert frame["in_reply_to"] in asked
        if frame["type"] in ("start", "text_delta", "auth_event", "agent_event"):
            assert "in_reply_to" not in frame
    assert len({frame["message_id"] for frame in frames}) == len(frames)


DIRECT_REPLIES = ("ack", "pong", "models_response", "auth_providers_response")


@pytest.mark.req("MK-AGENT-002")
async def test_no_field_of_an_agents_envelope_hides_json_in_a_string(peer: Peer) -> None:
    client = AgentPeer(peer)
    await client.start(tools=[LOOK], system_prompt="Be brief.", options={"max_turns": 1})
    await client.say("agent_message", words("look"))
    await client.execute("Rain.", details_json='{"ms":3}')
    await client.hear_until("agent_result")
    await client.ask("agent_status", {}, "session_info")
    await client.ask("tool_list", {}, "tool_list_response")
    await client.ask("agent_stop", {}, "agent_stopped")
    hidden = {name for frame in client.heard for name, text in strings(frame) if is_json(text)}
    assert hidden == {"arguments_json", "parameters_schema_json"}


def strings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every string in a value with the name of the field that holds it."""
    match value:
        case str():
            yield name, value
        case dict():
            for key, each in value.items():
                yield from strings(each, key)
        case list():
            for each in value:
                yield from strings(each, name)


def is_json(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict | list)
    except msgspec.DecodeError:
        return False


@pytest.mark.req("MK-PROV-002")
@pytest.mark.parametrize("kind", ["stream_request", "complete_request"])
async def test_a_model_that_is_not_named_or_not_known_is_refused(peer: Peer, kind: str) -> None:
    for ref in (None, "garbage", "a/b", "/x@y", "scripted/scripted@%zz", "scripted/scripted@none", "none/x@y"):
        payload = {"context": words("Hi")} | ({} if ref is None else {"model_ref": ref})
        (nack,) = await peer.ask(ask(kind, payload=payload))
        assert (nack["type"], nack["payload"]["error_code"]) == ("nack", "invalid_request"), ref
        if ref in ("scripted/scripted@none", "none/x@y"):
            assert "model not found" in nack["payload"]["reason"]


@pytest.mark.req("MK-PROV-003", "MK-PROV-014")
@pytest.mark.parametrize("encoding", ["full", "proxy"])
async def test_a_failure_is_the_one_terminal_of_a_stream_and_of_a_whole_answer(peer: Peer, encoding: str) -> None:
    failing = {"model_ref": REF, "context": words("fail")}
    frames = await peer.ask(ask(payload=failing, encoding=encoding))
    assert [frame["type"] for frame in frames if not frame["type"].startswith("text")] == [
        *("ack", "start", "error", "stream_error")
    ]
    frames = await peer.ask(ask("complete_request", payload=failing, encoding=encoding))
    assert [frame["type"] for frame in frames] == ["ack", "stream_error"]
    frames = await peer.ask(ask(encoding=encoding))
    assert {frame["stream_id"] for frame in frames} == {frames[0]["stream_id"]}, "nothing of the others follows"
    assert [frame["type"] for frame in frames].count("result") == 1


@pytest.mark.req("MK-TOOL-001")
@pytest.mark.parametrize("kind", ["stream_request", "complete_request"])
async def test_a_schema_that_is_no_json_is_refused_on_the_provider_path_too(peer: Peer, kind: str) -> None:
    for schema in ("{", "", "nonsense"):
        payload = {"model_ref": ECHO, "context": {**words("Hi"), "tools": [{**LOOK, "parameters_schema_json": schema}]}}
        frames = await peer.ask(ask(kind, payload=payload))
        assert (frames[-1]["type"], frames[-1]["payload"].get("error_code")) == ("nack", "invalid_request")


@pytest.mark.req("MK-ENV-005", "MK-ENV-012")
async def test_every_scope_counts_its_own_envelopes_from_one_without_a_gap(peer: Peer) -> None:
    scopes = requests_of_every_type({})
    heard = await answered(peer, scopes)
    for scope in scopes:
        frames = heard[scope_of(scope[0])]
        assert [frame["sequence"] for frame in frames] == list(range(1, len(frames) + 1)), scope[0]["type"]
        acked = [frame["payload"]["acknowledged_id"] for frame in frames if frame["type"] == "ack"]
        assert acked == [each["message_id"] for each in scope if each["type"] != "ping"]
        assert frames[0]["type"] in ("ack", "pong")
    listing = heard[scope_of(scopes[3][0])]
    assert [(frame["type"], frame["sequence"]) for frame in listing] == [("ack", 1), ("models_response", 2)]


@pytest.mark.req("MK-ENV-009")
async def test_keys_that_are_not_known_change_nothing_in_any_request(peer: Peer) -> None:
    plain, extended = requests_of_every_type({}), requests_of_every_type(UNKNOWN)
    heard = await answered(peer, plain) | await answered(peer, extended)
    for one, other in zip(plain, extended, strict=True):
        usual, same = (outline(heard[scope_of(scope[0])]) for scope in (one, other))
        assert usual == same


def outline(frames: list[JSON]) -> list[str]:
    """The types of what was heard; a prompt may come before its cancellation or not, and words in any pieces."""
    return list(dict.fromkeys(kind for kind in types_of(frames) if kind not in ("auth_event", "text_delta")))


REFUSED: list[tuple[JSON, str, set[str]]] = [
    (ask(payload={"context": {"messages": []}}), "invalid_request", set()),
    (ask("dance_request"), "not_implemented", set()),
    (ask(version=2), "version_mismatch", {"supported_versions"}),
    (ask(sequence=0), "invalid_sequence", set()),
    (ask(sequence=7), "sequence_gap", set()),
    (ask(payload={"model_ref": "scripted/scripted@none", "context": words("Hi")}), "invalid_request", {"hint"}),
    (ask(payload={"model_ref": "groq/openai-completions@x", "context": words("Hi")}), "auth_required", {"provider_id"}),
    (envelope("abort_request", {"target_stream_id": new_id()}), "stream_not_found", set()),
    (envelope("models_request", {"model_id": "no-such-model"}), "invalid_request", set()),
    (envelope("agent_status", stream_id=None, session_id=new_id()), "session_not_found", set()),
    (envelope("agent_message", words("Hi"), stream_id=None, session_id=new_id()), "session_not_found", set()),
    (envelope("agent_start", {"model_ref": 7}, stream_id=None, session_id=new_id()), "invalid_request", set()),
    (envelope("tool_execute", stream_id=None, server_id=new_id()), "not_implemented", set()),
]


@pytest.mark.req("MK-ENV-011", "MK-ENV-013")
async def test_a_refused_request_gets_one_nack_with_the_keys_that_apply_and_nothing_later(peer: Peer) -> None:
    for refused, code, more in REFUSED:
        request = {**refused, "message_id": new_id()}
        (nack,) = await peer.ask(request, "nack")
        payload = nack["payload"]
        assert (nack["in_reply_to"], payload["rejected_id"]) == (request["message_id"], request["message_id"])
        assert payload["error_code"] == code
        assert {*payload} - {"hint"} == {"rejected_id", "reason", "error_code"} | (more - {"hint"}), code
        assert payload["reason"]
        assert payload.get("supported_versions", ["1"]) == ["1"]
        assert None not in payload.values()
    # Whatever a refused request still caused would come before this.
    frames = await peer.ask(ask(), "result")
    assert {frame["stream_id"] for frame in frames} == {frames[0]["stream_id"]}
    assert frames[0]["type"] == "ack"


@pytest.mark.req("MK-ENV-013")
async def test_a_busy_session_answers_with_one_error_and_the_message_is_not_run_later(peer: Peer) -> None:
    client = AgentPeer(peer)
    await client.start()
    await client.say("agent_message", words("wait"))
    while "text_delta" not in types_of(await client.hear_until("agent_event")):
        pass
    before = len(client.heard)
    refused = await client.say("agent_message", words("Hi"))
    await client.hear_until("agent_error")
    await client.ask("agent_stop", {}, "agent_stopped")
    client.sent = 0
    await client.ask("agent_status", {}, "session_info")

    later = client.heard[before:]
    assert [frame["type"] for frame in later if frame.get("in_reply_to") == refused] == ["agent_error"]
    assert [frame for frame in later if frame["payload"].get("acknowledged_id") == refused] == []
    assert client.heard[-1]["payload"]["status"] == "idle"
    assert types_of(client.heard).count("agent_start") == 1


@pytest.mark.req("MK-TRANS-004")
async def test_an_envelope_of_the_largest_size_passes_and_a_larger_one_is_refused_with_a_code(
    peer: Peer, transport: str
) -> None:
    request = ask("complete_request")
    message = request["payload"]["context"]["messages"][0]
    message["content"] = ""
    message["content"] = "x" * (MAX_FRAME_BYTES - len(encode(request)))
    assert len(encode(request)) == MAX_FRAME_BYTES
    frames = await peer.ask(request)
    # The answer is a little larger than the question, so it comes in fragments.
    fragments = [frame for frame in frames if "fragment" in frame]
    while len(fragments) < fragments[0]["fragment"]["total"]:
        fragments.append(await peer.hear())
    assert len(joined(fragments)["content"][0]["text"]) == len(message["content"])

    message["content"] += "x"
    larger = {**request, "stream_id": new_id(), "message_id": new_id()}
    if transport == "sse":
        with pytest.raises(TransportError, match="HTTP 413"):
            await peer.say(larger)
    else:
        (refused,) = await peer.ask(larger, "error", "nack")
        assert (refused["type"], refused["in_reply_to"]) == ("nack", larger["message_id"])
        assert refused["payload"]["error_code"] == "invalid_request"
        assert str(MAX_FRAME_BYTES) in refused["payload"]["reason"]
    assert (await peer.ask(envelope("ping"), "pong"))[0]["type"] == "pong"


def joined(fragments: list[JSON]) -> JSON:
    ordered = sorted(fragments, key=lambda frame: int(frame["fragment"]["index"]))
    whole: JSON = msgspec.json.decode(b"".join(base64.b64decode(frame["payload"]["data"]) for frame in ordered))
    return whole


@pytest.mark.req("MK-PROV-007")
async def test_a_call_of_a_tool_is_reported_and_neither_executed_nor_answered(transport: str, tmp_path: Path) -> None:
    """The tool is called like one of the agent's own, which would write a file."""
    arguments = msgspec.json.encode({"path": str(tmp_path / "written.txt"), "content": "A"}).decode()
    call = {"index": 0, "id": "call_1", "function": {"name": "write", "arguments": arguments}}
    deltas = [{"delta": {"tool_calls": [call]}}, {"delta": {}, "finish_reason": "tool_calls"}]
    said = b"".join(b"data: " + msgspec.json.encode({"choices": [delta]}) + b"\n\n" for delta in deltas)
    tools = [{"name": "write", "description": "Write", "parameters_schema_json": '{"type":"object"}'}]
    payload = {"model_ref": "llama.cpp/openai-completions@m", "context": {**words("Write"), "tools": tools}}
    async with upstream(answers(said)) as vendor:
        environ = {"MAKAI_HOME": str(tmp_path / "home"), "LLAMA_CPP_BASE_URL": f"{vendor.url}/v1"}
        async with open_peer(transport, environ) as peer:
            for kind in ("stream_request", "complete_request"):
                frames = await peer.ask(ask(kind, payload=payload))
                result = frames[-1]["payload"]
                assert result["stop_reason"] == "tool_use"
                assert result["content"] == [
                    {"type": "tool_call", "tool_call_id": "call_1", "name": "write", "arguments_json": arguments}
                ]
                assert [frame["type"] for frame in frames].count("start") == (kind == "stream_request")
            assert (await peer.ask(envelope("ping"), "pong"))[0]["type"] == "pong"
        assert len(vendor.requests) == 2
        offered = [tool["function"]["name"] for tool in vendor.requests[0].json()["tools"]]
        assert offered == ["write"]
    assert not (tmp_path / "written.txt").exists()
