"""Logins for the page, over plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from support.peers import TOKEN, listen

from makai.providers.runtime import ModelRuntime
from makai.server import auth_routes
from makai.server.auth_routes import PageLogin
from makai.server.makai_connection import MakaiServer

BEARER = {"Authorization": f"Bearer {TOKEN.reveal()}"}
ROUTES = [
    ("GET", "/api/auth/providers"), ("POST", "/api/auth/login"), ("GET", "/api/auth/flows/x/events"),
    ("POST", "/api/auth/flows/x/answer"), ("POST", "/api/auth/flows/x/cancel"), ("POST", "/api/auth/logout"),
]  # fmt: skip
JSON = dict[str, Any]


class Page:
    """A page that logs in."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.http.get(self.url + path) as response:
            return response.status, await response.json()

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body) as response:
            return response.status, await response.json()

    async def start(self, provider_id: str = "test-fixture", **more: str) -> str:
        _, body = await self.post("/api/auth/login", {"provider_id": provider_id, **more})
        return str(body["flow_id"])

    async def read(self, flow_id: str, *, until: str = "result", after: int = 0) -> list[JSON]:
        """Events up to the first of this type, each without what every one has."""
        headers = {"Last-Event-ID": str(after)} if after else {}
        events: list[JSON] = []
        async with self.http.get(f"{self.url}/api/auth/flows/{flow_id}/events", headers=headers) as response:
            assert response.content_type == "text/event-stream"
            async for line in response.content:
                if line.startswith(b"data: "):
                    event = msgspec.json.decode(line[6:], type=JSON)
                    events.append({name: event[name] for name in event if name not in ("flow_id", "provider_id")})
                    if event["type"] == until:
                        break
        return events

    async def status(self) -> JSON:
        _, body = await self.get("/api/auth/providers")
        return next(one for one in body["providers"] if one["id"] == "test-fixture")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ModelRuntime]:
    async with ModelRuntime({"MAKAI_HOME": str(tmp_path), "MAKAI_TEST_LOGIN": "1"}) as runtime:
        yield runtime


@pytest.fixture
async def page(runtime: ModelRuntime) -> AsyncIterator[Page]:
    async with AsyncExitStack() as stack:
        url = await listen(MakaiServer(runtime), stack)
        timeout = aiohttp.ClientTimeout(total=10)
        http = await stack.enter_async_context(aiohttp.ClientSession(headers=BEARER, timeout=timeout))
        yield Page(url, http)


PROMPT = {"type": "prompt", "prompt_id": "prompt-1", "message": 'Type "ok" to log in:'}


async def test_a_page_logs_in_and_out(page: Page) -> None:
    assert (await page.status())["auth_status"] == "login_required"
    flow_id = await page.start(account="work")
    assert await page.read(flow_id, until="prompt") == [PROMPT]
    assert (await page.status())["auth_status"] == "login_in_progress"

    answer = {"prompt_id": "prompt-1", "answer": "ok"}
    assert await page.post(f"/api/auth/flows/{flow_id}/answer", answer) == (200, {"accepted": True})
    rest = [{"type": "success"}, {"type": "result", "status": "success"}]
    assert await page.read(flow_id, after=1) == rest

    status = await page.status()
    assert (status["auth_status"], status["source"]) == ("authenticated", "login")
    assert [account["name"] for account in status["accounts"]] == ["work"]
    assert await page.post(f"/api/auth/flows/{flow_id}/answer", answer) == (200, {"accepted": False})
    assert await page.post("/api/auth/logout", {"provider_id": "test-fixture"}) == (200, {"logged_out": True})
    assert await page.post("/api/auth/logout", {"provider_id": "test-fixture"}) == (200, {"logged_out": False})
    assert (await page.status())["auth_status"] == "login_required"


async def test_a_reader_that_comes_back_misses_nothing_and_is_sent_away_when_all_is_read(page: Page) -> None:
    flow_id = await page.start()
    await page.read(flow_id, until="prompt")
    assert await page.post(f"/api/auth/flows/{flow_id}/cancel", {}) == (200, {"cancelled": True})

    end = [
        {"type": "error", "message": "The login was cancelled.", "code": "cancelled"},
        {"type": "result", "status": "cancelled"},
    ]
    assert await page.read(flow_id, after=1) == end
    assert await page.read(flow_id) == [PROMPT, *end]
    async with page.http.get(f"{page.url}/api/auth/flows/{flow_id}/events", headers={"Last-Event-ID": "3"}) as response:
        assert response.status == 204
    assert await page.post(f"/api/auth/flows/{flow_id}/cancel", {}) == (200, {"cancelled": False})


async def test_a_login_that_cannot_begin_fails_in_its_events(page: Page) -> None:
    events = await page.read(await page.start("unknown"))

    assert [event["type"] for event in events] == ["error", "result"]
    assert "no provider of that name" in events[0]["message"]
    assert events[1]["status"] == "failed"


async def test_the_number_of_logins_is_bounded_and_ended_ones_make_room(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth_routes, "MAX_LOGINS", 2)
    first, _ = await page.start(), await page.start()

    status, body = await page.post("/api/auth/login", {"provider_id": "test-fixture"})
    assert (status, body["error"]["code"]) == (429, "overloaded")
    await page.post(f"/api/auth/flows/{first}/cancel", {})
    await page.read(first)
    assert (await page.post("/api/auth/login", {"provider_id": "test-fixture"}))[0] == 200
    status, _ = await page.post(f"/api/auth/flows/{first}/cancel", {})
    assert status == 404


async def test_a_login_that_nobody_reads_is_cancelled(runtime: ModelRuntime) -> None:
    flow = runtime.auth().start_login("test-fixture", "00000000-0000-4000-8000-000000000001")
    login = PageLogin(flow, unread_s=0.01)

    async with asyncio.timeout(60):
        assert await flow.ended() == "cancelled"
    await login.close()


async def test_logins_end_with_the_server(runtime: ModelRuntime) -> None:
    async with AsyncExitStack() as stack:
        url = await listen(MakaiServer(runtime), stack)
        http = await stack.enter_async_context(aiohttp.ClientSession(headers=BEARER))
        await Page(url, http).start()
        statuses = {one.id: one.auth_status for one in runtime.auth().list_providers()}
        assert statuses["test-fixture"] == "login_in_progress"

    statuses = {one.id: one.auth_status for one in runtime.auth().list_providers()}
    assert statuses["test-fixture"] == "login_required"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"provider_id": 1}',
        b'{"provider_id": "x", "more": 1}',
        b"not json",
        b'{"provider_id": "' + b"x" * 70_000 + b'"}',
    ],
)
async def test_what_is_no_request_is_refused(page: Page, body: bytes) -> None:
    json = {"Content-Type": "application/json"}
    async with page.http.post(f"{page.url}/api/auth/login", data=body, headers=json) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, "invalid_request")
    assert (await page.status())["auth_status"] == "login_required"


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_route_opens_without_the_token_or_to_another_origin(page: Page, method: str, path: str) -> None:
    for headers, status in (({"Authorization": "Bearer wrong"}, 401), ({"Origin": "https://evil.example"}, 403)):
        async with page.http.request(method, page.url + path, headers=headers) as response:
            assert response.status == status


async def test_an_unknown_field_is_answered_with_those_there_are_and_not_repeated(page: Page) -> None:
    status, answer = await page.post("/api/auth/login", {"provider_id": "test-fixture", "secret": 1})

    message = "The body cannot be read: Object contains unknown field. The fields are `provider_id`, `account`."
    assert (status, answer) == (400, {"error": {"code": "invalid_request", "message": message}})
