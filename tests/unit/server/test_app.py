"""The HTTP surface: who gets in, and what each route says."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from support.peers import TOKEN, listen
from support.wire import ask, envelope

from makai.providers.runtime import ModelRuntime
from makai.server.makai_connection import MakaiServer

ROUTES = [("GET", "/v1/makai"), ("POST", "/v1/makai"), ("GET", "/metrics"), ("GET", "/api/models")]
OPEN_ROUTES = [("GET", "/healthz"), ("GET", "/readyz")]
BEARER = {"Authorization": f"Bearer {TOKEN.reveal()}"}


class Site:
    """A running application and a client for it."""

    def __init__(self, url: str, server: MakaiServer, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.server = server
        self._http = http

    async def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, Any, str]:
        async with self._http.request(method, self.url + path, headers=headers, data=io.BytesIO(body)) as response:
            text = await response.text()
            kind = response.content_type
            return response.status, msgspec.json.decode(text) if kind == "application/json" else text, kind


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        runtime = ModelRuntime({"MAKAI_HOME": str(tmp_path)})
        stack.push_async_callback(runtime.close)
        server = MakaiServer(runtime)
        url = await listen(server, stack)
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)))
        yield Site(url, server, http)


WRONG_TOKENS: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": f"Bearer {TOKEN.reveal()[:-1]}"},
    {"Authorization": f"Basic {TOKEN.reveal()}"},
    {"Authorization": "Bearer"},
    {"Sec-WebSocket-Protocol": "makai.v1, makai.token.wrong"},
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("headers", WRONG_TOKENS, ids=str)
async def test_no_route_opens_without_the_token(site: Site, method: str, path: str, headers: dict[str, str]) -> None:
    status, body, _ = await site.ask(method, path, headers, msgspec.json.encode(ask()))
    assert status == 401
    assert set(body) == {"error"}
    assert TOKEN.reveal() not in str(body)
    assert site.server.metrics.connections.value("makai") == 0


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_the_token_is_never_taken_from_the_query(site: Site, method: str, path: str) -> None:
    status, _, _ = await site.ask(method, f"{path}?token={TOKEN.reveal()}&access_token={TOKEN.reveal()}", {})
    assert status == 401


@pytest.mark.parametrize(("method", "path"), ROUTES + OPEN_ROUTES)
@pytest.mark.parametrize("host", ["evil.com", "127.0.0.1.nip.io", "0.0.0.0", "127.0.0.1:1", "localhost."])
async def test_a_foreign_host_is_refused_even_with_the_token(site: Site, method: str, path: str, host: str) -> None:
    status, _, _ = await site.ask(method, path, BEARER | {"Host": host})
    assert status in (400, 403, 421)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("origin", ["https://evil.com", "null", "http://localhost:9999", "http://127.0.0.1.evil.com"])
async def test_a_foreign_origin_is_refused_even_with_the_token(site: Site, method: str, path: str, origin: str) -> None:
    status, _, _ = await site.ask(method, path, BEARER | {"Origin": origin})
    assert status == 403


async def test_health_needs_no_token_and_tells_nothing_else(site: Site) -> None:
    assert await site.ask("GET", "/healthz", {}) == (200, {"status": "ok"}, "application/json")
    assert await site.ask("GET", "/readyz", {}) == (200, {"status": "ready"}, "application/json")
    site.server.draining = True
    assert await site.ask("GET", "/readyz", {}) == (503, {"status": "draining"}, "application/json")


async def test_metrics_count_in_the_prometheus_format(site: Site) -> None:
    await site.ask("POST", "/v1/makai", BEARER | {"Content-Type": "application/json"}, msgspec.json.encode(ask()))
    status, text, kind = await site.ask("GET", "/metrics", BEARER)
    assert (status, kind) == (200, "text/plain")
    assert "# TYPE makai_streams_total counter\nmakai_streams_total 1\n" in text


async def test_models_are_listed_over_rest_with_the_same_filters(site: Site) -> None:
    status, body, _ = await site.ask("GET", "/api/models?provider_id=scripted", BEARER)
    assert status == 200
    assert [model["model_ref"] for model in body["models"]] == ["scripted/scripted@echo", "scripted/scripted@demo"]
    status, body, _ = await site.ask("GET", "/api/models?include_deprecated=maybe", BEARER)
    assert (status, body["error"]["code"]) == (400, "invalid_request")
    status, body, _ = await site.ask("GET", "/api/models?model_id=nope", BEARER)
    assert status == 400
    assert "model not found" in body["error"]["message"]


@pytest.mark.req("MK-TRANS-006")
async def test_a_post_is_answered_by_an_event_stream_that_ends_with_its_request(site: Site) -> None:
    headers = BEARER | {"Content-Type": "application/json"}
    status, text, kind = await site.ask("POST", "/v1/makai", headers, msgspec.json.encode(ask(encoding="proxy")))
    assert (status, kind) == (200, "text/event-stream")
    events = [msgspec.json.decode(block[6:]) for block in text.split("\n\n") if block.startswith("data: ")]
    assert [event["type"] for event in events] == [
        *("ack", "start", "text_start", "text_delta", "text_end", "done", "result")
    ]
    status, text, _ = await site.ask("POST", "/v1/makai", headers, msgspec.json.encode(envelope("ping")))
    assert '"pong"' in text


async def test_a_post_to_an_unknown_connection_is_told_so(site: Site) -> None:
    headers = BEARER | {"Content-Type": "application/json", "Makai-Connection": "0" * 32}
    status, body, _ = await site.ask("POST", "/v1/makai", headers, msgspec.json.encode(ask()))
    assert status == 404
    assert set(body) == {"error"}


async def test_an_oversized_body_is_refused(site: Site) -> None:
    headers = BEARER | {"Content-Type": "application/json"}
    status, _, _ = await site.ask("POST", "/v1/makai", headers, b"x" * (17 * 1024 * 1024))
    assert status == 413


@pytest.mark.proof("L2")
async def test_no_answer_ever_allows_another_origin(site: Site) -> None:
    async with aiohttp.ClientSession() as http:
        for method in ("OPTIONS", "GET", "POST"):
            async with http.request(method, f"{site.url}/v1/makai", headers={"Origin": "https://evil.com"}) as answer:
                assert "Access-Control-Allow-Origin" not in answer.headers
