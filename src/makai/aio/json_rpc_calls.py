"""Calls over a JSON-RPC peer: requests made here become awaitable, requests of the other side become tasks.

It has no I/O of its own: lines come in by `receive`, in order, and leave by `write`. Notifications and responses take
effect inside `receive`, so their order is kept; a request of the other side runs in its own task, which starts in the
order of the requests. The owner closes it: nothing waits and no task is left afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol, assert_never

import msgspec

from makai.core.errors import ChannelClosed, MakaiError, TransportError
from makai.wire import json_rpc, strict_json
from makai.wire.json_rpc_errors import MAX_MESSAGE_LENGTH, RpcError

log = logging.getLogger(__name__)

_CLOSE_S: Final = 5.0

answered_request: Final[ContextVar[json_rpc.RequestId]] = ContextVar("answered_request")
"""The id of the request that `RpcHandler.on_request` is answering, for messages that refer to it."""


class RpcHandler(Protocol):
    """What the other side may call."""

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        """The result. `RpcError` is answered as it is, any other failure as -32603; when the other side cancels the
        request, this is cancelled, and -32800 is answered."""

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        """Never raises; the other side gets no answer."""


class JsonRpcCalls:
    def __init__(self, write: Callable[[bytes], None], handler: RpcHandler, *, lenient: bool = False) -> None:
        """`write` takes a whole line, including its newline, and never waits."""
        self._peer = json_rpc.JsonRpcPeer(lenient=lenient)
        self._write = write
        self._handler = handler
        self._waiting: dict[json_rpc.RequestId, asyncio.Future[msgspec.Raw]] = {}
        self._answering: dict[json_rpc.RequestId, asyncio.Task[None]] = {}
        self._ended: MakaiError | None = None

    @property
    def malformed(self) -> int:
        """How many lines of the other side were refused."""
        return self._peer.malformed

    async def request(self, method: str, params: Any = None, *, seconds: float | None = None) -> msgspec.Raw:
        """The result. `RpcError` when the other side refuses, `TransportError` when it is gone or does not answer in
        time. A wait that ends early asks the other side to stop."""
        if self._ended is not None:
            raise self._ended
        request_id, line = self._peer.request(method, params)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            self._write(line)
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise TransportError(f"No answer to {method} within {seconds:g} s.") from None
        finally:
            del self._waiting[request_id]
            if not answer.done() or answer.cancelled():
                self._give_up(request_id)

    def notify(self, method: str, params: Any = None) -> None:
        if self._ended is None:
            self._write(self._peer.notify(method, params))

    def receive(self, line: bytes) -> None:
        """Take the next line of the other side."""
        for event in self._peer.receive(line):
            match event:
                case json_rpc.IncomingNotification(method, params):
                    self._handler.on_notification(method, params)
                case json_rpc.IncomingRequest():
                    task = asyncio.get_running_loop().create_task(self._answer(event), name=f"rpc {event.method}")
                    self._answering[event.id] = task
                case json_rpc.Response(request_id, result):
                    self._settle(request_id, result)
                case json_rpc.ErrorResponse(request_id, code, message, data):
                    if request_id is not None:
                        self._settle(request_id, RpcError(code, message[:MAX_MESSAGE_LENGTH], data))
                case json_rpc.Cancelled(request_id):
                    if (answering := self._answering.get(request_id)) is not None:
                        # Not before its first step: a task that is cancelled earlier never runs, and answers nothing.
                        asyncio.get_running_loop().call_soon(answering.cancel)
                case json_rpc.Malformed(reply=reply):
                    if reply is not None:
                        self._write(reply)
                case _:
                    assert_never(event)

    def refuse_line(self, code: int, message: str, start: bytes = b"") -> None:
        """Answer a line that could not be taken at all, such as one that is too long. `start` is how it begins: it may
        hold the id to answer under, or of the request here whose answer it was."""
        members = strict_json.readable_members(start)
        given = members.get("id")
        request_id = given if isinstance(given, int | str) and not isinstance(given, bool) else None
        if "method" not in members and request_id in self._waiting:
            self._settle(request_id, RpcError(code, message))
            return
        error = {"code": code, "message": message}
        self._write(strict_json.encode({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\n")

    async def close(self, reason: MakaiError | None = None) -> None:
        """The connection ended: everything that waits here fails with `reason`, everything that runs is cancelled."""
        self._ended = reason or ChannelClosed("The connection has ended.")
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._ended)
        tasks = set(self._answering.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)

    def _settle(self, request_id: json_rpc.RequestId, outcome: msgspec.Raw | RpcError) -> None:
        answer = self._waiting.get(request_id)
        if answer is None or answer.done():
            return
        if isinstance(outcome, RpcError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _give_up(self, request_id: int) -> None:
        line = self._peer.cancel(request_id) if self._ended is None else None
        self._peer.forget(request_id)
        if line is not None:
            self._write(line)

    async def _answer(self, request: json_rpc.IncomingRequest) -> None:
        answered_request.set(request.id)
        try:
            result = await self._handler.on_request(request.method, request.params)
            line = self._peer.respond(request.id, result)
        except asyncio.CancelledError:
            line = self._peer.respond_error(request.id, json_rpc.REQUEST_CANCELLED, "The request was cancelled.")
            if self._ended is not None:
                raise
        except Exception as error:
            line = self._refusal(request, error)
        finally:
            self._answering.pop(request.id, None)
        self._write(line)

    def _refusal(self, request: json_rpc.IncomingRequest, error: Exception) -> bytes:
        try:
            if isinstance(error, RpcError):
                return self._peer.respond_error(request.id, error.rpc_code, error.message, error.data)
            if isinstance(error, MakaiError):
                return self._peer.respond_error(request.id, json_rpc.INTERNAL_ERROR, " ".join(str(error).split()))
        except Exception as unwritable:  # half of a surrogate pair, or data that is no JSON
            error = unwritable
        log.error("%s failed unexpectedly", request.method, exc_info=error)
        return self._peer.respond_error(request.id, json_rpc.INTERNAL_ERROR, "internal error")
