"""What the proxy reads from a hostile client: only requests of exactly the expected form, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from makai.tools.sandbox.hosts import canonical_name
from makai.tools.sandbox.proxy_requests import (
    MAX_HEAD_BYTES,
    MalformedRequest,
    ProxyRequest,
    RequestBody,
    RequestParser,
    answer,
)
from makai.tools.sandbox.upstream_proxy import UpstreamProxy, connect_status, upstream_for


def parsed(*pieces: bytes) -> ProxyRequest | MalformedRequest | None:
    parser = RequestParser()
    for piece in pieces:
        _, request = parser.feed(piece)
        if request is not None:
            return request
    return None


def http(first: str, *fields: str) -> bytes:
    return "\r\n".join([first, *fields, "", ""]).encode("latin-1")


def socks(name: bytes, port: int = 443, *, command: int = 1, kind: int = 3) -> bytes:
    return b"\x05\x01\x00" + bytes((5, command, 0, kind, len(name))) + name + port.to_bytes(2, "big")


@pytest.mark.parametrize(
    "sent",
    [
        http("CONNECT Example.com.:443 HTTP/1.1", "Host: example.com:443"),
        http("CONNECT example.com:443 HTTP/1.0"),
        http("CONNECT example.com:443 HTTP/1.1", "Host: example.com", "Proxy-Authorization: Basic eDp5"),
    ],
)
def test_connect_names_a_host_and_a_port(sent: bytes) -> None:
    assert parsed(sent) == ProxyRequest(protocol="connect", name="example.com", port=443)


def test_a_plain_request_is_written_again_for_its_server() -> None:
    fields = ("Host: Example.com", "Accept: */*", "Proxy-Connection: keep-alive", "Connection: keep-alive, X-Hop")
    sent = http("POST http://EXAMPLE.com/a?b=c HTTP/1.1", *fields, "X-Hop: 1", "Upgrade: h2c", "Content-Length: 3")
    head = b"POST /a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    assert parsed(sent) == ProxyRequest(protocol="http", name="example.com", port=80, head=head, body=3)
    query = http("GET http://example.com:8080?x HTTP/1.1", "Transfer-Encoding: Chunked")
    head = b"GET /?x HTTP/1.1\r\nHost: example.com:8080\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n"
    assert parsed(query) == ProxyRequest(protocol="http", name="example.com", port=8080, head=head, body=None)


def test_socks5_names_a_host() -> None:
    assert parsed(socks(b"Example.COM")) == ProxyRequest(protocol="socks5", name="example.com", port=443)
    parser = RequestParser()
    assert parser.feed(b"\x05\x02\x02\x00") == (b"\x05\x00", None)


REFUSED = {
    "an address": http("CONNECT 93.184.216.34:443 HTTP/1.1"),
    "an address in one number": http("CONNECT 2130706433:443 HTTP/1.1"),
    "an address in hexadecimal": http("CONNECT 0x7f.1:443 HTTP/1.1"),
    "an IPv6 address": http("CONNECT [::1]:443 HTTP/1.1"),
    "no port": http("CONNECT example.com HTTP/1.1"),
    "port 0": http("CONNECT example.com:0 HTTP/1.1"),
    "a port that is too large": http("CONNECT example.com:65979 HTTP/1.1"),
    "a port with a sign": http("CONNECT example.com:+443 HTTP/1.1"),
    "a user name in CONNECT": http("CONNECT example.com@evil.org:443 HTTP/1.1"),
    "a path in CONNECT": http("CONNECT example.com:443/ HTTP/1.1"),
    "a zero byte in CONNECT": b"CONNECT example.com\0.evil.org:443 HTTP/1.1\r\n\r\n",
    "another Host in CONNECT": http("CONNECT example.com:443 HTTP/1.1", "Host: evil.org:443"),
    "a user name": http("GET http://user@example.com/ HTTP/1.1"),
    "a host as user name": http("GET http://example.com@evil.org/ HTTP/1.1"),
    "a backslash": http("GET http://evil.org\\@example.com/ HTTP/1.1"),
    "an encoded slash": http("GET http://evil.org%2f.example.com/ HTTP/1.1"),
    "https without CONNECT": http("GET https://example.com/ HTTP/1.1"),
    "ftp": http("GET ftp://example.com/ HTTP/1.1"),
    "no absolute URL": http("GET / HTTP/1.1", "Host: example.com"),
    "a fragment": http("GET http://example.com#@evil.org/ HTTP/1.1"),
    "another Host": http("GET http://example.com/ HTTP/1.1", "Host: evil.org"),
    "another port in Host": http("GET http://example.com/ HTTP/1.1", "Host: example.com:8080"),
    "two Hosts": http("GET http://example.com/ HTTP/1.1", "Host: example.com", "Host: evil.org"),
    "a folded field": http("GET http://example.com/ HTTP/1.1", "X: 1", " Host: evil.org"),
    "a space before the colon": http("GET http://example.com/ HTTP/1.1", "Host : evil.org"),
    "a line feed in a field": b"GET http://example.com/ HTTP/1.1\r\nX: 1\nHost: evil.org\r\n\r\n",
    "a carriage return in a field": b"GET http://example.com/ HTTP/1.1\r\nX: 1\rHost: evil.org\r\n\r\n",
    "a tab in the request line": http("GET http://example.com/\tHTTP/1.1"),
    "HTTP/2": http("PRI * HTTP/2.0"),
    "HTTP/0.9": http("GET http://example.com/"),
    "two lengths": http("POST http://example.com/ HTTP/1.1", "Content-Length: 1", "Content-Length: 2"),
    "a length with a sign": http("POST http://example.com/ HTTP/1.1", "Content-Length: +1"),
    "a list of lengths": http("POST http://example.com/ HTTP/1.1", "Content-Length: 1, 1"),
    "length and chunks": http("POST http://example.com/ HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"),
    "an unknown coding": http("POST http://example.com/ HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
    "framing named in Connection": http("POST http://example.com/ HTTP/1.1", "Content-Length: 1")[:-2]
    + b"Connection: content-length\r\n\r\n",
    "a lower-case method": http("connect example.com:443 HTTP/1.1"),
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "SOCKS4": b"\x04\x01\x01\xbb\x00\x00\x00\x01x\x00example.com\x00",
    "a zero byte in SOCKS5": socks(b"example.com\0.evil.org"),
    "a leading zero byte in SOCKS5": socks(b"\0example.com"),
    "an address as SOCKS5 name": socks(b"127.0.0.1"),
    "bytes above ASCII in SOCKS5": socks(b"ex\xc3\xa4mple.com"),
    "an empty SOCKS5 name": socks(b""),
    "SOCKS5 by IPv4": socks(b"\x7f\0\0\1", kind=1),
    "SOCKS5 by IPv6": socks(bytes(16), kind=4),
    "SOCKS5 BIND": socks(b"example.com", command=2),
    "SOCKS5 UDP": socks(b"example.com", command=3),
    "SOCKS5 port 0": socks(b"example.com", 0),
    "SOCKS5 with a password only": b"\x05\x01\x02",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED.keys())
def test_what_could_be_read_differently_is_refused(sent: bytes) -> None:
    assert isinstance(parsed(sent), MalformedRequest)
    assert isinstance(parsed(*(bytes((byte,)) for byte in sent)), MalformedRequest)


@pytest.mark.parametrize("sent", [REFUSED["TLS"], REFUSED["no absolute URL"]])
def test_a_program_that_ignores_the_proxy_gets_a_reason_that_says_so(sent: bytes) -> None:
    """With Landlock every connection ends at the proxy, whatever address it was for."""
    refused = parsed(sent)
    assert isinstance(refused, MalformedRequest)
    assert refused.reason == "a connection past HTTP_PROXY and HTTPS_PROXY, which are the only way to the network here"


def test_a_head_is_bounded() -> None:
    field = b"X: " + b"a" * 1000 + b"\r\n"
    sent = b"GET http://example.com/ HTTP/1.1\r\n" + field * (MAX_HEAD_BYTES // len(field) + 1)
    assert isinstance(parsed(sent), MalformedRequest)
    assert parsed(sent[: MAX_HEAD_BYTES - 1]) is None


VALID = [
    http("CONNECT example.com:443 HTTP/1.1", "Host: example.com:443"),
    http("POST http://a.example.com:81/x HTTP/1.1", "Host: a.example.com:81", "Content-Length: 7"),
    socks(b"example.com"),
]


@given(st.sampled_from(VALID), st.data())
def test_a_request_is_the_same_however_it_is_cut(sent: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    pieces = [sent[at:end] for at, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert parsed(*pieces) == parsed(sent)


@given(st.sampled_from(VALID), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=5))
@example(VALID[0], [(8, 0)])
def test_a_changed_request_names_a_plain_host_or_is_refused(sent: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(sent)
    for at, byte in changes:
        changed[at % len(sent)] = byte
    match parsed(bytes(changed)):
        case ProxyRequest(name=name, port=port, head=head):
            assert canonical_name(name) == name
            assert 0 < port < 65536
            assert head.count(b"\r\n\r\n") in (0, 1)
            assert b"\0" not in head
            assert b"\n" not in head.replace(b"\r\n", b"")
            assert not head or f"\r\nHost: {name}".encode() in head


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_without_a_failure(data: bytes) -> None:
    parsed(data)
    for start in (b"\x05", b"\x05\x01\x00", b"GET ", b"CONNECT "):
        parsed(start, data)


@given(st.binary(max_size=50), st.binary(max_size=50), st.integers(1, 7))
def test_a_body_ends_where_its_length_says(body: bytes, behind: bytes, step: int) -> None:
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:]) if part) + b"0\r\n\r\n"
    for length, sent in ((len(body), body), (None, chunked)):
        checked, passed, may_stay = RequestBody(length), b"", True
        whole = sent + behind
        for at in range(0, len(whole), step):
            if may_stay:
                now, may_stay = checked.take(whole[at : at + step])
                passed += now
        assert (passed, checked.may_end, may_stay) == (sent, True, not behind)


@pytest.mark.parametrize(
    "sent",
    [b"x\r\n", b"-1\r\n", b"1;a=b\r\nx\r\n", b"1\nx\r\n", b"1\r\nxy\r\n", b"0\r\nX: 1\r\n\r\n", b"1" * 40, b"\r\n"],
)
def test_chunks_of_another_form_are_refused(sent: bytes) -> None:
    assert RequestBody(None).take(sent) == (b"", False)


def test_a_body_of_many_small_chunks_is_refused() -> None:
    small, large = b"1\r\nx\r\n", b"100\r\n" + bytes(256) + b"\r\n"
    assert RequestBody(None).take(small * 1000) == (small * 1000, True)
    assert RequestBody(None).take(small * 1001) == (b"", False)
    assert RequestBody(None).take(large * 5000) == (large * 5000, True)


def test_an_answer_is_of_the_protocol_that_was_spoken() -> None:
    assert answer("connect", 200) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert answer("socks5", 403) == b"\x05\x02\x00\x01" + bytes(6)
    head, _, body = answer("http", 403, "no").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"Content-Length: 10" in head
    assert body == b"makai: no\n"


ASKED = ProxyRequest(protocol="connect", name="a.example.com", port=443)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy.corp:3128"}, UpstreamProxy(name="proxy.corp", port=3128)),
        ({"https_proxy": "proxy.corp", "HTTP_PROXY": "http://other"}, UpstreamProxy(name="proxy.corp", port=80)),
        ({"ALL_PROXY": "http://u:p%40@p"}, UpstreamProxy(name="p", port=80, authorization="Basic dTpwQA==")),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "x.org, .example.com"}, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "ample.com"}, UpstreamProxy(name="p", port=80)),
        ({"HTTPS_PROXY": "socks5://p"}, "HTTPS_PROXY does not name a proxy that is reached by http://"),
    ],
)
def test_the_users_own_proxy_comes_from_the_environment(environ: dict[str, str], found: object) -> None:
    assert upstream_for(environ, ASKED) == found


def test_the_users_own_proxy_is_asked_by_connect() -> None:
    asked = UpstreamProxy(name="p", port=80, authorization="Basic eA==").connect_request(ASKED)
    lines = b"CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com:443\r\nProxy-Authorization: Basic eA==\r\n\r\n"
    assert asked == lines
    assert connect_status(b"HTTP/1.1 200 OK\r\nX: 1") is None
    assert connect_status(b"HTTP/1.1 200 OK\r\n\r\nrest") == (200, b"rest")
    assert connect_status(b"HTTP/1.0 407\r\n\r\n") == (407, b"")
    assert connect_status(b"SSH-2.0\r\n\r\n") == (0, b"")
    assert connect_status(b"x" * MAX_HEAD_BYTES) == (0, b"")
