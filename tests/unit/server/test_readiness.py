"""What a load balancer learns: `/readyz` is 200 only while the sessions can be used."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer
from support.transports import TOKEN

from makai.server.app import make_app
from makai.server.backend import LazyBackend
from makai.server.makai_connection import MakaiServer
from makai.transports.guard import Guard, GuardConfig


@pytest.mark.parametrize(
    ("is_ready", "is_draining", "expected"),
    [
        (True, False, (200, {"status": "ready"})),
        (False, False, (503, {"status": "unavailable"})),
        (True, True, (503, {"status": "draining"})),
    ],
)
async def test_readiness_says_whether_requests_should_come_here(
    is_ready: bool, is_draining: bool, expected: tuple[int, dict[str, str]]
) -> None:
    async def ready() -> bool:
        return is_ready

    makai = MakaiServer(LazyBackend())
    makai.draining = is_draining
    server = TestServer(make_app(makai, Guard(GuardConfig(TOKEN, port=0)), is_ready=ready))
    async with TestClient(server) as client:
        headers = {"Host": "127.0.0.1:0"}
        async with client.get("/readyz", headers=headers) as response:
            assert (response.status, await response.json()) == expected
        async with client.get("/healthz", headers=headers) as response:
            assert response.status == 200
