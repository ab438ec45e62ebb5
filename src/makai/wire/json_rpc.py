"""One JSON-RPC 2.0 peer, sans-IO: lines in, events out; calls in, lines out. Both sides may send requests.

Framing is one message per line. `params`, `result` and `data` stay raw JSON, so that fields unknown to this version
survive a relay and an explicit `null` differs from an absent member (`None`). Ids are integers or strings, compared by
type and value and echoed byte for byte. Messages are reported in the order they arrive; nothing that a peer sends
raises or ends the connection.

Batches are refused, as ACP and MCP do: one error for the whole line. `$/cancel_request` is understood in both
directions. Codex's app-server leaves out the `jsonrpc` member and knows no `$/cancel_request`: `lenient` accepts the
first, leaves it out as well, and sends no cancels.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from makai.core.errors import InvalidRequest, ParseError, TransportError
from makai.wire import strict_json
from makai.wire.json_repair import carried

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
AUTH_REQUIRED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002
REQUEST_CANCELLED: Final = -32800

CANCEL_METHOD: Final = "$/cancel_request"
MAX_PENDING: Final = 1024
MAX_ID_BYTES: Final = 1024
MAX_SHOWN_BYTES: Final = 500
"""Of an error that is not one of JSON-RPC."""

RequestId: TypeAlias = int | str

_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,99})")
_NULL: Final = b"null"
_NULL_RAW: Final = msgspec.Raw(_NULL)
_VERSION: Final = msgspec.Raw(b'"2.0"')
_ABSENT: Final = msgspec.Raw()

T = TypeVar("T")


class IncomingRequest(msgspec.Struct, frozen=True):
    """The peer waits for `respond` or `respond_error` with this id."""

    id: RequestId
    method: str
    params: msgspec.Raw | None


class IncomingNotification(msgspec.Struct, frozen=True):
    method: str
    params: msgspec.Raw | None


class Response(msgspec.Struct, frozen=True):
    id: RequestId
    result: msgspec.Raw


class ErrorResponse(msgspec.Struct, frozen=True):
    """The error of a request made here; `id` is None when the peer could not read which one."""

    id: RequestId | None
    code: int
    message: str
    data: msgspec.Raw | None = None


class Cancelled(msgspec.Struct, frozen=True):
    """The peer no longer wants the answer to its request `id`, but still expects one: a result or -32800."""

    id: RequestId


class Malformed(msgspec.Struct, frozen=True):
    """A line that was refused. `reply` is the error to send back, or None where JSON-RPC wants no answer."""

    code: int
    message: str
    reply: bytes | None


RpcEvent: TypeAlias = IncomingRequest | IncomingNotification | Response | ErrorResponse | Cancelled | Malformed


class _Message(msgspec.Struct, frozen=True):
    jsonrpc: msgspec.Raw = _ABSENT
    id: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class _Error(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: msgspec.Raw = _ABSENT


class _Cancellation(msgspec.Struct, frozen=True, rename="camel"):
    request_id: msgspec.Raw


_message = msgspec.json.Decoder(_Message)
_error = msgspec.json.Decoder(_Error)
_cancellation = msgspec.json.Decoder(_Cancellation)
_text = msgspec.json.Decoder(str)


class JsonRpcPeer:
    """The state of one connection: which requests are unanswered, in both directions.

    At most `max_pending` requests may be unanswered in each direction. Further ones of the peer are refused with
    -32603; further ones of this side raise `TransportError`.
    """

    def __init__(self, *, lenient: bool = False, max_pending: int = MAX_PENDING) -> None:
        self._lenient = lenient
        self._head = b"{" if lenient else b'{"jsonrpc":"2.0",'
        self._max_pending = max_pending
        self._next_id = 1
        self._sent: set[RequestId] = set()
        self._received: dict[RequestId, bytes] = {}
        """Unanswered requests of the peer: id -> its bytes on the wire."""
        self.stray_responses = 0
        """Responses that match no waiting request: unknown ids, or a second answer."""
        self.malformed = 0

    def request(self, method: str, params: Any = None) -> tuple[int, bytes]:
        """A new request: its id, and the line to send. `params` of None is left out; pass `Raw(b"null")` for null."""
        if len(self._sent) >= self._max_pending:
            raise TransportError(f"{self._max_pending} requests are waiting for the other side's answers")
        number = self._next_id
        line = self._line(b'"id":%d,"method":%s' % (number, strict_json.encode(method)), b"params", params)
        self._next_id += 1
        self._sent.add(number)
        return number, line

    def notify(self, method: str, params: Any = None) -> bytes:
        return self._line(b'"method":' + strict_json.encode(method), b"params", params)

    def cancel(self, request_id: int) -> bytes | None:
        """Ask the peer to stop a request made here; None when it is answered already, or the peer cannot be asked. The
        answer still comes."""
        is_asked = request_id in self._sent and not self._lenient
        return self.notify(CANCEL_METHOD, {"requestId": request_id}) if is_asked else None

    def forget(self, request_id: int) -> None:
        """Stop waiting for the answer to a request made here; if it comes, it counts as stray."""
        self._sent.discard(request_id)

    def respond(self, request_id: RequestId, result: Any) -> bytes:
        """The line that answers a request of the peer. `InvalidRequest` when that request is not waiting."""
        line = self._line(b'"id":' + self._waiting(request_id), b"result", _NULL_RAW if result is None else result)
        del self._received[request_id]
        return line

    def respond_error(self, request_id: RequestId, code: int, message: str, data: Any = None) -> bytes:
        """The line that refuses a request of the peer. `InvalidRequest` when that request is not waiting."""
        line = self._error_line(self._waiting(request_id), code, message, data)
        del self._received[request_id]
        return line

    def receive(self, line: bytes) -> list[RpcEvent]:
        """The event that a line stands for; none for blank lines and stray responses. Never raises."""
        line = line.strip()
        if not line:
            return []
        try:
            message = strict_json.decode_with(_message, line)
        except ParseError as error:
            return self._refused_line(line, error)
        if not self._lenient and message.jsonrpc != _VERSION:
            return [self._refuse(message, '`jsonrpc` must be "2.0"')]
        return self._on_response(message) if message.method == _ABSENT else self._on_call(message)

    def _on_call(self, message: _Message) -> list[RpcEvent]:
        params = _present(message.params)
        method = _decoded(_text, message.method)
        if method is None:
            return [self._refuse(message, "`method` must be a string")]
        if params is not None and bytes(params)[:1] not in (b"{", b"[", b"n"):
            return [self._refuse(message, "`params` must be an object or an array")]
        if message.id == _ABSENT:
            return (
                self._on_cancel(message.params) if method == CANCEL_METHOD else [IncomingNotification(method, params)]
            )
        request_id, raw_id = _id_of(message.id), bytes(message.id)
        if request_id is None:
            return [self._refuse(message, "`id` must be an integer or a string")]
        if request_id in self._received:
            # Not answered under this id: the peer would take it for the answer to its first request.
            return [self._malformed(INVALID_REQUEST, "a request of this id is waiting already", _NULL)]
        if len(self._received) >= self._max_pending:
            return [self._malformed(INTERNAL_ERROR, f"{self._max_pending} requests are waiting already", raw_id)]
        self._received[request_id] = raw_id
        return [IncomingRequest(request_id, method, params)]

    def _on_cancel(self, params: msgspec.Raw) -> list[RpcEvent]:
        cancellation = _decoded(_cancellation, params)
        request_id = _id_of(cancellation.request_id) if cancellation is not None else None
        if request_id is None:
            return [self._malformed(INVALID_PARAMS, f"{CANCEL_METHOD} names no request", None)]
        return [Cancelled(request_id)] if request_id in self._received else []

    def _on_response(self, message: _Message) -> list[RpcEvent]:
        failed = message.error not in (_ABSENT, _NULL_RAW)
        error = _decoded(_error, message.error) if failed else None
        if error is None and (failed or message.result == _ABSENT):
            said = bytes(message.error)[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
            return [self._refuse(message, f"its error is {said}" if failed else "neither a request nor a response")]
        request_id = _id_of(message.id)
        if request_id in self._sent:
            self._sent.discard(request_id)
        elif error is None or request_id is not None:
            self.stray_responses += 1
            return []
        if error is not None:
            return [ErrorResponse(request_id, error.code, error.message, _present(error.data))]
        assert request_id is not None
        return [Response(request_id, message.result)]

    def _refused_line(self, line: bytes, error: ParseError) -> list[RpcEvent]:
        known = strict_json.readable_members(line)
        if type(known.get("id")) is int and known["id"] in self._sent and "method" not in known:
            # The answer to a request made here: text that is refused elsewhere is carried, because it is often that of
            # a file or a command. What is no JSON ends the request, so that what waits for it does not hang.
            if (readable := carried(line)) != line and _is_json(readable):
                return self.receive(readable)
            self.malformed += 1
            self._sent.discard(known["id"])
            return [ErrorResponse(known["id"], PARSE_ERROR, f"The answer cannot be read: {error.message}")]
        if not _is_json(line):
            return [self._malformed(PARSE_ERROR, error.message, self._readable_id(line))]
        what = "batches are not supported" if line.startswith(b"[") else "a message must be a JSON object"
        return [self._malformed(INVALID_REQUEST, what, _NULL)]

    def _readable_id(self, line: bytes) -> bytes:
        """The id of a request with text that is not taken here, such as a NUL or half a surrogate pair: its sender
        would wait for its answer. `null` when the line is not a whole message."""
        members = strict_json.readable_members(line) if line.endswith(b"}") else {}
        raw_id = strict_json.encode(members.get("id"))
        request_id = _id_of(msgspec.Raw(raw_id))
        return _NULL if request_id is None or request_id in self._received or "method" not in members else raw_id

    def _refuse(self, message: _Message, why: str) -> RpcEvent:
        """Refuse a message that parsed. Notifications and responses get no answer. An answer to a request made here
        ends it all the same, so that what waits for it does not hang."""
        request_id = _id_of(message.id)
        if message.method == _ABSENT and request_id in self._sent:
            self.malformed += 1
            self._sent.discard(request_id)
            return ErrorResponse(request_id, INVALID_REQUEST, f"The answer cannot be read: {why}")
        is_notification = message.id == _ABSENT and message.method != _ABSENT
        is_response = message.method == _ABSENT and (message.result, message.error) != (_ABSENT, _ABSENT)
        if is_notification or is_response:
            return self._malformed(INVALID_REQUEST, why, None)
        return self._malformed(INVALID_REQUEST, why, _NULL if request_id is None else bytes(message.id))

    def _malformed(self, code: int, why: str, reply_id: bytes | None) -> Malformed:
        self.malformed += 1
        return Malformed(code, why, None if reply_id is None else self._error_line(reply_id, code, why, None))

    def _waiting(self, request_id: RequestId) -> bytes:
        raw = self._received.get(request_id)
        if raw is None:
            raise InvalidRequest(f"The request {request_id!r} is not waiting for an answer.")
        return raw

    def _error_line(self, raw_id: bytes, code: int, message: str, data: Any) -> bytes:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        return self._line(b'"id":' + raw_id, b"error", error)

    def _line(self, start: bytes, name: bytes, value: Any) -> bytes:
        member = b"" if value is None else b',"%s":%s' % (name, strict_json.encode(value))
        # A raw value may be spread over lines; in JSON, LF stands only between tokens.
        return (self._head + start + member + b"}").replace(b"\n", b" ") + b"\n"


def _is_json(line: bytes) -> bool:
    try:
        strict_json.decode(line)
    except ParseError:
        return False
    return True


def _id_of(raw: msgspec.Raw) -> RequestId | None:
    """The id, or None when it is neither an integer nor a string of reasonable size."""
    data = bytes(raw)
    if data[:1] == b'"' and len(data) <= MAX_ID_BYTES:
        return _decoded(_text, raw)
    return int(data) if _INTEGER.fullmatch(data) else None


def _present(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if raw == _ABSENT else raw


def _decoded(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return None
