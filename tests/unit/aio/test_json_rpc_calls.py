"""Calls over a JSON-RPC peer: order, cancellation in both directions, deadlines, failures and the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from makai.aio.json_rpc_calls import JsonRpcCalls
from makai.core.errors import ChannelClosed, InvalidRequest, TransportError
from makai.wire import json_rpc
from makai.wire.json_rpc_errors import RpcError, decoded_params, decoded_result


class Side:
    """One side of a connection: what it wrote, what it was notified of, and how it answers."""

    def __init__(self, answer: Callable[[str, Any], Awaitable[Any]] | None = None) -> None:
        self.lines: list[bytes] = []
        self.seen: list[tuple[str, Any]] = []
        self.calls = JsonRpcCalls(self.lines.append, self)
        self._answer = answer

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        value = None if params is None else msgspec.json.decode(params)
        self.seen.append((method, value))
        return await self._answer(method, value) if self._answer is not None else value

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        self.seen.append((method, None if params is None else msgspec.json.decode(params)))

    def receive(self, *messages: Any) -> None:
        for message in messages:
            self.calls.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def request(self, number: int | str, method: str = "m", params: Any = None) -> None:
        self.receive({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})

    @property
    def written(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


async def settle(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def cancel_of(number: int | str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": number}}


async def never(method: str, params: Any) -> None:
    await asyncio.Event().wait()


async def test_a_request_is_answered_by_the_other_side() -> None:
    here, there = Side(), Side()
    asking = asyncio.create_task(here.calls.request("add", {"a": [1, None]}))
    await settle()
    there.receive(here.lines[0])
    await settle()
    here.receive(there.lines[0])
    assert msgspec.json.decode(await asking) == {"a": [1, None]}
    assert there.seen == [("add", {"a": [1, None]})]
    assert (len(here.lines), here.lines[0][-1:]) == (1, b"\n")


@pytest.mark.req("ACP-EXT-001", "ACP-EXT-002")
async def test_extensions_of_both_sides_reach_their_handlers_with_any_object_and_return_any_object() -> None:
    given = {"any": [1, None, {"deep": "Ü"}], "sessionId": 7, "_meta": {"a": 1.5}}

    async def answer(method: str, params: Any) -> Any:
        if method != "_vendor/known":
            raise RpcError(json_rpc.METHOD_NOT_FOUND, "No.")
        return {"got": params, "": [True]}

    one, other = Side(answer), Side(answer)
    for here, there in ((one, other), (other, one)):
        here.lines.clear()
        there.lines.clear()
        here.calls.notify("_vendor/said", given)
        asking = [asyncio.create_task(here.calls.request(name, given)) for name in ("_vendor/known", "_vendor/other")]
        await settle()
        there.receive(*here.lines)
        await settle()
        here.receive(*there.lines)
        known, unknown = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(known, msgspec.Raw)
        assert msgspec.json.decode(known) == {"got": given, "": [True]}
        assert isinstance(unknown, RpcError)
        assert unknown.rpc_code == -32601
        assert there.seen == [("_vendor/said", given), ("_vendor/known", given), ("_vendor/other", given)]
        assert len(there.lines) == 2, "a notification is never answered"


async def test_messages_take_effect_in_the_order_in_which_they_came() -> None:
    side = Side()
    for number in range(100):
        if number % 2:
            side.request(number, str(number))
        else:
            side.receive({"jsonrpc": "2.0", "method": str(number)})
    assert [method for method, _ in side.seen] == [str(number) for number in range(0, 100, 2)]
    await settle()
    assert [method for method, _ in side.seen[50:]] == [str(number) for number in range(1, 100, 2)]
    assert [answer["id"] for answer in side.written] == list(range(1, 100, 2))


async def test_an_answer_takes_effect_before_the_notification_that_follows_it() -> None:
    side = Side()
    asking = asyncio.create_task(side.calls.request("m"))
    await settle()
    side.receive({"jsonrpc": "2.0", "method": "before"}, {"jsonrpc": "2.0", "id": 1, "result": "yes"})
    side.receive({"jsonrpc": "2.0", "method": "after"})
    assert [method for method, _ in side.seen] == ["before", "after"]
    assert bytes(await asking) == b'"yes"'


async def test_a_request_that_the_other_side_cancels_ends_with_its_code() -> None:
    side = Side(never)
    side.request("a")
    await settle()
    side.receive(cancel_of("b"), cancel_of("a"), cancel_of("a"))
    await settle()
    assert [(each["id"], each["error"]["code"]) for each in side.written] == [("a", -32800)]
    side.request("a")  # the id is free again
    await settle()
    side.receive(cancel_of("a"))
    await settle()
    assert len(side.lines) == 2


async def test_a_request_that_is_cancelled_before_it_began_is_answered_too() -> None:
    side = Side(never)
    side.request(1)
    side.receive(cancel_of(1))
    await settle()
    assert [(each["id"], each["error"]["code"]) for each in side.written] == [(1, -32800)]
    side.request(1)
    await settle()
    side.receive({"jsonrpc": "2.0", "id": 1, "method": "m"})
    assert side.written[-1] == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32600, "message": "a request of this id is waiting already"},
    }
    await side.calls.close()


async def test_a_handler_may_answer_although_it_was_cancelled() -> None:
    async def answer(method: str, params: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        raise AssertionError

    side = Side(answer)
    side.request(1)
    await settle()
    side.receive(cancel_of(1))
    await settle()
    assert side.written == [{"jsonrpc": "2.0", "id": 1, "result": "late"}]
    side.receive(cancel_of(1))  # answered already
    await settle()
    assert len(side.lines) == 1


async def test_a_wait_that_is_cancelled_here_asks_the_other_side_to_stop_and_ignores_its_answer() -> None:
    side = Side()
    asking = asyncio.create_task(side.calls.request("m"))
    await settle()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert side.written[1] == cancel_of(1)
    side.receive({"jsonrpc": "2.0", "id": 1, "result": None}, {"jsonrpc": "2.0", "id": 1, "result": None})
    assert (len(side.lines), side.calls.malformed) == (2, 0)


async def test_a_deadline_ends_the_wait_and_the_request() -> None:
    side = Side()
    with pytest.raises(TransportError, match=r"No answer to slow within 0\.01 s\."):
        await side.calls.request("slow", seconds=0.01)
    assert [each["method"] for each in side.written] == ["slow", "$/cancel_request"]


async def test_the_error_of_the_other_side_is_raised_with_its_code_and_data() -> None:
    side = Side()
    asking = asyncio.create_task(side.calls.request("m"))
    await settle()
    error = {"code": -32000, "message": "x" * 5_000, "data": {"authMethods": []}}
    side.receive({"jsonrpc": "2.0", "id": 1, "error": error})
    with pytest.raises(RpcError) as caught:
        await asking
    assert (caught.value.rpc_code, len(caught.value.message)) == (-32000, 2_000)
    assert msgspec.json.decode(caught.value.data) == {"authMethods": []}


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (RpcError(-32002, "gone", {"uri": "x"}), {"code": -32002, "message": "gone", "data": {"uri": "x"}}),
        (InvalidRequest("not\n  so", hint="Do that."), {"code": -32603, "message": "not so Do that."}),
        (ValueError("secret"), {"code": -32603, "message": "internal error"}),
        (RpcError(-32602, "half a pair: \ud800"), {"code": -32603, "message": "internal error"}),
        (InvalidRequest("half a pair: \ud800"), {"code": -32603, "message": "internal error"}),
        (RpcError(-32602, "data", object()), {"code": -32603, "message": "internal error"}),
    ],
)
async def test_a_handler_that_fails_is_answered(failure: Exception, error: dict[str, Any]) -> None:
    async def fail(method: str, params: Any) -> None:
        raise failure

    side = Side(fail)
    side.request(1)
    await settle()
    assert side.written == [{"jsonrpc": "2.0", "id": 1, "error": error}]
    side.request(1)
    await settle()
    assert len(side.lines) == 2


async def test_a_result_that_cannot_be_written_is_an_error() -> None:
    async def answer(method: str, params: Any) -> object:
        return object()

    side = Side(answer)
    side.request(1)
    await settle()
    assert side.written == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "internal error"}}]


async def test_the_end_fails_what_waits_and_cancels_what_runs() -> None:
    ended: list[str] = []

    async def answer(method: str, params: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(method)

    side = Side(answer)
    asking = asyncio.create_task(side.calls.request("mine"))
    side.request(1, "theirs")
    await settle()
    side.request(2, "not begun")
    await side.calls.close(TransportError("The agent has exited."))
    with pytest.raises(TransportError, match="The agent has exited"):
        await asking
    assert ended == ["theirs"]
    written = len(side.lines)
    side.calls.notify("after")
    with pytest.raises(TransportError, match="The agent has exited"):
        await side.calls.request("after")
    await side.calls.close()
    with pytest.raises(ChannelClosed):
        await side.calls.request("after")
    assert len(side.lines) == written


async def test_what_is_no_message_is_answered_and_counted() -> None:
    side = Side()
    side.receive(b"{", b"[]", b'{"jsonrpc":"2.0","id":5,"method":6}', b"", b'{"jsonrpc":"2.0","method":7}')
    side.calls.refuse_line(-32600, "The line is too long.")
    assert [(each["id"], each["error"]["code"]) for each in side.written] == [
        (None, -32700), (None, -32600), (5, -32600), (None, -32600),
    ]  # fmt: skip
    assert side.calls.malformed == 4
    side.request(1)
    await settle()
    assert side.written[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_1024_requests_may_wait_in_each_direction() -> None:
    side = Side(never)
    for number in range(json_rpc.MAX_PENDING + 1):
        side.request(number)
    await settle()
    assert [(each["id"], each["error"]["code"]) for each in side.written] == [(json_rpc.MAX_PENDING, -32603)]
    side.receive(cancel_of(0))
    await settle()
    side.request("one more")
    await settle()
    assert len(side.lines) == 2
    side.lines.clear()
    asking = [asyncio.create_task(side.calls.request("m")) for _ in range(json_rpc.MAX_PENDING)]
    await settle()
    with pytest.raises(TransportError, match="1024 requests are waiting"):
        await side.calls.request("m")
    for each in reversed(side.written):
        side.receive({"jsonrpc": "2.0", "id": each["id"], "result": each["id"]})
    assert [msgspec.json.decode(answer) for answer in await asyncio.gather(*asking)] == list(range(1, 1025))
    await side.calls.close()


def test_parameters_and_results_that_do_not_fit_say_why() -> None:
    decoder = msgspec.json.Decoder(dict[str, int])
    assert decoded_params(decoder, None) == {}
    assert decoded_params(decoder, msgspec.Raw(b'{"a":1}')) == {"a": 1}
    with pytest.raises(RpcError, match=r"Expected `int`, got `str`") as caught:
        decoded_params(decoder, msgspec.Raw(b'{"a":"x"}'))
    assert caught.value.rpc_code == -32602
    with pytest.raises(TransportError, match="The answer to m cannot be read: "):
        decoded_result(decoder, msgspec.Raw(b"[]"), "m")
