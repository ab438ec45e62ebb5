"""A real, certified OAuth server for a whole test session, and a browser's part in logging in to it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, Self

import aiohttp
import msgspec
import pytest

from makai.core.secret import Secret

FOLDER: Final = Path(__file__).resolve().parents[1] / "oauth"
CLIENT_ID: Final = "makai-test"
MAX_PAGES: Final = 20


class OidcServer(msgspec.Struct, frozen=True):
    issuer: str
    client_id: str = CLIENT_ID

    async def is_active(self, token: Secret) -> bool:
        """What the server itself says of a token (RFC 7662)."""
        form = {"token": token.reveal(), "client_id": self.client_id}
        asking = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        async with asking as http, http.post(f"{self.issuer}/token/introspection", data=form) as response:
            return bool((await response.json())["active"])


@pytest.fixture(scope="session")
def oidc_server() -> Iterator[OidcServer]:
    with started() as server:
        yield server


@contextmanager
def started(**lifetimes: str) -> Iterator[OidcServer]:
    """A server with lifetimes of its own (see `server.mjs`)."""
    node = _installed()
    process = subprocess.Popen(
        [node, "server.mjs"],
        cwd=FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"PATH": os.environ["PATH"], **lifetimes},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = threading.Timer(30, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            pytest.fail("the OAuth server did not start: run `node server.mjs` in tests/oauth to see why")
        yield OidcServer(json.loads(line)["issuer"])
    finally:
        watchdog.cancel()
        process.stdin.close()  # it ends with its input
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        process.stdout.close()


def _installed() -> str:
    """The path of node, once the server's packages are there."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("NO REAL OAUTH SERVER: node and npm are not installed")
    with (FOLDER / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # pytest runs several workers, and each would install
        if not (FOLDER / "node_modules" / ".package-lock.json").is_file():  # npm writes it last
            done = subprocess.run([npm, "ci"], cwd=FOLDER, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0:
                pytest.skip(f"NO REAL OAUTH SERVER: `npm ci` in tests/oauth failed: {done.stderr.strip()[-300:]}")
    return node


class _Forms(HTMLParser):
    """The forms of a page: action, method, and the fields as the page fills them."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((fields.get("action", ""), fields.get("method", "get").lower(), {}))
        elif tag == "input" and self.forms and fields.get("name"):
            self.forms[-1][2][fields["name"]] = fields.get("value", "")


class Browser:
    def __init__(self, user: str = "alice") -> None:
        self._typed = {"login": user, "password": "not checked"}
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def visit(self, url: str, *, deny: bool = False, user_code: str = "") -> tuple[str, str]:
        """Open the page and go on until there is nothing left to submit. Returns the last address and text.

        `deny` turns away at the first page that asks something.
        """
        typed = {**self._typed, **({"user_code": user_code} if user_code else {})}
        url, text = await self._load("get", url, {})
        for _ in range(MAX_PAGES):
            forms = _Forms()
            forms.feed(text)
            if deny and "/interaction/" in url:
                return await self._load("get", f"{url}/abort", {})
            if not forms.forms:
                return url, text
            action, method, fields = forms.forms[0]
            filled = {name: typed.get(name, value) for name, value in fields.items()}
            url, text = await self._load(method, urllib.parse.urljoin(url, action or url), filled)
        raise AssertionError(f"the login did not end after {MAX_PAGES} pages, at {urllib.parse.urlsplit(url).path}")

    async def _load(self, method: str, url: str, fields: dict[str, str]) -> tuple[str, str]:
        options = {"data": fields} if method == "post" else {"params": fields}
        async with self._session.request(method, url, **options, timeout=aiohttp.ClientTimeout(total=20)) as response:  # type: ignore[arg-type]
            return str(response.url), await response.text()
