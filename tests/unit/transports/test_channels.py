"""What every transport promises, tested on all of them, in both directions."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

import pytest
import uvloop
from support.transports import KINDS, connected, read_to_the_end

from makai.core.errors import ChannelClosed
from makai.transports.channel import Channel, Oversized

HAS_GRPC = importlib.util.find_spec("grpc") is not None
TRANSPORTS = [
    pytest.param(kind, marks=[pytest.mark.skipif(kind == "grpc" and not HAS_GRPC, reason="needs makai[grpc]")], id=kind)
    for kind in KINDS
]
BLOCKED_AFTER_S = 0.3

Pair: TypeAlias = tuple[Channel, Channel]

every_transport = pytest.mark.parametrize("kind", TRANSPORTS)


@pytest.fixture(params=TRANSPORTS)
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """A client's end, and a server's."""
    async with connected(request.param) as both:
        yield both


@pytest.fixture(params=[True, False], ids=["from the client", "from the server"])
def ends(request: pytest.FixtureRequest, pair: Pair) -> Pair:
    """The end that begins, and the other."""
    return pair if request.param else pair[::-1]


async def receive(channel: Channel, count: int) -> list[bytes | Oversized | None]:
    return [await channel.receive() for _ in range(count)]


async def transfer(sender: Channel, receiver: Channel, frames: Sequence[bytes]) -> list[bytes | Oversized | None]:
    """What arrives of `frames`; both ends work at the same time, because no transport holds everything."""
    _, received = await asyncio.gather(sender.send(frames), receive(receiver, len(frames)))
    return received


async def until_blocked(sending: asyncio.Task[None], sent: Callable[[], int]) -> None:
    """Returns when `sent` has not grown for a while: `sending` waits for its reader."""
    before = -1
    while sent() > before and not sending.done():
        before = sent()
        await asyncio.wait({sending}, timeout=BLOCKED_AFTER_S)


def frame(number: int, text: str = "") -> bytes:
    return json.dumps({"n": number, "text": text}).encode()


@pytest.mark.req("MK-TRANS-002", "MK-TRANS-006", "MK-TRANS-010", "MK-TRANS-011")
async def test_frames_arrive_whole_and_in_order(ends: Pair) -> None:
    frames = [frame(number, "x" * (number * 37 % 2000)) for number in range(100)]
    sender, receiver = ends

    assert await transfer(sender, receiver, frames) == frames
    assert await transfer(receiver, sender, frames[:3]) == frames[:3]


@pytest.mark.req("MK-TRANS-004")
async def test_a_frame_of_five_megabytes_passes(ends: Pair) -> None:
    large = [frame(1, "5 MB " * 1_000_000), frame(2)]
    assert await transfer(*ends, large) == large


@pytest.mark.req("MK-TRANS-002")
async def test_every_character_arrives(ends: Pair) -> None:
    text = "\u2028 \u2029 \u0085 \x0b\x0c\x1c \r\n \U0001f600 \ufeff \ud7ff \ue000 \uffff \U0010ffff \x7f \x00"
    value = {"text": text, text: [text]}
    frames = [json.dumps(value, ensure_ascii=ascii).encode() for ascii in (True, False)] + [
        json.dumps(value, ensure_ascii=False, indent=2).encode()
    ]
    received = await transfer(*ends, frames)

    assert [json.loads(frame) for frame in received if isinstance(frame, bytes)] == [value] * 3


@pytest.mark.req("MK-TRANS-014")
async def test_batches_of_concurrent_senders_do_not_mix(ends: Pair) -> None:
    batches = [[frame(sender, f"{number} " * 3000) for number in range(20)] for sender in range(4)]
    sender, receiver = ends
    async with asyncio.TaskGroup() as senders:
        for batch in batches:
            senders.create_task(sender.send(batch))
        received = await receive(receiver, 80)

    assert sorted(received[start : start + 20] for start in range(0, 80, 20)) == batches


async def test_when_the_client_closes_the_server_reads_the_rest_and_then_none(pair: Pair) -> None:
    near, far = pair
    _, received = await asyncio.gather(send_and_close(near, [frame(1), frame(2)]), receive(far, 4))

    assert received == [frame(1), frame(2), None, None]


@pytest.mark.parametrize("kind", [param for param in TRANSPORTS if param.id != "sse"])
async def test_when_the_server_closes_the_client_reads_the_rest_and_then_none(kind: str) -> None:
    """Not over SSE: there the end of a stream only means that nothing is going on."""
    async with connected(kind) as (near, far):
        _, received = await asyncio.gather(send_and_close(far, [frame(1), frame(2)]), receive(near, 4))

        assert received == [frame(1), frame(2), None, None]


async def send_and_close(channel: Channel, frames: Sequence[bytes]) -> None:
    await channel.send(frames)
    await channel.close("that is all")


async def test_nothing_can_be_sent_or_received_after_closing_which_may_be_repeated(ends: Pair) -> None:
    closer, peer = ends
    noticing = asyncio.create_task(read_to_the_end(peer))
    await closer.close("first")
    await closer.close("second")

    assert await closer.receive() is None
    with pytest.raises(ChannelClosed):
        await closer.send([frame(1)])
    noticing.cancel()


async def test_sending_to_a_client_that_has_gone_is_an_error(pair: Pair) -> None:
    near, far = pair
    await asyncio.gather(near.close(), read_to_the_end(far))

    with pytest.raises(ChannelClosed):
        await send_one_by_one(far, 1000)


async def send_one_by_one(channel: Channel, count: int) -> None:
    for number in range(count):
        await channel.send([frame(number, "x" * 10_000)])


async def test_closing_wakes_a_waiting_receiver(ends: Pair) -> None:
    closer, peer = ends
    noticing = asyncio.create_task(read_to_the_end(peer))
    waiting = asyncio.create_task(closer.receive())
    await asyncio.sleep(0)
    await closer.close()

    assert await waiting is None
    noticing.cancel()


async def test_a_cancelled_receive_loses_nothing(ends: Pair) -> None:
    sender, receiver = ends
    for number in range(5):
        waiting = asyncio.create_task(receiver.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

        assert await transfer(sender, receiver, [frame(number)]) == [frame(number)]


async def test_a_slow_reader_blocks_its_sender_and_misses_nothing(ends: Pair) -> None:
    count, size = 400, 64 * 1024
    noise = random.Random(1).randbytes(size // 2).hex()  # what compresses well would fit into the kernel's buffers
    sender, receiver = ends
    sent = 0

    async def send_all() -> None:
        nonlocal sent
        for number in range(count):
            await sender.send([frame(number, noise)])
            sent += 1

    sending = asyncio.create_task(send_all())
    await until_blocked(sending, lambda: sent)

    # Loopback sockets hold a few megabytes in the kernel; the rest has to wait.
    assert sent * size < 12_000_000
    received = await receive(receiver, count)
    await sending
    assert received == [frame(number, noise) for number in range(count)]


@pytest.mark.parametrize("kind", [param for param in TRANSPORTS if param.id != "grpc"])
async def test_a_server_can_close_although_its_client_does_not_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not over gRPC, whose library ends the call when the handler returns."""
    monkeypatch.setattr(f"makai.transports.{kind}.CLOSE_DEADLINE_S", 0.1, raising=False)
    noise = random.Random(1).randbytes(500_000).hex().encode()
    async with connected(kind) as (_, far):
        sent = 0

        async def send_without_end() -> None:
            nonlocal sent
            while True:  # how much the kernel's buffers hold differs between machines
                await far.send([noise])
                sent += 1

        sending = asyncio.create_task(send_without_end())
        await until_blocked(sending, lambda: sent)
        await far.close()
        (outcome,) = await asyncio.gather(sending, return_exceptions=True)

    assert isinstance(outcome, ChannelClosed)


@pytest.mark.parametrize("kind", ["memory", "stdio"])
async def test_a_frame_above_the_limit_is_reported_and_skipped(kind: str) -> None:
    async with connected(kind) as (near, far):
        limit = far.max_frame_bytes
        frames = [frame(1), b'"' + b"x" * limit + b'"', frame(2)]

        assert await transfer(near, far, frames) == [frame(1), Oversized(limit, b'"' + b"x" * 4095), frame(2)]


async def test_an_empty_batch_sends_nothing(pair: Pair) -> None:
    near, far = pair
    await far.send([])

    assert await transfer(far, near, [frame(1)]) == [frame(1)]


@every_transport
def test_the_same_holds_on_uvloop(kind: str) -> None:
    async def conversation() -> AsyncIterator[object]:
        async with connected(kind) as (near, far):
            large = frame(0, "large " * 100_000)
            yield await transfer(near, far, [large, frame(1)]) == [large, frame(1)]
            yield await transfer(far, near, [large, frame(2)]) == [large, frame(2)]
            _, rest = await asyncio.gather(near.close(), far.receive())
            yield rest is None

    async def collect() -> list[object]:
        return [held async for held in conversation()]

    assert uvloop.run(collect()) == [True, True, True]
