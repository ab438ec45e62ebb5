"""The first bytes that a client sends through a tunnel: TLS must name the host that was allowed.

Many hosts share the addresses of a content network, and the name in the TLS handshake decides which of them answers. A
tunnel to an allowed one would otherwise be a tunnel to all of them. On the ports of the web nothing but TLS is let
through, since plain HTTP goes to the proxy itself, where its host is checked. Without input or output.
"""

from __future__ import annotations

from typing import Final

from makai.tools.sandbox.hosts import DEFAULT_PORTS, canonical_name
from makai.tools.sandbox.proxy_requests import ProxyRequest

MAX_HELLO_BYTES: Final = 16 * 1024
_MAX_RECORDS: Final = 8
"""Programs send one or two; every further one costs time of makai whenever a byte comes."""
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class TunnelStart:
    """Holds back what a client sends until it is known to be fine."""

    def __init__(self, request: ProxyRequest) -> None:
        self._name = request.name
        self._may_be_plain = request.port not in DEFAULT_PORTS
        self._data = bytearray()
        self.is_open = False
        """Whether the rest may pass without being looked at."""

    @property
    def may_end(self) -> bool:
        """Whether the client has sent nothing that is still held back."""
        return self.is_open or not self._data

    def take(self, data: bytes) -> tuple[bytes, bool]:
        """What the server may have now, and whether the tunnel may stay."""
        self._data += data
        if self._data[:1] != bytes((_HANDSHAKE,)):
            return self._opened() if self._may_be_plain else (b"", False)
        try:
            name = _server_name(bytes(self._data))
        except (ValueError, IndexError):
            return b"", False
        if name is None:
            return b"", len(self._data) < MAX_HELLO_BYTES
        return self._opened() if canonical_name(name) == self._name else (b"", False)

    def _opened(self) -> tuple[bytes, bool]:
        self.is_open = True
        data, self._data = bytes(self._data), bytearray()
        return data, True


def _server_name(data: bytes) -> str | None:
    """The host that a ClientHello names; None while it is incomplete. `ValueError` when it is none or not exactly one
    name: a server might read another."""
    hello = _handshake_message(data)
    if hello is None:
        return None
    fields = _Fields(hello)
    fields.skip(2 + 32)  # the version and the random bytes
    fields.vector(1)  # the session
    fields.vector(2)  # the ciphers
    fields.vector(1)  # the compressions
    extensions = _Fields(fields.vector(2))
    fields.end()
    found: list[bytes] = []
    while extensions.has_more:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names = _Fields(body)
            entries = _Fields(names.vector(2))
            names.end()
            while entries.has_more:
                if entries.number(1) != _HOST_NAME:
                    raise ValueError("a name of another kind")
                found.append(entries.vector(2))
    if len(found) != 1:
        raise ValueError("not one name")
    return found[0].decode("ascii")


def _handshake_message(data: bytes) -> bytes | None:
    """The body of the first handshake message, which may come in several records; None while it is incomplete."""
    records, message = _Fields(data), b""
    for _ in range(_MAX_RECORDS):
        if len(message) >= 4:
            length = int.from_bytes(message[1:4], "big")
            if message[0] != _CLIENT_HELLO or length > MAX_HELLO_BYTES:
                raise ValueError("not a ClientHello")
            if len(message) >= 4 + length:
                return message[4 : 4 + length]
        if records.left < 5:
            return None
        kind, major, _, length = (records.number(size) for size in (1, 1, 1, 2))
        if kind != _HANDSHAKE or major != 3 or length == 0:
            raise ValueError("not a handshake of TLS")
        if records.left < length:
            return None
        message += records.skip(length)
    raise ValueError("too many records")


class _Fields:
    """Reads the fields of TLS one after the other; `ValueError` when they do not fit."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    @property
    def has_more(self) -> bool:
        return self.left > 0

    def skip(self, count: int) -> bytes:
        if self.left < count:
            raise ValueError("too short")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.skip(size), "big")

    def vector(self, size: int) -> bytes:
        """What follows its own length, which has `size` bytes."""
        return self.skip(self.number(size))

    def end(self) -> None:
        if self.has_more:
            raise ValueError("too long")
