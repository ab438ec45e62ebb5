"""One behaviour suite over all five transports (MK-TRANS-012): the same envelopes, ids and times aside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.peers import TRANSPORTS, Peer, open_peer
from support.upstream import chat_stream, starts_then_hangs, upstream
from support.wire import JSON, ask, envelope, new_id

pytestmark = pytest.mark.req("MK-TRANS-012", "MK-TRANS-013")

SCENARIO = """
say: Hello there.
usage: input=5 output=2
---
when: think
think: Hm.
say: Yes.
tool: look {"at": "é\u2028☂"}
usage: input=1 output=3
---
when: wait
say: Hel
stall
---
when: fail
say: Hel
fail: rate_limited retry_after=2s Slow down.
---
when: long
repeat: 2000 word
---
when: huge
repeat: 3 {huge}
"""


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(SCENARIO.replace("{huge}", "x" * 1_000_000), encoding="utf-8")
    return {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home")}


@pytest.fixture
async def peer(transport: str, environ: dict[str, str]) -> AsyncIterator[Peer]:
    async with open_peer(transport, environ) as opened:
        yield opened


def prompt(text: str, kind: str = "stream_request", model: str = "scripted/scripted@scenario", **fields: Any) -> JSON:
    payload = {"model_ref": model, "context": {"messages": [{"role": "user", "content": text}]}}
    return ask(kind, payload=payload, **fields)


def shape(frames: list[JSON]) -> list[tuple[str, int]]:
    return [(frame["type"], frame["sequence"]) for frame in frames]


def said(frames: list[JSON]) -> str:
    return "".join(frame["payload"]["delta"] for frame in frames if frame["type"] == "text_delta")


async def test_a_stream_is_acked_and_ends_in_its_result(peer: Peer) -> None:
    frames = await peer.ask(prompt("Hi", encoding="proxy"))
    types = ["ack", "start", "text_start", "text_delta", "text_delta", "text_end", "done", "result"]
    assert shape(frames) == list(zip(types, range(1, 9), strict=True))
    assert said(frames) == "Hello there."
    assert frames[-1]["payload"]["usage"] == {"input": 5, "output": 2, "cost_usd": 0.0}


async def test_thinking_tool_calls_and_all_of_unicode_arrive(peer: Peer) -> None:
    frames = await peer.ask(prompt("think"))
    content = frames[-1]["payload"]["content"]
    assert content[:2] == [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}]
    assert content[2]["arguments_json"] == '{"at": "é\u2028☂"}'
    assert frames[-1]["payload"]["stop_reason"] == "tool_use"


@pytest.mark.req("MK-PROV-007")
async def test_a_tool_call_is_only_reported_and_no_further_turn_starts(peer: Peer) -> None:
    request = prompt("think")
    request["payload"]["context"]["tools"] = [
        {"name": "look", "description": "Look", "parameters_schema_json": '{"type":"object"}'}
    ]
    frames = await peer.ask(request)
    assert [frame["type"] for frame in frames].count("start") == 1
    (pong,) = await peer.ask(envelope("ping"), "pong")
    assert pong["type"] == "pong"


async def test_a_complete_request_gets_ack_and_result(peer: Peer) -> None:
    frames = await peer.ask(prompt("Hi", "complete_request"))
    assert shape(frames) == [("ack", 1), ("result", 2)]
    assert frames[-1]["payload"]["content"] == [{"type": "text", "text": "Hello there."}]


async def test_a_failure_arrives_as_event_and_terminal(peer: Peer) -> None:
    frames = await peer.ask(prompt("fail"))
    assert [frame["type"] for frame in frames][-2:] == ["error", "stream_error"]
    assert frames[-1]["payload"]["error_code"] == "rate_limited"
    assert frames[-1]["payload"]["retry_after_ms"] == 2000


@pytest.mark.req("MK-PROV-031", "MK-PROV-033", "MK-PROV-035")
async def test_an_abort_ends_one_stream_and_leaves_the_other(peer: Peer) -> None:
    waiting, other = prompt("wait"), prompt("wait")
    await peer.say(waiting, other)
    deltas = 0
    while deltas < 2:
        deltas += (await peer.hear())["type"] == "text_delta"
    await peer.say(envelope("abort_request", {"target_stream_id": waiting["stream_id"]}))
    frames = await peer.hear_until("stream_error")
    own = [frame["type"] for frame in frames if frame["stream_id"] == waiting["stream_id"]]
    assert own == ["error", "stream_error"]
    assert frames[-1]["payload"]["error_code"] == "aborted"
    frames = await peer.ask(envelope("abort_request", {"target_stream_id": other["stream_id"]}), "stream_error")
    assert frames[-1]["stream_id"] == other["stream_id"]


@pytest.mark.req("MK-PROV-036", "MK-TRANS-014")
async def test_fifty_streams_at_once_arrive_whole_and_in_order(peer: Peer) -> None:
    requests = [prompt("long", encoding="proxy") for _ in range(50)]
    await peer.say(*requests)
    frames: dict[str, list[JSON]] = {request["stream_id"]: [] for request in requests}
    results = 0
    while results < 50:
        frame = await peer.hear()
        frames[frame["stream_id"]].append(frame)
        results += frame["type"] == "result"
    for own in frames.values():
        assert [frame["sequence"] for frame in own] == list(range(1, len(own) + 1))
        assert said(own) == "word" * 2000


@pytest.mark.req("MK-TRANS-004")
async def test_a_message_of_several_megabytes_passes_both_ways(peer: Peer) -> None:
    request = prompt("huge", "complete_request")
    request["payload"]["context"]["messages"].insert(0, {"role": "user", "content": "y" * 5_000_000})
    frames = await peer.ask(request)
    assert frames[-1]["payload"]["content"] == [{"type": "text", "text": "x" * 3_000_000}]


@pytest.mark.req("MK-MODEL-003", "MK-MODEL-027")
async def test_models_are_listed_alike_in_both_scopes(peer: Peer) -> None:
    filters = {"provider_id": "scripted"}
    _, provider = await peer.ask(envelope("models_request", filters), "models_response")
    ids: dict[str, Any] = {"stream_id": None, "session_id": new_id()}
    _, agent = await peer.ask(envelope("models_request", filters, **ids), "models_response")
    assert provider["payload"]["models"] == agent["payload"]["models"]
    refs = [model["model_ref"] for model in provider["payload"]["models"]]
    assert refs == ["scripted/scripted@echo", "scripted/scripted@demo", "scripted/scripted@scenario"]


REFUSALS: list[tuple[JSON, str, str]] = [
    (ask(payload={"context": {"messages": []}}), "nack", "invalid_request"),
    (prompt("x", "dance_request"), "nack", "not_implemented"),
    (prompt("x", version=2), "nack", "version_mismatch"),
    (prompt("x", sequence=0), "nack", "invalid_sequence"),
    (prompt("x", sequence=7), "nack", "sequence_gap"),
    (prompt("x", session_id=new_id()), "nack", "invalid_request"),
    (envelope("abort_request", {"target_stream_id": new_id()}), "nack", "stream_not_found"),
    (envelope("models_request", {"model_id": "no-such-model"}), "nack", "invalid_request"),
]


@pytest.mark.parametrize(("request_", "answer", "code"), REFUSALS, ids=lambda value: str(value)[:40])
async def test_a_refused_request_gets_one_nack(peer: Peer, request_: JSON, answer: str, code: str) -> None:
    (frame,) = await peer.ask(request_, answer)
    assert frame["payload"]["error_code"] == code
    (pong,) = await peer.ask(envelope("ping"), "pong")
    assert pong["payload"]


@pytest.mark.req("MK-ENV-017", "MK-TRANS-010")
async def test_nonsense_is_answered_and_the_connection_goes_on(peer: Peer, transport: str) -> None:
    for nonsense in (b"{", b"[]", b'"x"', b"{}"):
        (frame,) = await peer.ask(nonsense, "error")  # type: ignore[arg-type]
        assert frame["code"] == "unknown_envelope"
    (pong,) = await peer.ask(envelope("ping"), "pong")
    assert pong["sequence"] == 1


@pytest.mark.req("MK-PROV-002")
async def test_an_unknown_model_is_refused_before_anything_is_sent(peer: Peer) -> None:
    for ref in ("unknown/openai-responses@x", "garbage", "scripted/scripted@nope"):
        (nack,) = await peer.ask(prompt("x", model=ref))
        assert nack["payload"]["error_code"] == "invalid_request"
        assert "model not found" in nack["payload"]["reason"]


@pytest.mark.req("MK-AUTH-018")
async def test_a_missing_key_is_refused_naming_the_provider(peer: Peer) -> None:
    (nack,) = await peer.ask(prompt("x", model="groq/openai-completions@x"))
    assert (nack["payload"]["error_code"], nack["payload"]["provider_id"]) == ("auth_required", "groq")


@pytest.mark.req("MK-MODEL-022")
async def test_a_retired_ref_names_its_successor(peer: Peer) -> None:
    for kind in ("stream_request", "complete_request"):
        (nack,) = await peer.ask(prompt("x", kind, "anthropic/anthropic-messages@claude-3-opus-20240229"))
        assert nack["payload"]["error_code"] == "model_not_found"
        assert "anthropic/anthropic-messages@claude-" in nack["payload"]["reason"]


async def test_two_hundred_streams_at_once_are_limited_not_dropped(peer: Peer) -> None:
    requests = [prompt("wait", encoding="proxy") for _ in range(200)]
    await peer.say(*requests)
    refused, running = 0, 0
    while refused + running < 200:
        frame = await peer.hear()
        if frame["type"] == "nack":
            assert frame["payload"]["error_code"] == "rate_limited"
            refused += 1
        running += frame["type"] == "ack"
    assert (running, refused) == (100, 100)


@pytest.mark.req("MK-PROV-032", "MK-TRANS-005")
@pytest.mark.parametrize("aborts", [True, False], ids=["abort", "vanished client"])
async def test_an_abort_and_a_vanished_client_close_the_upstream_connection(
    transport: str, environ: dict[str, str], aborts: bool
) -> None:
    first_words = chat_stream("Hel", finish=None, done=False)
    request = prompt("x", model="llama.cpp/openai-completions@m")
    async with upstream(starts_then_hangs(first_words)) as server:
        reachable = environ | {"LLAMA_CPP_BASE_URL": f"{server.url}/v1"}
        async with open_peer(transport, reachable) as peer:
            await peer.say(request)
            await peer.hear_until("text_delta")
            before = time.monotonic()
            if aborts:
                await peer.say(envelope("abort_request", {"target_stream_id": request["stream_id"]}))
            else:
                await peer.channel.close()
            async with asyncio.timeout(60):
                await server.closed_by_client.wait()
            if aborts:
                assert time.monotonic() - before < 5
                await peer.hear_until("stream_error")


@pytest.mark.req("MK-ENV-016")
async def test_goodbye_ends_the_connection_quietly(peer: Peer, transport: str) -> None:
    await peer.ask(envelope("ping"), "pong")
    await peer.say(prompt("wait"))
    await peer.hear_until("text_delta")
    await peer.say(envelope("goodbye", {"reason": "done"}))
    if transport == "sse":
        # A connection is one event stream there: it ends, and the next request opens another.
        (pong,) = await peer.ask(envelope("ping"), "pong")
        assert pong["sequence"] == 1
        return
    async with asyncio.timeout(60):
        while await peer.channel.receive() is not None:
            pass
