"""What a client asks of the proxy, parsed without any input or output: HTTP `CONNECT`, plain HTTP and SOCKS5.

The client is not trusted. Whatever is not exactly of the expected form is refused and never repaired, since the other
side might read it differently. A connection carries one request: bytes behind the body of a plain one end it, because
they could be a second request for another host.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

from makai.tools.sandbox.hosts import canonical_name

MAX_HEAD_BYTES: Final = 32 * 1024
_MAX_CHUNK_LINE: Final = 17
_SMALL_CHUNK, _MAX_SMALL_CHUNKS = 64, 1000
"""Each chunk costs time of makai; programs do not send many small ones."""
_SOCKS_VERSION: Final = 5
_SOCKS_CONNECT, _SOCKS_NAME, _SOCKS_NO_PASSWORD = 1, 3, 0
_SOCKS_CODES: Final = {200: 0, 400: 1, 403: 2, 502: 5, 504: 4, 501: 7}
_REASONS: Final = {400: "Bad Request", 403: "Forbidden", 501: "Not Implemented", 502: "Bad Gateway"} | {
    504: "Gateway Timeout"
}

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE: Final = re.compile(rb"(%b) ([\x21-\x7e]+) HTTP/1\.[01]" % _TOKEN)
_FIELD: Final = re.compile(rb"(%b):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)" % _TOKEN)
_TARGET: Final = re.compile(r"http://([^/?#@\\]+)([/?][^#]*)?", re.ASCII | re.IGNORECASE)
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})\r\n")
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"keep-alive", b"te"}
    | {b"trailer", b"upgrade", b"http2-settings", b"host"}
)
"""Fields for the next machine only (RFC 9110 section 7.6.1), and `Host`, which is written again."""
_DIRECT: Final = "a connection past HTTP_PROXY and HTTPS_PROXY, which are the only way to the network here"

Protocol: TypeAlias = Literal["http", "connect", "socks5"]


class ProxyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Where the client wants to go, in the form of `canonical_name`."""

    protocol: Protocol
    name: str
    port: int
    head: bytes = b""
    """What the server gets first: the request of plain HTTP, in the form for an origin server."""
    body: int | None = 0
    """The length of its body; None when it comes in chunks."""

    @property
    def host(self) -> str:
        return f"{self.name}:{self.port}"


class MalformedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request cannot be served, and what the client is sent before the connection ends."""

    reason: str
    answer: bytes


class RequestParser:
    """Takes the first bytes of a connection until they are a request."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_greeted = False

    @property
    def rest(self) -> bytes:
        """What came behind the request."""
        return bytes(self._data)

    def feed(self, data: bytes) -> tuple[bytes, ProxyRequest | MalformedRequest | None]:
        """What to send back now, and the request once it is complete."""
        self._data += data
        if not self._data:
            return b"", None
        if self._data[0] == _SOCKS_VERSION:
            return self._socks()
        if not 0x41 <= self._data[0] <= 0x5A:  # methods are upper case; TLS without CONNECT begins with 0x16
            return b"", MalformedRequest(reason=_DIRECT, answer=b"")
        end = self._data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        if end < 0:
            too_long = len(self._data) >= MAX_HEAD_BYTES
            return b"", malformed("http", "the head of the request is too long") if too_long else None
        head = bytes(self._data[:end])
        del self._data[: end + 4]
        return b"", _http_request(head)

    def _socks(self) -> tuple[bytes, ProxyRequest | MalformedRequest | None]:
        said, data = b"", self._data
        if not self._is_greeted:
            if len(data) < 2 or len(data) < 2 + data[1]:
                return b"", None
            offered = data[2 : 2 + data[1]]
            del data[: 2 + len(offered)]
            if _SOCKS_NO_PASSWORD not in offered:
                return b"", MalformedRequest(reason="SOCKS5 with a password", answer=b"\x05\xff")
            self._is_greeted, said = True, b"\x05\x00"
        if data and data[0] != _SOCKS_VERSION:
            return said, malformed("socks5", "not a SOCKS5 request")
        if len(data) < 5:
            return said, None
        _, command, reserved, kind, length = data[:5]
        if command != _SOCKS_CONNECT or reserved:
            return said, malformed("socks5", "only CONNECT of SOCKS5 is served", status=501)
        if kind != _SOCKS_NAME:
            return said, malformed("socks5", "an address instead of a name (use socks5h)", status=403)
        if len(data) < 7 + length:
            return said, None
        name, port = bytes(data[5 : 5 + length]), int.from_bytes(data[5 + length : 7 + length], "big")
        del data[: 7 + length]
        return said, _request("socks5", name.decode("latin-1"), port)


def _http_request(head: bytes) -> ProxyRequest | MalformedRequest:
    first, *lines = head.split(b"\r\n")
    parsed = _REQUEST_LINE.fullmatch(first)
    fields = [_FIELD.fullmatch(line) for line in lines]
    if parsed is None or not all(fields):
        return malformed("http", "not an HTTP/1.1 request")
    method, target = parsed[1], parsed[2].decode("ascii")
    given = [(field[1], field[2].rstrip(b" \t")) for field in fields if field]
    url = _TARGET.fullmatch(target)
    if method == b"CONNECT":
        asked = _request("connect", *_host_and_port(target))
    elif url is not None:
        asked = _request("http", *_host_and_port(url[1], 80))
    else:
        direct = target.startswith("/")
        return malformed("http", _DIRECT if direct else "the proxy takes http:// URLs without a user name, and CONNECT")
    if isinstance(asked, MalformedRequest):
        return asked
    if not _names_the_same(asked, [value for field, value in given if field.lower() == b"host"]):
        return malformed("http", "the Host field names another host than the request")
    return asked if asked.protocol == "connect" else _plain_request(asked, method, (url and url[2]) or "/", given)


