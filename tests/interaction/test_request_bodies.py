"""What every route asks of a request's body, for all routes that the application has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.serving import BEARER, Site, serving
from support.transports import TOKEN, exchange

from makai.transports import http_guard, http_listener

SCENARIO = "text: hi\n"
OTHER_TYPES = (
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json-patch+json",
    "text/json", "", "application/jsonx", "text/plain; application/json",
)  # fmt: skip


def routes(site: Site, *, is_reading: bool) -> list[tuple[str, str]]:
    """Method and path of the routes that read, or of all others; path parameters have the value `x`."""
    found: list[tuple[str, str]] = []
    for route in site.routes:
        if route.resource is not None and (route.method in ("GET", "HEAD")) == is_reading:
            shape: str = route.resource.get_info().get("formatter", "")
            names = [part.partition("}")[0] for part in shape.split("{")[1:]]
            found.append((route.method, str(route.resource.url_for(**dict.fromkeys(names, "x")))))
    assert {"/v1/makai", "/api/sessions"} < {path for _, path in found}
    return found


@pytest.mark.proof("E4")
async def test_no_route_takes_a_body_that_is_not_json(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        for method, path in routes(site, is_reading=False):
            for kind in OTHER_TYPES:
                headers = {**BEARER, "Content-Type": kind}
                assert (await site.ask(method, path, {}, headers=headers))[0] == 415, (method, path, kind)
            headers = {**BEARER, "Content-Encoding": "gzip"}
            assert (await site.ask(method, path, {}, headers=headers))[0] == 415, (method, path, "gzip")


async def test_no_route_that_reads_takes_a_body(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        for method, path in routes(site, is_reading=True):
            status, _ = await site.ask(method, path, {}, headers={**BEARER, "Content-Type": "application/json"})
            assert status == 400, path


@pytest.mark.parametrize("framing", ["Content-Length: 5000", "Transfer-Encoding: chunked"])
async def test_no_route_waits_for_a_body_that_does_not_come(
    tmp_path: Path, framing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((http_guard, "BODY_DEADLINE_S"), (http_guard, "_ANSWER_S"), (http_listener, "LINGER_S")):
        monkeypatch.setattr(module, name, 0.2)
    monkeypatch.setattr("makai.server.http_json.BODY_DEADLINE_S", 0.2)
    monkeypatch.setattr("makai.transports.sse.BODY_DEADLINE_S", 0.2)
    async with serving(tmp_path, SCENARIO) as site:
        answers = await asyncio.gather(*(_stalled(site, *route, framing) for route in routes(site, is_reading=False)))

    assert {answer.partition(b"\r\n")[0].split(b" ")[1] for answer in answers if answer} <= {
        b"400",
        b"404",
        b"408",
        b"204",
    }


async def _stalled(site: Site, method: str, path: str, framing: str) -> bytes:
    """The answer to a request whose body stops after one byte; returns when the server closes the connection."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAuthorization: Bearer {TOKEN.reveal()}\r\n"
        f"Content-Type: application/json\r\n{framing}\r\n\r\n" + ("1\r\n{\r\n" if "chunked" in framing else "{")
    )
    try:
        return await asyncio.wait_for(exchange(site.port, head.encode()), 30)
    except ConnectionError:
        return b""
