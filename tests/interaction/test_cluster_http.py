"""Clients of a cluster over HTTP, behind a load balancer: each request may reach another node."""

from __future__ import annotations

from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from support.cluster import serving_nodes
from support.serve_process import ServeProcess

from makai.cli.browser import page_ticket_address
from makai.transports.guard import COOKIE_NAME


async def _logged_in(node: ServeProcess, token: str) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {token}"}
    async with node.http.post(f"{node.url}/api/cookie", json={}, headers=headers) as response:
        assert response.status == 204, await response.text()
        (value,) = [value for name, value in response.headers.items() if name.lower() == "set-cookie"]
        return {"Cookie": f"{COOKIE_NAME}={SimpleCookie(value)[COOKIE_NAME].value}"}


async def _status(node: ServeProcess, path: str, headers: dict[str, str]) -> int:
    async with node.http.get(f"{node.url}{path}", headers=headers) as response:
        return response.status


@pytest.mark.timeout(180)
async def test_a_browser_that_logged_in_at_one_node_is_known_to_all(tmp_path: Path, database: str) -> None:
    async with serving_nodes(tmp_path, database, "say: Hello.", "a", "b") as (first, second):
        ticket = page_ticket_address(first.url, first.home).partition("#token=")[2]
        as_ticket = {"Authorization": f"Bearer {ticket}"}
        async with second.http.post(f"{second.url}/api/cookie", json={}, headers=as_ticket) as refused:
            assert refused.status == 401  # it is good once, and each node knows only what was used there
        for token in (ticket, first.token):
            assert await _status(second, "/api/sessions", await _logged_in(first, token)) == 200
        assert await _status(second, "/api/sessions", dict(first.headers)) == 200
