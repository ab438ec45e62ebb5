"""Errors of JSON-RPC, and parameters and results that raise them when they cannot be read."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from makai.core.errors import MakaiError, ParseError, TransportError
from makai.wire import json_rpc, strict_json

T = TypeVar("T")

MAX_MESSAGE_LENGTH: Final = 2_000


class RpcError(MakaiError):
    """An error of JSON-RPC: one to answer with, or the answer of the other side. On our own wires, where it should not
    appear, it is an `internal_error`."""

    def __init__(self, rpc_code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.data = data
        """A value that can be encoded, or the raw JSON of the other side; None when there is none."""


def decoded_params(decoder: msgspec.json.Decoder[T], params: msgspec.Raw | None) -> T:
    """The parameters of a request; `RpcError` -32602 says what is wrong with them. Absent ones count as `{}`."""
    try:
        return strict_json.decode_with(decoder, b"{}" if params is None else bytes(params))
    except ParseError as error:
        raise RpcError(json_rpc.INVALID_PARAMS, error.message) from None


def decoded_result(decoder: msgspec.json.Decoder[T], result: msgspec.Raw, method: str) -> T:
    """The result of a request made here; `TransportError` when the other side breaks the protocol."""
    try:
        return strict_json.decode_with(decoder, bytes(result))
    except ParseError as error:
        raise TransportError(f"The answer to {method} cannot be read: {error.message}") from None
