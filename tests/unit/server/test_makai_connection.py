"""The server on a channel: backpressure, cancellation, draining."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from support.peers import Peer
from support.wire import EMPTY, ask, envelope

from makai.auth.runtime import AuthRuntime
from makai.catalog.models import ModelsRequest, ModelsResponse
from makai.core.errors import NotSupported, ProviderError
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Done, Start, StreamEvent, TextDelta, TextEnd, TextStart
from makai.server.makai_connection import MakaiServer
from makai.transports.connection import MAX_PENDING_BYTES
from makai.transports.memory import memory_pair

WORD = "x" * 1000


class Firehose:
    """A backend that says as much as anyone takes, and counts it."""

    def __init__(self, deltas: int = 100_000) -> None:
        self.deltas = deltas
        self.said = 0
        self.cancelled = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    def resolve(self, model: str | Model | None) -> Model:
        raise NotSupported("this runtime has one model")

    async def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        try:
            yield Start(EMPTY)
            yield TextStart(0)
            for _ in range(self.deltas):
                yield TextDelta(0, WORD)
                self.said += 1
            await self.hold.wait()
            yield TextEnd(0)
            yield Done("end_turn", msgspec.structs.replace(EMPTY, stop_reason="end_turn"))
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise

    async def models(self, request: ModelsRequest) -> ModelsResponse:
        if request.provider_id == "broken":
            raise ProviderError("the list is down", provider_id="broken")
        raise NotSupported("this runtime has no model list")

    def auth(self) -> AuthRuntime:
        raise NotSupported("this runtime has no logins")

    async def close(self) -> None:
        pass


@asynccontextmanager
async def served(server: MakaiServer) -> AsyncIterator[tuple[Peer, asyncio.TaskGroup]]:
    """A client on a channel of its own; the server ends with it."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        ours, theirs = memory_pair(bound=64 * 1024)
        group.create_task(server.serve(theirs))
        yield Peer(ours), group
        await ours.close()


async def settle() -> None:
    """Let everything that can run, run."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_reader_that_takes_nothing_stops_its_stream_within_bounds_and_no_other() -> None:
    backend = Firehose()
    server = MakaiServer(backend)
    async with served(server) as (slow, _), served(server) as (quick, _):
        await slow.say(ask(encoding="proxy"))
        await settle()
        stuck_at = backend.said
        assert stuck_at * len(WORD) < 4 * MAX_PENDING_BYTES
        await settle()
        assert backend.said == stuck_at
        assert (await quick.ask(envelope("ping"), "pong"))[0]["type"] == "pong"
        # When the slow one reads again, nothing is missing.
        for number in range(1, 5000):
            assert (await slow.hear())["sequence"] == number
    assert backend.cancelled.is_set()


@pytest.mark.req("MK-TRANS-005")
async def test_a_vanished_client_takes_its_streams_with_it() -> None:
    backend = Firehose()
    async with served(MakaiServer(backend)) as (peer, _):
        await peer.say(ask())
        await peer.hear_until("text_delta")
        await peer.channel.close()
        await backend.cancelled.wait()


async def test_draining_refuses_new_requests_and_waits_for_running_ones() -> None:
    backend = Firehose(deltas=3)
    backend.hold.clear()
    server = MakaiServer(backend)
    async with served(server) as (peer, group):
        await peer.say(ask(encoding="proxy"))
        await peer.hear_until("text_delta")
        drained = group.create_task(server.drain(8))
        await settle()
        assert not drained.done()
        await peer.say(ask())
        frames = await peer.hear_until("nack")
        assert frames[-1]["payload"]["error_code"] == "overloaded"
        backend.hold.set()
        assert (await peer.hear_until("result"))[-1]["type"] == "result"
        await drained


async def test_a_running_stream_is_not_waited_for_longer_than_the_drain_allows() -> None:
    backend = Firehose(deltas=1)
    backend.hold.clear()
    server = MakaiServer(backend)
    async with served(server) as (peer, _):
        await peer.say(ask())
        await peer.hear_until("text_delta")
        await server.drain(0.05)
    assert backend.cancelled.is_set()


@pytest.mark.req("MK-MODEL-013")
@pytest.mark.parametrize(("provider", "code"), [("", "not_implemented"), ("broken", "provider_error")])
async def test_a_runtime_without_a_list_and_a_list_that_fails_are_nacked(provider: str, code: str) -> None:
    async with served(MakaiServer(Firehose())) as (peer, _):
        (nack,) = await peer.ask(envelope("models_request", {"provider_id": provider}), "nack")
        assert nack["payload"]["error_code"] == code


class Broken(Firehose):
    """A backend that breaks the provider law."""

    async def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        yield Start(EMPTY)
        if self.deltas:
            raise RuntimeError("a bug with a secret in it")


@pytest.mark.parametrize("deltas", [0, 1])
async def test_a_backend_that_breaks_its_promise_gives_one_terminal(
    deltas: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(MakaiServer(Broken(deltas))) as (peer, _):
        frames = await peer.ask(ask())
        assert [frame["type"] for frame in frames] == ["ack", "start", "error", "stream_error"]
        assert frames[-1]["payload"]["error_code"] == "internal_error"
        assert "secret" not in str(frames)
