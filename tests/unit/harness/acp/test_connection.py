"""The connection to an agent: its end is known at once, what it had asked for is ended with it, and what it writes is
written exactly or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from makai.aio.child_process import OversizedLine
from makai.harness.acp.connection import AgentConnection


class OneRequest:
    """The transport of an agent that asks for something and ends."""

    exit_code = 3
    stderr_tail = ""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]:
        yield b'{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{}}'
        await self.asked.wait()

    def note(self, line: bytes) -> None:
        raise AssertionError(line)

    async def write(self, data: bytes) -> None:
        pass

    async def wait_for_errors(self, seconds: float) -> None:
        pass

    async def stop(self, *, grace_s: float = 0.0, term_grace_s: float = 0.0) -> int:
        return self.exit_code


class SlowToEnd:
    """Serves a request that takes a while to end after it was cancelled."""

    def __init__(self, transport: OneRequest) -> None:
        self._transport = transport
        self.may_end = asyncio.Event()
        self.has_ended = False

    async def on_request(self, method: str, params: msgspec.Raw | None) -> None:
        self._transport.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.has_ended = True

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        raise AssertionError(method)


async def no_wait() -> None:
    pass


@pytest.mark.req("ACP-CLIENT-010")
async def test_the_end_of_an_agent_is_known_before_its_calls_have_ended_and_close_waits_for_them() -> None:
    transport = OneRequest()
    handler = SlowToEnd(transport)
    connection = AgentConnection("Agent", transport, handler, no_wait)
    async with asyncio.timeout(3):  # less than the calls may take to end
        await connection.ended.wait()
        assert not handler.has_ended
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        assert not closing.done()
        handler.may_end.set()
        await closing
    assert handler.has_ended


class Writing(OneRequest):
    """The transport of an agent that asks for this and waits for the answer."""

    def __init__(self, line: bytes) -> None:
        super().__init__()
        self._line = line
        self.written: list[bytes] = []

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]:
        yield self._line
        await self.asked.wait()

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        self.asked.set()


@pytest.mark.parametrize("method", [b"fs/write_text_file", b"terminal/create"])
@pytest.mark.parametrize("text", [rb"a\u0000b", rb"a\ud800", b"a\xff"], ids=["NUL", "half a pair", "no UTF-8"])
async def test_a_request_that_writes_or_runs_something_is_refused_when_its_text_would_have_to_be_mended(
    method: bytes, text: bytes
) -> None:
    transport = Writing(b'{"jsonrpc":"2.0","id":7,"method":"%b","params":{"content":"%b"}}' % (method, text))
    connection = AgentConnection("Agent", transport, SlowToEnd(transport), no_wait)
    async with asyncio.timeout(3):
        await connection.ended.wait()
        await connection.close()
    (answer,) = map(msgspec.json.decode, transport.written)
    assert (answer["id"], answer["error"]["code"]) == (7, -32700)
