"""`makai tokens` as scripts and people use it, with a server and without one."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.serving import http_session

from makai.core.access import token_id_of


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Cli(home)


async def status_of(url: str, token: str, method: str = "GET", path: str = "/api/info", **more: Any) -> int:
    async with http_session() as http:
        headers = {"Authorization": f"Bearer {token}"}
        async with http.request(method, url + path, headers=headers, **more) as response:
            return response.status


@pytest.mark.sqlite_file("looks for the token in the file")
async def test_a_token_is_shown_once_and_only_its_hash_is_stored(makai: Cli) -> None:
    created = await makai("tokens", "create", "--name", "ci")
    token = created.out.strip()
    listed = await makai("tokens", "list", "--json")
    text = await makai("tokens", "list")

    assert (created.code, token_id_of(token) is not None) == (0, True)
    assert "Created ci (prompt, expires in 30 days). It is not shown again" in created.err
    (one,) = listed.json()["tokens"]
    assert (one["name"], one["scope"], one["token_id"], one["revoked_ms"]) == ("ci", "prompt", token_id_of(token), None)
    assert [line.split()[:3] for line in text.out.splitlines()] == [
        ["NAME", "ID", "SCOPE"],
        ["ci", token_id_of(token), "prompt"],
    ]
    secret = token.rpartition(str(token_id_of(token)))[2]
    stored = b"".join(path.read_bytes() for path in makai.home.glob("sessions.db*"))
    assert b"mkt" not in stored
    assert secret[1:].encode() not in stored
    assert secret not in listed.out + listed.err + text.out + text.err + created.err


async def test_a_running_server_takes_tokens_at_once_and_forgets_revoked_ones(makai: Cli) -> None:
    async with asyncio.timeout(120), makai.serving() as (_, url):
        token = (await makai("tokens", "create", "--name", "board", "--scope", "observe")).out.strip()
        assert await status_of(url, token) == 200
        assert await status_of(url, token, "POST", "/api/sessions", json={"demo": True}) == 403

        revoked = await makai("tokens", "revoke", "board")
        assert revoked.out.startswith("Revoked board (observe")
        async with asyncio.timeout(5):
            while await status_of(url, token) != 401:
                pass


async def test_a_link_opens_the_page_of_the_running_server(makai: Cli) -> None:
    without = await makai("tokens", "link")
    assert (without.code, without.err) == (1, "makai: no server is running.\n       Start one: `makai serve`.\n")

    async with asyncio.timeout(120), makai.serving() as (_, url):
        link = await makai("tokens", "link", "--json")
        shown = link.json()
        token = shown["link"].removeprefix(f"{url}/#token=")
        assert (shown["scope"], token_id_of(token)) == ("observe", shown["token_id"])
        assert 3_500_000 < shown["expires_ms"] - shown["created_ms"] <= 3_600_000
        async with http_session() as http:
            bearer = {"Authorization": f"Bearer {token}", "Origin": url}
            async with http.post(f"{url}/api/cookie", headers=bearer, json={}) as response:
                cookie = response.cookies["makai-page"]
            assert token not in cookie.value
            by_cookie = {"Cookie": f"makai-page={cookie.value}", "Origin": url}
            async with http.get(f"{url}/api/info", headers=by_cookie) as response:
                assert (response.status, (await response.json())["scope"]) == (200, "observe")
            async with http.post(f"{url}/api/sessions", headers=by_cookie, json={"demo": True}) as response:
                assert response.status == 403


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("create", "--name", "a/b"), "A token's name has", "Try --name ci."),
        (("create", "--name", "ci", "--expires", "900d"), "at most a year", "Try --expires 30d."),
        (("create", "--name", "ci", "--expires", "soon"), "'soon' is not a time", "such as 30d"),
        (("revoke", "nothing"), "there is no token 'nothing'", "makai tokens list --all"),
    ],
    ids=str,
)
async def test_errors_say_what_to_do(makai: Cli, arguments: tuple[str, ...], message: str, hint: str) -> None:
    failed = await makai("tokens", *arguments)

    assert (failed.code, failed.out) == (2, "")
    assert message in failed.err
    assert hint in failed.err


@pytest.mark.sqlite_file("changes a row of the file")
async def test_a_revoked_token_keeps_its_row_and_frees_its_name(makai: Cli) -> None:
    await makai("tokens", "create", "--name", "ci")
    assert (await makai("tokens", "create", "--name", "ci")).code == 2
    await makai("tokens", "revoke", "ci")
    assert "is revoked already" in (await makai("tokens", "revoke", "ci")).err
    assert (await makai("tokens", "create", "--name", "ci")).code == 0
    everything = (await makai("tokens", "list", "--all", "--json")).json()["tokens"]
    assert [one["revoked_ms"] is None for one in everything] == [False, True]
    with closing(sqlite3.connect(makai.home / "sessions.db")) as database:
        assert database.execute("SELECT count(*) FROM token").fetchone() == (2,)
