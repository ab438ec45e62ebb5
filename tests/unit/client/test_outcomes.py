"""How requests end, as callers of the SDK see it: every stop reason, every kind of failure, and asking again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.sdk import DEADLINE_S, JSON, FakeServer, failure_of, fake_server

import makai
from makai import MakaiClient, MakaiStreamError


@pytest.fixture
async def fake() -> AsyncIterator[tuple[MakaiClient, FakeServer]]:
    channel, server = fake_server()
    async with asyncio.timeout(DEADLINE_S), makai.connect(channel=channel) as client:
        yield client, server


@pytest.mark.req("MK-SDK-021", "MK-SDK-022", "MK-SDK-024")
@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "tool_use", "stop_sequence", "max_turns", "moonrise"])
async def test_every_stop_reason_and_every_count_of_an_answer_is_handed_on(
    fake: tuple[MakaiClient, FakeServer], reason: str
) -> None:
    client, server = fake
    usage = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4}
    whole = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    request = await server.accept("complete_request")
    content = [{"type": "text", "text": "Hi"}]
    origin = {"provider": "acme", "api": "x", "model": "m1"}
    result = {"role": "assistant", "content": content, "usage": usage, "stop_reason": reason, "timestamp": 1, **origin}
    await server.say(request, "result", result)

    answer = await whole

    assert (answer.provider_id, answer.api, answer.model_id, answer.stop_reason) == ("acme", "x", "m1", reason)
    assert answer.usage == makai.UsageSummary(**usage)
    assert (answer.message.role, answer.text) == ("assistant", "Hi")

    stream = client.provider.stream(model_ref="m", messages="Hi")
    reading = asyncio.ensure_future(_all(stream))
    request = await server.accept("stream_request")
    await server.say(request, "start", {})
    await server.say(request, "done", {"reason": reason, "usage": usage})
    await server.say(request, "result", {"usage": usage, "stop_reason": reason, "timestamp": 1, **origin})
    assert (await reading)[-1] == makai.MessageEndEvent(usage=makai.UsageSummary(**usage), stop_reason=reason)
    assert stream.response is not None
    assert stream.response.stop_reason == reason


class LaterServer(FakeServer):
    """A server of a later version: its envelopes and payloads have keys that are not known yet."""

    async def say(self, request: JSON, kind: str, payload: JSON, **fields: Any) -> None:
        await super().say(request, kind, {**payload, "later": {"deep": [None]}}, **fields, x_later=1)


@pytest.mark.req("MK-ENV-009")
async def test_keys_of_a_later_server_change_nothing() -> None:
    answers = []
    for kind in (FakeServer, LaterServer):
        channel, played = fake_server()
        server = kind(played.channel)
        async with asyncio.timeout(DEADLINE_S), makai.connect(channel=channel) as client:
            reading = asyncio.ensure_future(_all(client.provider.stream(model_ref="m", messages="Hi")))
            await server.answer(await server.expect("stream_request"))
            whole = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
            await server.answer(await server.expect("complete_request"))
            listing = asyncio.ensure_future(client.auth.list_providers())
            request = await server.accept("auth_providers_request")
            entry = {"id": "acme", "name": "Acme", "auth_status": "failed"}
            await server.say(request, "auth_providers_response", {"providers": [entry]})
            refused = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
            await server.nack(await server.expect("complete_request"), "invalid_request")
            failure = await failure_of(refused, MakaiStreamError)
            answers.append((await reading, await whole, await listing, str(failure)))
    assert answers[0] == answers[1]


KINDS = {
    "provider_error": "provider_error",
    "rate_limited": "provider_error",
    "overloaded": "provider_error",
    "context_overflow": "provider_error",
    "aborted": "aborted",
    "invalid_request": "unknown",
    "not_implemented": "unknown",
    "a_later_code": "unknown",
}


@pytest.mark.req("MK-SDK-027")
@pytest.mark.parametrize(("code", "kind"), KINDS.items())
@pytest.mark.parametrize("accepted", [False, True], ids=["refused", "failed"])
async def test_the_kind_of_a_failure_says_whose_it_is_and_its_code_is_the_servers(
    fake: tuple[MakaiClient, FakeServer], code: str, kind: str, accepted: bool
) -> None:
    client, server = fake
    asked = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    request = await server.expect("complete_request")
    if accepted:
        await server.ack(request)
        await server.say(request, "stream_error", {"error_code": code, "error_message": "no"})
    else:
        await server.nack(request, code)
    raised = await failure_of(asked, MakaiStreamError, "no")
    assert (raised.kind, raised.code) == (kind, code)


@pytest.mark.req("MK-SDK-027", "MK-SDK-033")
async def test_a_lost_connection_is_a_transport_error_and_the_same_request_succeeds_on_the_next() -> None:
    sent: list[JSON] = []
    request: Any = {
        "model_ref": "m",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}, "Go on"],
        "options": {"temperature": 0.5},
    }
    for is_lost in (True, False):
        channel, server = fake_server()
        async with asyncio.timeout(DEADLINE_S), makai.connect(channel=channel) as client:
            reading = asyncio.ensure_future(_all(client.provider.stream(**request)))
            asked = await server.expect("stream_request")
            sent.append(asked["payload"])
            if is_lost:
                await server.ack(asked)
                await server.say(asked, "start", {})
                await server.channel.close()
                raised = await failure_of(reading, MakaiStreamError)
                assert raised.kind == "transport_error"
                assert await server.channel.receive() is None, "nothing is asked again by itself"
            else:
                await server.answer(asked)
                assert (await reading)[-1].type == "message_end"
    assert sent[0] == sent[1]


async def _all(events: Any) -> list[Any]:
    return [event async for event in events]
