"""The client side of one connection, sans-IO: requests to an outbox, and frames of the server to `Reply`s."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from makai.core.errors import InvalidRequest, ParseError
from makai.protocols.makai.envelope import MAX_DEPTH, Encoding, Fragment, Scope, ScopeKind
from makai.protocols.makai.framing import EnvelopeSender, FragmentLimits, Reassembler, unix_milliseconds
from makai.wire import strict_json


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One server envelope. Frames of the host (`ready`, `error`) have no scope, and `payload` holds them whole."""

    type: str
    scope: Scope | None
    in_reply_to: str | None
    payload: msgspec.Raw


class _Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """A server envelope; the payload stays bytes until someone wants it."""

    type: str
    stream_id: str | None = None
    session_id: str | None = None
    server_id: str | None = None
    message_id: str = ""
    sequence: int = 0
    in_reply_to: str | None = None
    fragment: Fragment | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def scope(self) -> Scope | None:
        if self.stream_id is not None:
            return Scope("stream_id", self.stream_id)
        if self.session_id is not None:
            return Scope("session_id", self.session_id)
        return Scope("server_id", self.server_id) if self.server_id is not None else None


_decode = msgspec.json.Decoder(_Inbound).decode


def encoded_request(payload: Any) -> bytes:
    """The JSON of a request's payload; `InvalidRequest` if no server would take it."""
    try:
        encoded = strict_json.encode(payload)
        strict_json.check(encoded, max_bytes=FragmentLimits().message_bytes, max_depth=MAX_DEPTH - 1)
    except ParseError as error:
        raise InvalidRequest(f"the request cannot be sent: {error.message}") from None
    except (TypeError, RecursionError) as error:
        raise InvalidRequest(f"the request cannot be written as JSON: {error}") from None
    return encoded


class ClientConnection:
    def __init__(
        self,
        frame_bytes: int = 16 * 1024 * 1024,
        fragments: FragmentLimits | None = None,
        clock: Callable[[], int] = unix_milliseconds,
    ) -> None:
        self._sender = EnvelopeSender(frame_bytes, clock)
        self._reassembler = Reassembler(fragments or FragmentLimits())

    @property
    def pending_bytes(self) -> int:
        return self._sender.pending_bytes

    def take(self) -> list[bytes]:
        return self._sender.take()

    def begin(self, kind: ScopeKind = "stream_id", scope_id: str | None = None) -> Scope:
        """A scope that counts from 1: a new one of our own, or that of a session."""
        scope = Scope(kind, scope_id or str(uuid.uuid4()))
        self._sender.sequences.begin(scope)
        return scope

    def send(self, scope: Scope, kind: str, payload: Any, encoding: Encoding = "full") -> str:
        """Put a request into the outbox; its message id is what an ack or nack will name. `InvalidRequest` for what a
        server would refuse to read, and then nothing was sent or counted."""
        encoded = msgspec.Raw(encoded_request(payload))
        return self._sender.send(scope, kind, encoded, encoding="proxy" if encoding == "proxy" else None)

    def end(self, scope: Scope) -> None:
        self._sender.sequences.forget(scope)

    def receive(self, frame: bytes, now: float) -> Reply | None:
        """Take one frame; None for a fragment whose message is not complete yet. `ParseError` on what no server of this
        protocol sends."""
        try:
            inbound = _decode(frame)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ParseError(f"the server sent something that is no envelope: {error}") from error
        if inbound.scope is None:
            return Reply(type=inbound.type, scope=None, in_reply_to=None, payload=msgspec.Raw(frame))
        payload = inbound.payload
        if inbound.fragment is not None:
            self._reassembler.expire(now)
            piece = msgspec.json.decode(payload)
            try:
                kind = inbound.type, inbound.in_reply_to
                joined = self._reassembler.add(inbound.scope, inbound.fragment, inbound.sequence, piece, now, kind)
            except InvalidRequest as error:
                raise ParseError(f"the server sent fragments that do not fit: {error.message}") from error
            if joined is None:
                return None
            payload = msgspec.Raw(joined.payload)
        return Reply(type=inbound.type, scope=inbound.scope, in_reply_to=inbound.in_reply_to, payload=payload)
