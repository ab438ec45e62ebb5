"""Clients of a cluster over HTTP, behind a load balancer: each request may reach another node."""

from __future__ import annotations

from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from support.cluster import serving_nodes
from support.serve_process import ServeProcess

from makai.transports.guard import COOKIE_NAME


async def _logged_in(node: ServeProcess) -> dict[str, str]:
    async with node.http.post(f"{node.url}/api/cookie", json={}, headers=dict(node.headers)) as response:
        assert response.status == 204, await response.text()
        (value,) = [value for name, value in response.headers.items() if name.lower() == "set-cookie"]
        return {"Cookie": f"{COOKIE_NAME}={SimpleCookie(value)[COOKIE_NAME].value}"}


async def _status(node: ServeProcess, path: str, headers: dict[str, str]) -> int:
    async with node.http.get(f"{node.url}{path}", headers=headers) as response:
        return response.status


@pytest.mark.timeout(180)
async def test_a_browser_that_logged_in_at_one_node_is_known_to_all(tmp_path: Path, database: str) -> None:
    async with serving_nodes(tmp_path, database, "say: Hello.", "a", "b") as (first, second):
        cookie = await _logged_in(first)

        assert await _status(second, "/api/sessions", cookie) == 200
        assert await _status(second, "/api/sessions", dict(first.headers)) == 200
