"""NUL, lone surrogates, invalid UTF-8 and deep nesting in every place of a MiniCodex command and of an HTTP request:
one message is refused, and the client, its session and the server are as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from aiohttp import WSMsgType
from support.minicodex_client import BOTH, JSON, MinicodexClient
from support.serving import Site, serving
from support.transports import TOKEN, exchange

from makai.protocols.minicodex.commands import ClientMessage

SCENARIO = "say: Hel\x00lo.\n---\nsay: Fine."
BAD_TEXTS = (rb"\u0000", rb"a\ud800", rb"\udfff", rb"\udc00\ud800", b"\xff", b"\xed\xa0\x80", b"\xc0\x80")
DEEP = tuple(b"[" * levels + b"]" * levels for levels in (65, 129, 500, 20_000))
FIELDS: JSON = {"v": "1.0.0", "text": "x", "call_id": "c", "mode": "plan", "model_ref": "a/b@c", "title": "t"}


def bad_commands() -> Iterator[bytes]:
    """Every command, with every bad text in each of its fields, as the name of a field, and as its type."""
    for number, kind in enumerate(get_args(ClientMessage)):
        names = [field.name for field in msgspec.structs.fields(kind) if field.name not in ("req_id",)]
        bad = BAD_TEXTS[number % len(BAD_TEXTS)]
        start = b'{"type":"%b","req_id":"r"' % str(kind.__struct_config__.tag).encode()
        for name in names:
            others = [
                b'"%b":"%b"' % (key.encode(), value.encode())
                for key, value in FIELDS.items()
                if key in names and key != name
            ]
            yield b",".join([start, *others, b'"%b":"%b"}' % (name.encode(), bad)])
        yield b'%b,"%b":1}' % (start, bad)
        yield b'%b,"x":%b}' % (start, DEEP[number % len(DEEP)])
    for bad in BAD_TEXTS:
        yield b'{"req_id":"r","type":"%b"}' % bad


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.req("MC-CMD-007", "MC-CMD-006")
async def test_a_bad_command_is_refused_with_its_req_id_and_the_next_one_works(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        client = await site.client(await site.session(), *BOTH)
        for data in filter(is_utf8, bad_commands()):
            await client.say_raw(data.decode())
            answer = await client.hear()
            assert (answer["type"], answer.get("req_id"), answer["code"]) == ("error", "r", "INVALID_COMMAND"), data
            assert await client.ask("ping") == "accepted"
        assert await client.ask("send", text="hi") == "accepted"
        await client.until_over()
        assert [frame["text"] for frame in client.of_type("assistant_text")] == ["Hel\ufffdlo."]


async def test_a_frame_that_is_no_text_ends_the_connection_and_not_the_session(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        session_id = await site.session()
        other = await site.client(session_id, *BOTH)
        for kind, data, code in ((WSMsgType.TEXT, b'"\xff"', 1007), (WSMsgType.BINARY, b'{"type":"ping"}', 1003)):
            client = await site.client(session_id, *BOTH)
            assert await refused_frame(client, kind, data) == code
        again = await site.client(session_id, *BOTH)
        assert [await each.ask("ping") for each in (again, other)] == ["accepted", "accepted"]


async def refused_frame(client: MinicodexClient, kind: WSMsgType, data: bytes) -> int | None:
    writer = client._socket._writer
    await writer.send_frame(data, kind)
    return await client.closed()


def bad_bodies() -> Iterator[bytes]:
    for bad in BAD_TEXTS:
        yield b'{"model_ref":"%b","cwd":"%b","title":"%b","provider_id":"%b","value":"%b"}' % ((bad,) * 5)
        yield b'{"%b":1}' % bad
    for deep in DEEP:
        yield deep
        yield b'{"x":%b}' % deep


async def test_no_route_fails_over_a_bad_body(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        session_id = await site.talked()
        before = await site.ask("GET", f"/api/sessions/{session_id}")
        asked = 0
        for method, path in places(site, session_id, reading=False):
            if method == "DELETE":
                continue  # it does what its address says
            for body in bad_bodies():
                status, answer = await site.ask(method, path, raw=body)
                refused = status in (400, 404) or (status, path) == (204, "/api/cookie")  # its body says nothing
                assert refused or (path == "/v1/makai" and '"type":"error"' in answer), (method, path, body, status)
                assert await site.ask("GET", f"/api/sessions/{session_id}") == before
                asked += 1
        assert asked > 50


BAD_PARTS = ("%00", "%ED%A0%80", "%FF", "a%00b", "%C0%80")


@pytest.mark.proof("E4")
async def test_no_route_fails_over_a_bad_address(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        await site.talked()
        asked = 0
        for reading in (True, False):
            for part in BAD_PARTS:
                for method, path in places(site, part, reading=reading):
                    names = ("q", "cwd", "format", "session_id", "before", "limit", "after")
                    query = "&".join(f"{name}={part}" for name in names)
                    status = await raw_status(site, method, f"{path}?{query}")
                    assert status < 500, (method, path, part, status)
                    asked += 1
        assert asked > 50
        assert (await site.ask("GET", "/api/sessions"))[0] == 200


async def raw_status(site: Site, method: str, target: str) -> int:
    """The status of a request that no HTTP library has corrected."""
    body = "" if method in ("GET", "HEAD") else "Content-Type: application/json\r\nContent-Length: 2\r\n"
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAuthorization: Bearer {TOKEN.reveal()}\r\n"
    answer = await exchange(site.port, f"{head}{body}Connection: close\r\n\r\n{'{}' if body else ''}".encode())
    return int(answer.split(b" ")[1])


def places(site: Site, part: str, *, reading: bool) -> list[tuple[str, str]]:
    """Method and path of the routes that read, or of all others, with this in place of every path parameter."""
    found: list[tuple[str, str]] = []
    for route in site.routes:
        info: dict[str, Any] = dict(route.resource.get_info()) if route.resource is not None else {}
        shape = info.get("path") or info.get("formatter")
        if shape and (route.method in ("GET", "HEAD")) == reading:
            names = [piece.partition("}")[0] for piece in shape.split("{")[1:]]
            for name in names:
                shape = shape.replace(f"{{{name}}}", part)
            found.append((route.method, shape))
    return found
