"""Leaving, losing and misreading streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from support.sdk import DEADLINE_S, SCENARIO, FakeServer, WatchedBackend, failure_of, fake_server

import makai
from makai import MakaiClient, MakaiStreamError, MessageStartEvent, ProviderStreamEvent, TextDeltaEvent
from makai.client.auth import AuthApi
from makai.client.connection import MakaiConnection
from makai.client.model_calls import RemoteCalls
from makai.client.models import ModelsApi
from makai.client.provider import ProviderApi
from makai.providers.runtime import ModelRuntime


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[WatchedBackend]:
    (tmp_path / "scenario.txt").write_text("say: one two three\nstall\n")
    async with ModelRuntime({"MAKAI_SCENARIO": str(tmp_path / "scenario.txt")}) as runtime:
        yield WatchedBackend(runtime)


@pytest.fixture
async def client(backend: WatchedBackend) -> AsyncIterator[MakaiClient]:
    async with asyncio.timeout(DEADLINE_S), makai.connect(backend=backend) as client:
        yield client


@pytest.fixture
async def fake() -> AsyncIterator[tuple[MakaiClient, FakeServer]]:
    channel, server = fake_server()
    async with asyncio.timeout(DEADLINE_S), makai.connect(channel=channel) as client:
        yield client, server


async def _break(client: MakaiClient) -> None:
    async for event in client.provider.stream(model_ref=SCENARIO, messages="Hi"):
        if event.type == "text_delta":
            break


async def _break_while_the_stream_is_held(client: MakaiClient) -> None:
    stream = client.provider.stream(model_ref=SCENARIO, messages="Hi")
    async for _ in stream:
        break
    assert stream.response is None
    with pytest.raises(MakaiStreamError, match="once"):
        aiter(stream)


async def _fail(client: MakaiClient) -> None:
    async for event in client.provider.stream(model_ref=SCENARIO, messages="Hi"):
        if event.type == "text_delta":
            raise KeyError(event.delta)


async def _fail_in_the_loop(client: MakaiClient) -> None:
    with pytest.raises(KeyError, match="one"):
        await _fail(client)


async def _close(client: MakaiClient) -> None:
    async with aclosing(client.provider.stream(model_ref=SCENARIO, messages="Hi")) as stream:
        iterator = aiter(stream)
        assert isinstance(await anext(iterator), MessageStartEvent)
    assert [event async for event in iterator] == []


@pytest.mark.req("MK-SDK-036")
@pytest.mark.parametrize("leave", [_break, _break_while_the_stream_is_held, _fail_in_the_loop, _close])
async def test_leaving_a_stream_aborts_upstream(
    client: MakaiClient, backend: WatchedBackend, leave: Callable[[MakaiClient], Awaitable[None]]
) -> None:
    await leave(client)

    await backend.over.wait()
    assert backend.running == 0


async def _read_all(client: MakaiClient) -> list[ProviderStreamEvent]:
    return [event async for event in client.provider.stream(model_ref=SCENARIO, messages="Hi")]


@pytest.mark.req("MK-SDK-036")
@pytest.mark.parametrize("whole", [False, True])
async def test_cancelling_the_reader_aborts(client: MakaiClient, backend: WatchedBackend, whole: bool) -> None:
    asked = client.provider.complete(model_ref=SCENARIO, messages="Hi") if whole else _read_all(client)
    task = asyncio.ensure_future(asked)
    await backend.begun.wait()

    task.cancel()

    await backend.over.wait()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nothing_is_asked_before_iteration_begins(client: MakaiClient, backend: WatchedBackend) -> None:
    client.provider.stream(model_ref=SCENARIO, messages="Hi")
    await client.models.list(provider_id="scripted")

    assert not backend.begun.is_set()


@pytest.mark.req("MK-SDK-033", "MK-SDK-027")
async def test_a_lost_connection_ends_the_stream_after_what_arrived() -> None:
    channel, server = fake_server()
    async with asyncio.timeout(DEADLINE_S), makai.connect(channel=channel) as client:
        stream = aiter(client.provider.stream(model_ref="m", messages="Hi"))
        first = asyncio.ensure_future(anext(stream))
        request = await server.accept("stream_request")
        await server.say(request, "start", {})
        await server.say(request, "text_start", {"content_index": 0})
        await server.say(request, "text_delta", {"content_index": 0, "delta": "Hal"})
        await server.channel.close()

        assert [await first, await anext(stream)] == [MessageStartEvent(), TextDeltaEvent("Hal")]
        raised = await failure_of(anext(stream), MakaiStreamError)
        assert (raised.kind, raised.code) == ("transport_error", "transport_error")
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    channel, server = fake_server()
    async with makai.connect(channel=channel) as client:
        again = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
        await server.answer(await server.expect("complete_request"), "Hallo")
        assert (await again).text == "Hallo"


async def _read_into(read: list[ProviderStreamEvent], events: AsyncIterator[ProviderStreamEvent]) -> None:
    async for event in events:
        read.append(event)  # noqa: PERF401 (what came before a failure counts)


async def test_a_caller_who_does_not_read_loses_only_his_own_stream() -> None:
    channel, server = fake_server()
    connection = MakaiConnection(channel, unread_bytes=20_000)
    models = ModelsApi(connection)
    provider = ProviderApi(RemoteCalls(connection), AuthApi(connection, makai.AuthOptions(), models.forget), models)
    async with asyncio.timeout(DEADLINE_S):
        slow = aiter(provider.stream(model_ref="m", messages="slow"))
        first = asyncio.ensure_future(anext(slow))
        request = await server.accept("stream_request")
        await server.say(request, "start", {})
        await first
        await server.say(request, "text_start", {"content_index": 0})
        for _ in range(30):
            await server.say(request, "text_delta", {"content_index": 0, "delta": "x" * 1000})
        abort = await server.expect("abort_request")
        other = asyncio.ensure_future(provider.complete(model_ref="m", messages="other"))
        await server.answer(await server.expect("complete_request"))

        assert (await other).text == "Hi"
        assert abort["payload"] == {"target_stream_id": request["stream_id"]}
        read: list[ProviderStreamEvent] = []
        raised = await failure_of(_read_into(read, slow), MakaiStreamError, "not read")
        assert (raised.kind, raised.code) == ("transport_error", "overloaded")
        assert read == [TextDeltaEvent("x" * 1000)] * len(read)
        assert len(read) >= 10
        await connection.close()


@pytest.mark.req("MK-SDK-027")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, "provider_error") for code in ("provider_error", "rate_limited", "overloaded", "context_overflow")),
        ("aborted", "aborted"),
        ("invalid_request", "unknown"),
        ("a_later_code", "unknown"),
    ],
)
async def test_a_failure_has_the_kind_of_its_code(fake: tuple[MakaiClient, FakeServer], code: str, kind: str) -> None:
    client, server = fake
    asked = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    request = await server.accept("complete_request")
    await server.say(request, "stream_error", {"error_code": code, "error_message": "no"})

    raised = await failure_of(asked, MakaiStreamError)
    assert (raised.kind, raised.code) == (kind, code)


@pytest.mark.req("MK-SDK-022", "MK-SDK-034")
async def test_an_unknown_stop_reason_and_an_odd_model_ref_pass_through(fake: tuple[MakaiClient, FakeServer]) -> None:
    client, server = fake
    stream = client.provider.stream(model_ref="no/idea:what@this%is", messages="Hi")

    async def collect() -> list[ProviderStreamEvent]:
        return [event async for event in stream]

    asked = asyncio.ensure_future(collect())
    request = await server.accept("stream_request")
    await server.say(request, "start", {})
    await server.say(request, "a_later_event", {"new": True})
    await server.say(request, "done", {"reason": "moonrise", "usage": {}})
    ending = {"stop_reason": "moonrise", "usage": {}, "model": "m", "api": "x", "provider": "p", "timestamp": 1}
    await server.say(request, "result", ending)

    assert await asked == [
        MessageStartEvent(),
        makai.MessageEndEvent(usage=makai.UsageSummary(), stop_reason="moonrise"),
    ]
    assert request["payload"]["model_ref"] == "no/idea:what@this%is"
    assert request["encoding"] == "proxy"
    assert stream.response is not None
    assert stream.response.message.stop_reason == "moonrise"


@pytest.mark.parametrize(
    "frame",
    [b"not json", b"[]", b'{"type":"error","message":7}'],
)
async def test_a_server_that_breaks_the_protocol_is_left(fake: tuple[MakaiClient, FakeServer], frame: bytes) -> None:
    client, server = fake
    asked = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    await server.expect("complete_request")
    await server.channel.send([frame])

    raised = await failure_of(asked, MakaiStreamError, "broke the protocol")
    assert (raised.kind, raised.code) == ("transport_error", "parse_error")


async def test_a_server_that_could_not_read_some_request_fails_those_without_an_answer(
    fake: tuple[MakaiClient, FakeServer],
) -> None:
    client, server = fake
    running = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    accepted = await server.accept("complete_request")
    waiting = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    await server.expect("complete_request")
    unread = b'{"type":"error","code":"unknown_envelope","protocol_version":"1","message":"what?"}'
    await server.channel.send([unread])

    raised = await failure_of(waiting, MakaiStreamError, "could not read a message of this client: what?")
    assert (raised.kind, raised.code) == ("transport_error", "parse_error")
    await server.say(accepted, "result", {"content": [], "stop_reason": "end_turn"})
    assert (await running).stop_reason == "end_turn"


async def test_a_malformed_event_ends_its_stream_and_no_other(fake: tuple[MakaiClient, FakeServer]) -> None:
    client, server = fake
    stream = aiter(client.provider.stream(model_ref="m", messages="Hi"))
    first = asyncio.ensure_future(anext(stream))
    request = await server.accept("stream_request")
    await server.say(request, "text_delta", {"content_index": "zero"})

    with pytest.raises(MakaiStreamError, match="text_delta"):
        await first
    assert (await server.expect("abort_request"))["payload"] == {"target_stream_id": request["stream_id"]}
    other = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    await server.answer(await server.expect("complete_request"))
    assert (await other).text == "Hi"


@pytest.mark.req("MK-SDK-020")
async def test_without_a_models_list_models_can_still_be_asked(fake: tuple[MakaiClient, FakeServer]) -> None:
    client, server = fake
    listing = asyncio.ensure_future(client.models.list())
    await server.nack(await server.expect("models_request"), "not_implemented")
    await asyncio.gather(listing, return_exceptions=True)
    asked = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi"))
    await server.answer(await server.expect("complete_request"))

    assert (await asked).text == "Hi"


@pytest.mark.req("MK-SDK-005")
async def test_every_kind_of_call_is_an_envelope_on_the_one_channel(fake: tuple[MakaiClient, FakeServer]) -> None:
    client, server = fake
    calls = {
        "auth_providers_request": client.auth.list_providers(),
        "auth_login_start": client.auth.login("acme"),
        "models_request": client.models.list(),
        "agent_start": client.agent.run(model_ref="m", messages="Hi"),
        "complete_request": client.provider.complete(model_ref="m", messages="Hi"),
        "stream_request": anext(aiter(client.provider.stream(model_ref="m", messages="Hi"))),
    }
    for kind, call in calls.items():
        task = asyncio.ensure_future(call)
        envelope = await server.expect(kind)
        await server.nack(envelope, "not_implemented")
        (failure,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(failure, makai.MakaiError)
        assert (envelope["sequence"], envelope["version"]) == (1, 1)