def _plain_request(
    asked: ProxyRequest, method: bytes, path: str, given: list[tuple[bytes, bytes]]
) -> ProxyRequest | MalformedRequest:
    values = {name: [value for field, value in given if field.lower() == name] for name in _FRAMING}
    lengths, codings = values[b"content-length"], values[b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or not all(_LENGTH.fullmatch(length) for length in lengths):
        return malformed("http", "the length of the body is not clear")
    if codings and codings[0].lower() != b"chunked":
        return malformed("http", "an encoding of the body that the proxy does not know")
    connection = b",".join(value for field, value in given if field.lower() == b"connection")
    named = {name.strip().lower() for name in connection.split(b",")}
    if named & {*_FRAMING, b"host"}:
        return malformed("http", "the Connection field names a field that must stay")
    dropped = _HOP_BY_HOP | named
    path = path if path.startswith("/") else f"/{path}"
    host = asked.name if asked.port == 80 else asked.host
    head = [b"%b %b HTTP/1.1" % (method, path.encode("ascii")), b"Host: " + host.encode("ascii")]
    head += [b"%b: %b" % field for field in given if field[0].lower() not in dropped]
    head += [b"Connection: close", b"", b""]
    return msgspec.structs.replace(
        asked, head=b"\r\n".join(head), body=None if codings else int(lengths[0]) if lengths else 0
    )


def _host_and_port(text: str, default: int = 0) -> tuple[str, int]:
    name, colon, port = text.rpartition(":")
    if not colon:
        return text, default
    return name, int(port) if _PORT.fullmatch(port) else 0


def _request(protocol: Protocol, written: str, port: int) -> ProxyRequest | MalformedRequest:
    name = canonical_name(written) if written.isascii() else None
    if name is None:
        return malformed(protocol, "the target is not the name of a host (addresses are refused)", status=403)
    if not 0 < port < 65536:
        return malformed(protocol, "the target has no port")
    return ProxyRequest(protocol=protocol, name=name, port=port)


def _names_the_same(asked: ProxyRequest, hosts: list[bytes]) -> bool:
    """Whether the Host field, which may be missing, names the target; a port may be missing in it."""
    if len(hosts) > 1:
        return False
    for value in hosts:
        name, port = _host_and_port(value.decode("latin-1"), asked.port)
        if not name.isascii() or canonical_name(name) != asked.name or port != asked.port:
            return False
    return True


def malformed(protocol: Protocol, reason: str, *, status: int = 400) -> MalformedRequest:
    return MalformedRequest(reason=reason, answer=answer(protocol, status, reason))


def answer(protocol: Protocol, status: int, text: str = "") -> bytes:
    """The answer to the client: the connection is open (200), or the reason why it is not."""
    if protocol == "socks5":
        return bytes((_SOCKS_VERSION, _SOCKS_CODES[status], 0, 1, 0, 0, 0, 0, 0, 0))
    if status == 200:
        return b"HTTP/1.1 200 Connection established\r\n\r\n"
    body = f"makai: {text}\n".encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class RequestBody:
    """Lets the body of a plain request pass and nothing behind it."""

    is_open = False

    def __init__(self, length: int | None) -> None:
        """`length` is None when the body comes in chunks."""
        self._is_chunked = length is None
        self._left = length or 0
        self._line = bytearray()
        self._small_chunks = 0
        self._state: Literal["size", "data", "data end", "trailer"] = "size"
        self.may_end = length == 0

    def take(self, data: bytes) -> tuple[bytes, bool]:
        """What the server may have now, and whether the connection may stay."""
        taken = self._taken(data)
        return data[: taken or 0], taken == len(data)

    def _taken(self, data: bytes) -> int | None:
        """How many bytes of `data` are of the body; None when they cannot be."""
        if not self._is_chunked:
            taken = min(len(data), self._left)
            self._left -= taken
            self.may_end = self._left == 0
            return taken
        at = 0
        while at < len(data) and not self.may_end:
            if self._state == "data":
                taken = min(len(data) - at, self._left)
                self._left -= taken
                at += taken
                self._state = "data" if self._left else "data end"
                continue
            most = min(len(data), at + _MAX_CHUNK_LINE + 1)
            end = data.find(b"\n", at, most) + 1 or most
            self._line += data[at:end]
            if len(self._line) > _MAX_CHUNK_LINE or (self._line.endswith(b"\n") and not self._line_is_fine()):
                return None
            at = end
        return at

    def _line_is_fine(self) -> bool:
        line = bytes(self._line)
        self._line.clear()
        match self._state:
            case "size" if size := _CHUNK_SIZE.fullmatch(line):
                self._left = int(size[1], 16)
                self._state = "data" if self._left else "trailer"
                self._small_chunks += self._left < _SMALL_CHUNK
                return self._small_chunks <= _MAX_SMALL_CHUNKS
            case "data end" if line == b"\r\n":
                self._state = "size"
            case "trailer" if line == b"\r\n":
                self.may_end = True
            case _:  # an extension or a trailer, which clients do not send
                return False
        return True
