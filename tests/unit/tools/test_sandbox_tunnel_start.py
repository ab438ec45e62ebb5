"""The first bytes of a tunnel: TLS for the allowed host, however it is cut, and on the web's ports nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tls import client_hello

from makai.tools.sandbox.proxy_requests import ProxyRequest
from makai.tools.sandbox.tunnel_start import MAX_HELLO_BYTES, TunnelStart

NAME = "a.example"
HELLO = client_hello(NAME)


def start(port: int = 443) -> TunnelStart:
    return TunnelStart(ProxyRequest(protocol="connect", name=NAME, port=port))


def passed(*pieces: bytes, port: int = 443) -> tuple[bytes, bool]:
    """All that reaches the server, and whether the tunnel stays."""
    tunnel, reached = start(port), b""
    for piece in pieces:
        if tunnel.is_open:
            reached += piece
            continue
        now, may_stay = tunnel.take(piece)
        reached += now
        if not may_stay:
            return reached, False
    return reached, True


def records(message: bytes, size: int) -> bytes:
    """The same handshake message in records of `size` bytes."""
    parts = (message[at : at + size] for at in range(0, len(message), size))
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


def hello_with(*extensions: bytes) -> bytes:
    def vector(data: bytes, size: int) -> bytes:
        return len(data).to_bytes(size, "big") + data

    body = b"\x03\x03" + bytes(32) + vector(b"", 1) + vector(b"\x13\x01", 2) + vector(b"\0", 1)
    body += vector(b"".join(extensions), 2)
    return records(b"\x01" + vector(body, 3), 4000)


def server_names(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(bytes((kind,)) + len(name).to_bytes(2, "big") + name for name in names)
    body = len(entries).to_bytes(2, "big") + entries
    return b"\0\0" + len(body).to_bytes(2, "big") + body


def test_tls_for_the_host_passes_with_all_that_follows() -> None:
    assert passed(HELLO) == (HELLO, True)
    assert passed(HELLO, b"more", b"and more") == (HELLO + b"moreand more", True)


@given(st.lists(st.integers(0, len(HELLO)), max_size=6), st.integers(len(HELLO) // 6, 600))
def test_it_passes_however_it_is_cut(cuts: list[int], size: int) -> None:
    for sent in (HELLO, records(HELLO[5:], size)):
        ends = sorted(cut for cut in cuts if cut <= len(sent))
        pieces = [sent[at:end] for at, end in zip([0, *ends], [*ends, len(sent)], strict=True)]
        assert passed(*filter(None, pieces)) == (sent, True)


REFUSED = {
    "another host": client_hello("evil.example"),
    "a host below": client_hello("b.a.example"),
    "no host": client_hello(None),
    "two names": hello_with(server_names(b"a.example", b"evil.example")),
    "two extensions": hello_with(server_names(b"a.example"), server_names(b"evil.example")),
    "a name of another kind": hello_with(server_names(b"a.example", kind=1)),
    "a zero byte": hello_with(server_names(b"a.example\0.evil.example")),
    "bytes above ASCII": hello_with(server_names(b"a.ex\xc3\xa4mple")),
    "an extension that is too long": hello_with(b"\0\0\xff\xff" + server_names(b"a.example")),
    "no record of TLS": b"\x16\x02\x00\x00\x05hello",
    "an empty record": b"\x16\x03\x01\x00\x00" + HELLO,
    "another handshake": records(b"\x02" + HELLO[6:], 4000),
    "a hello without an end": records(b"\x01\xff\xff\xff" + bytes(100), 4000),
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED.keys())
def test_nothing_else_passes_on_the_ports_of_the_web(sent: bytes) -> None:
    for port in (80, 443):
        assert passed(sent, port=port) == (b"", False)
        assert passed(*(bytes((byte,)) for byte in sent), port=port) == (b"", False)


def test_a_port_that_was_named_may_speak_something_else_but_no_other_tls() -> None:
    assert passed(b"SSH-2.0-x\r\n", b"\x16", port=22) == (b"SSH-2.0-x\r\n\x16", True)
    assert passed(client_hello("evil.example"), port=22) == (b"", False)


def test_what_is_held_back_is_bounded_and_not_lost_in_silence() -> None:
    long = records(b"\x01\x00\x3f\xff" + bytes(MAX_HELLO_BYTES), 4000)
    assert passed(long[: MAX_HELLO_BYTES - 1]) == (b"", True)
    assert passed(long[:MAX_HELLO_BYTES]) == (b"", False)
    assert passed(records(HELLO[5:], 1)[:40]) == (b"", True)
    assert passed(records(HELLO[5:], 1)) == (b"", False)
    tunnel = start()
    assert tunnel.may_end
    tunnel.take(HELLO[:10])
    assert not tunnel.may_end


@given(st.lists(st.tuples(st.integers(0, len(HELLO) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_changed_hello_passes_only_with_the_name_in_it(changes: list[tuple[int, int]]) -> None:
    changed = bytearray(HELLO)
    for at, byte in changes:
        changed[at] = byte
    reached, _ = passed(bytes(changed))
    assert not reached or NAME.encode() in reached.lower()


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_read_without_a_failure(data: bytes) -> None:
    passed(b"\x16" + data)
    passed(b"\x16\x03\x01" + data)
    passed(HELLO[:60] + data)
