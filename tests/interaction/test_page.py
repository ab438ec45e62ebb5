"""The page and the doors around it, on a real socket: its headers, its cookie, and everybody else who knocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from support.serving import BEARER, SUBPROTOCOL, Site, http_session, serving
from support.transports import TOKEN, exchange, loopback

from makai.core.secret import Secret
from makai.server.page_routes import add_page
from makai.sessions.requests import ListSessions
from makai.transports.guard import COOKIE_NAME, PAGE_FILES, Guard, GuardConfig, page_cookie
from makai.transports.http_guard import guard_middleware

SCENARIO = "say: Hello."
EVIL = "https://evil.example"


class Built:
    """A server of a page that consists of a few files."""

    def __init__(self, port: int, http: aiohttp.ClientSession) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.http = http

    async def raw(self, target: str) -> bytes:
        """The answer to a target as it is: libraries would tidy it up."""
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\n\r\n"
        return await exchange(self.port, head.encode())


@asynccontextmanager
async def page_of(folder: Path) -> AsyncIterator[Built]:
    def application(guard: Guard) -> web.Application:
        app = web.Application(middlewares=[guard_middleware(guard)])
        add_page(app, TOKEN, is_tls=False, folder=folder)
        return app

    async with loopback(application, GuardConfig(TOKEN, 0)) as port, http_session() as http:
        yield Built(port, http)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>makai</title>", encoding="utf-8")
    (folder / "icon.svg").write_text("<svg/>", encoding="utf-8")
    (folder / "manifest.webmanifest").write_text("{}", encoding="utf-8")
    (folder / "sw.js").write_text("", encoding="utf-8")
    (folder / "assets/app-1.js").write_text("export {}", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("the-secret", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("path", "kind", "caching"),
    [
        ("/", "text/html", "no-cache"),
        ("/icon.svg", "image/svg+xml", "max-age=3600"),
        ("/manifest.webmanifest", "application/manifest+json", "max-age=3600"),
        ("/sw.js", "text/javascript", "no-cache"),
        ("/assets/app-1.js", "text/javascript", "max-age=31536000, immutable"),
    ],
)
async def test_the_page_is_served_under_a_strict_policy(built: Path, path: str, kind: str, caching: str) -> None:
    async with page_of(built) as site, site.http.get(site.url + path) as response:
        headers = response.headers
        assert (response.status, response.content_type, headers["Cache-Control"]) == (200, kind, caching)
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert [policy[name] for name in ("object-src", "base-uri", "form-action", "frame-ancestors")] == ["'none'"] * 4
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers


def test_every_public_file_of_the_page_has_a_route() -> None:
    public = Path(__file__).resolve().parents[2] / "web/public"

    assert sorted(path.name for path in public.iterdir()) == sorted(PAGE_FILES)


async def test_the_frame_of_diagrams_has_no_origin_and_may_load_nothing(built: Path) -> None:
    (built / "assets/diagram-frame.html").write_text("<!doctype html><title>Diagram</title>", encoding="utf-8")
    async with page_of(built) as site, site.http.get(f"{site.url}/assets/diagram-frame.html") as response:
        assert (response.status, response.content_type) == (200, "text/html")
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["Content-Security-Policy"] == (
            "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
        )
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"


async def test_a_page_that_was_not_built_says_so(tmp_path: Path) -> None:
    async with page_of(tmp_path / "nothing") as site, site.http.get(site.url) as response:
        assert response.status == 503
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert await response.text() == (
            "makai is running, but this installation has no page: it was built without npm. "
            "Install Node.js 20.19 or newer, then run `make run` in a checkout, or `pip install .` there again. "
            "The command line works without the page."
        )


@pytest.mark.parametrize(
    "target",
    [
        "/assets/nothing.js", "/assets/../index.html", "/assets/../../secret.txt", "/assets/..%2f..%2fsecret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt", "/assets/....//secret.txt", "/assets/..\\..\\secret.txt",
        "/assets//etc/passwd", "/assets/%00", "/assets/", "/assets", "/assets/app-1.js/", "/assets/./app-1.js",
        "/index.html", "/page/index.html",
        "/assets/app-1.js%00.css", "/assets/~root", "/assets/C:\\", "//assets/app-1.js", "/../secret.txt",
    ],
)  # fmt: skip
async def test_no_path_leads_to_other_files(built: Path, target: str) -> None:
    async with page_of(built) as site:
        answer = await site.raw(target)
        assert int(answer.split(b" ", 2)[1]) in (400, 401, 404)
        assert b"the-secret" not in answer
        assert b"root:" not in answer


def _set_cookie(response: aiohttp.ClientResponse) -> str:
    (header,) = response.headers.getall("Set-Cookie")
    return header


async def _trade(site: Site) -> dict[str, str]:
    async with site.http.post(f"{site.url}/api/cookie", json={}, headers=BEARER) as response:
        assert response.status == 204
        cookie = SimpleCookie(_set_cookie(response))
        return {"Cookie": f"{COOKIE_NAME}={cookie[COOKIE_NAME].value}"}


async def test_the_token_is_traded_for_a_cookie_that_scripts_and_other_sites_cannot_use(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        async with site.http.post(f"{site.url}/api/cookie", json={}, headers=BEARER) as response:
            header = _set_cookie(response)
            assert (response.status, response.headers["Cache-Control"]) == (204, "no-store")
        morsel = SimpleCookie(header)[COOKIE_NAME]
        assert (morsel["httponly"], morsel["samesite"], morsel["path"], morsel["domain"]) == (True, "Strict", "/", "")
        assert morsel.value == page_cookie(TOKEN).reveal()
        assert TOKEN.reveal() not in header
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {morsel.value}"}):
            async with site.http.post(f"{site.url}/api/cookie", json={}, headers=headers) as response:
                assert response.status == 401
                assert "Set-Cookie" not in response.headers


async def test_a_token_in_body_or_query_buys_no_cookie(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        origin = {"Origin": site.url}
        query = f"/api/cookie?token={TOKEN.reveal()}"
        assert (await site.ask("POST", "/api/cookie", {"token": TOKEN.reveal()}, headers=origin))[0] == 401
        assert (await site.ask("POST", query, headers=origin))[0] == 401


async def test_the_page_works_by_cookie_and_only_the_page(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        cookie = await _trade(site)
        ours = cookie | {"Origin": site.url}
        assert (await site.ask("GET", "/api/sessions", headers=cookie))[0] == 200
        body = {"model_ref": "scripted/scenario", "cwd": str(tmp_path)}
        foreign = [(cookie | {"Origin": origin}, 403) for origin in (EVIL, "null")]
        wrong = [(cookie, 401), (ours | {"Authorization": "Bearer wrong"}, 401), ({"Origin": site.url}, 401)]
        for headers, expected in [(ours, 201), *foreign, *wrong]:
            assert (await site.ask("POST", "/api/sessions", body, headers=headers))[0] == expected, headers
        assert len(await site.sessions.dispatch(ListSessions())) == 1
        client = await site.connect(headers=ours)
        await client.hello()


def _offer(site: Site) -> dict[str, tuple[dict[str, str], tuple[str, ...]]]:
    cookie = {"Cookie": f"{COOKIE_NAME}={page_cookie(TOKEN).reveal()}"}
    token = TOKEN.reveal()
    return {
        "no token": ({}, (SUBPROTOCOL,)),
        "wrong token": ({"Authorization": "Bearer wrong"}, (SUBPROTOCOL,)),
        "cut token": ({"Authorization": f"Bearer {token[:-1]}"}, (SUBPROTOCOL,)),
        "basic": ({"Authorization": f"Basic {token}"}, (SUBPROTOCOL,)),
        "wrong subprotocol token": ({}, (SUBPROTOCOL, "makai.token.wrong")),
        "two subprotocol tokens": ({}, (SUBPROTOCOL, f"makai.token.{token}", "makai.token.wrong")),
        "cookie without origin": (cookie, (SUBPROTOCOL,)),
        "cookie, foreign origin": (cookie | {"Origin": EVIL}, (SUBPROTOCOL,)),
        "cookie, wrong token": (cookie | {"Origin": site.url, "Authorization": "Bearer x"}, (SUBPROTOCOL,)),
        "token as cookie": ({"Cookie": f"{COOKIE_NAME}={token}", "Origin": site.url}, (SUBPROTOCOL,)),
        "token, foreign origin": ({**BEARER, "Origin": EVIL}, (SUBPROTOCOL,)),
        "token, null origin": ({**BEARER, "Origin": "null"}, (SUBPROTOCOL,)),
        "token, rebound name": ({**BEARER, "Host": f"evil.example:{site.port}"}, (SUBPROTOCOL,)),
        "token, nip.io": ({**BEARER, "Host": f"127.0.0.1.nip.io:{site.port}"}, (SUBPROTOCOL,)),
        "another protocol": (dict(BEARER), ("graphql-ws",)),
    }


async def test_nobody_else_gets_a_websocket(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        refused = {}
        for name, (headers, protocols) in _offer(site).items():
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await site.connect(headers=headers, protocols=protocols)
            refused[name] = refusal.value.status
        assert refused == {
            "no token": 401, "wrong token": 401, "cut token": 401, "basic": 401, "wrong subprotocol token": 401,
            "two subprotocol tokens": 401, "cookie without origin": 401, "cookie, foreign origin": 403,
            "cookie, wrong token": 401, "token as cookie": 401, "token, foreign origin": 403, "token, null origin": 403,
            "token, rebound name": 421, "token, nip.io": 421, "another protocol": 426,
        }  # fmt: skip
        assert await site.sessions.dispatch(ListSessions()) == []


async def test_programs_may_bring_the_token_in_either_header_but_never_in_the_address(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        token = TOKEN.reveal()
        for headers, protocols in (
            (dict(BEARER), (SUBPROTOCOL,)),
            (dict(BEARER), ()),
            ({}, (SUBPROTOCOL, f"makai.token.{token}")),
            ({"Origin": site.url}, (SUBPROTOCOL, f"makai.token.{token}")),
        ):
            client = await site.connect(headers=headers, protocols=protocols)
            await client.hello()
            await client.close()
        for name in ("token", "access_token", "authorization", "makai.token"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await site.http.ws_connect(f"{site.url}/ws?{name}={token}", protocols=(SUBPROTOCOL,))
            assert refusal.value.status == 401


API = [
    ("GET", "/api/info"), ("GET", "/api/sessions"), ("POST", "/api/sessions"), ("GET", "/api/sessions/x"),
    ("DELETE", "/api/sessions/x"), ("POST", "/api/sessions/x/fork"), ("GET", "/api/sessions/x/export"),
    ("GET", "/api/sessions/x/transcript"), ("GET", "/api/approvals"), ("GET", "/api/harnesses"), ("GET", "/api/models"),
    ("POST", "/api/cookie"), ("GET", "/ws"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), API)
async def test_every_route_refuses_strangers_before_it_does_anything(tmp_path: Path, method: str, path: str) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        stranger = await site.ask(method, path, {}, headers={})
        by_query = await site.ask(method, f"{path}?token={TOKEN.reveal()}", {}, headers={})
        foreign = await site.ask(method, path, {}, headers={**BEARER, "Origin": EVIL})
        rebound = await site.ask(method, path, {}, headers={**BEARER, "Host": f"evil.example:{site.port}"})
        assert [status for status, _ in (stranger, by_query, foreign, rebound)] == [401, 401, 403, 421]
        assert TOKEN.reveal() not in str((stranger, by_query, foreign, rebound))
        assert await site.sessions.dispatch(ListSessions()) == []


async def test_another_server_s_cookie_opens_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, SCENARIO) as site:
        other = {"Cookie": f"{COOKIE_NAME}={page_cookie(Secret('another token')).reveal()}", "Origin": site.url}
        assert (await site.ask("GET", "/api/sessions", headers=other))[0] == 401
