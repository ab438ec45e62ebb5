"""The page in a real browser: Debian's chromium, driven by Playwright, against a real `makai serve` process.

A `Window` records what the browser complained about (console, failed requests, exceptions); a test fails on complaints
that it did not allow.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from playwright import async_api
from playwright.async_api import Browser, BrowserContext, CDPSession, ConsoleMessage, Locator, StorageState, expect

from support.cli import NOTHING
from support.serve_process import ServeProcess, serve_process

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "test-artifacts"
PAGE = ROOT / "src/makai/server/page"
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--disable-quic",
)  # fmt: skip
WIDE, PHONE = (1280, 860), (390, 844)
WAIT_MS = 45_000
READ_MS = 550
"""The page takes a decision by key half a second after its card came up: reading takes longer."""
TYPING_MS = 1050
"""Nor does it take one within a second after something was typed."""
LOST_SERVER = re.compile(r"net::ERR_|WebSocket connection to .* failed|^request failed")
"""What Chromium says by itself when a server goes away; no page can keep it from that."""

Theme = Literal["light", "dark"]

expect.set_options(timeout=WAIT_MS)


class Violation(msgspec.Struct, frozen=True):
    id: str
    impact: str | None
    nodes: tuple[str, ...]


class Window:
    def __init__(self, page: async_api.Page) -> None:
        self.page = page
        self.troubles: list[str] = []
        self._allowed: re.Pattern[str] | None = None
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def allow(self, complaints: re.Pattern[str]) -> None:
        """Such complaints belong to what the test does to the page."""
        self._allowed = complaints

    def complaints(self) -> list[str]:
        """All that were not allowed."""
        return [trouble for trouble in self.troubles if not (self._allowed and self._allowed.search(trouble))]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.troubles.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _failed(self, request: async_api.Request) -> None:
        # Leaving a page gives up what it was asking for: that is no failure.
        if request.failure != "net::ERR_ABORTED":
            self.troubles.append(f"request failed: {request.method} {request.url}: {request.failure}")

    def _answered(self, response: async_api.Response) -> None:
        if response.status >= 400:
            self.troubles.append(f"status {response.status}: {response.request.method} {response.url}")

    def test_id(self, name: str) -> Locator:
        return self.page.get_by_test_id(name)

    @property
    def composer(self) -> Locator:
        return self.test_id("composer")

    @property
    def answers(self) -> Locator:
        return self.test_id("assistant-message")

    @property
    def approval(self) -> Locator:
        return self.test_id("approval")

    def tool(self, name: str) -> Locator:
        return self.page.locator(f"[data-testid=tool-card][data-tool={name}]")

    async def say(self, text: str) -> None:
        await self.composer.fill(text)
        await self.composer.press("Enter")

    async def press(self, key: str) -> None:
        await self.page.evaluate("document.activeElement?.blur()")
        await self.page.keyboard.press(key)

    async def read_approval(self) -> None:
        """Look at the first approval for as long as the page wants it looked at."""
        await expect(self.approval.first).to_be_visible()
        shown = await self.page.evaluate("() => performance.now()")
        await self.page.wait_for_function("(at) => performance.now() > at", arg=shown + READ_MS)

    async def press_after_typing(self, key: str) -> None:
        """Press a key when nothing was typed for as long as the page takes for a pause."""
        typed = await self.page.evaluate("() => performance.now()")
        await self.page.wait_for_function("(at) => performance.now() > at", arg=typed + TYPING_MS)
        await self.page.keyboard.press(key)

    async def decide(self, key: str) -> None:
        """Decide on the first approval by key, having read it."""
        await self.read_approval()
        await self.press(key)

    async def connected(self) -> None:
        await expect(self.test_id("connection")).to_have_attribute("data-state", "live")

    async def idle(self) -> None:
        """Everything that was sent was taken and answered, and the page knows it."""
        await expect(self.test_id("outgoing")).to_have_count(0)
        await expect(self.test_id("waiting")).to_have_count(0)
        await expect(self.test_id("spoken")).to_have_text("Ready")

    async def axe(self, *rules: str) -> list[Violation]:
        """Everything axe-core objects to on what is shown now, by these rules or by all."""
        # The page's policy forbids foreign scripts, so this one runs as the developer tools' own.
        if not await self.page.evaluate("() => 'axe' in window"):
            await self.page.evaluate(f"() => {{ {AXE.read_text(encoding='utf-8')} }}")
        options = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
        found: list[dict[str, Any]] = await self.page.evaluate(
            "async (options) => (await axe.run(document, options)).violations", options
        )
        shown = "{html}: {failureSummary}".format_map
        return [Violation(one["id"], one["impact"], tuple(map(shown, one["nodes"]))) for one in found]

    async def screenshot(self, name: str) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=ARTIFACTS / f"{name}.png")

    async def devtools(self) -> CDPSession:
        return await self.page.context.new_cdp_session(self.page)


class Site:
    def __init__(self, server: ServeProcess, browser: Browser) -> None:
        self.server = server
        self.browser = browser
        self.folder = server.folder / "project"
        self.folder.mkdir(exist_ok=True)
        self._logged_in: StorageState | None = None

    def script(self, scenario: str) -> None:
        self.server.scenario.write_text(scenario, encoding="utf-8")

    async def session(self, mode: str = "ask") -> str:
        return await self.server.session(self.folder, mode)

    def address(self, session_id: str | None = None) -> str:
        return self.server.url + ("/" if session_id is None else f"/#/s/{session_id}")

    async def ask(self, path: str) -> Any:
        async with self.server.http.get(self.server.url + path, headers=dict(self.server.headers)) as response:
            assert response.status == 200, await response.text()
            return msgspec.json.decode(await response.read())

    async def _cookie(self) -> StorageState:
        """What a browser keeps after its user opened the printed address once."""
        if self._logged_in is None:
            context = await self.browser.new_context()
            page = await context.new_page()
            await page.goto(f"{self.server.url}/#token={self.server.token}")
            await expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "granted")
            assert "token" not in page.url
            self._logged_in = await context.storage_state()
            await context.close()
        return self._logged_in

    @asynccontextmanager
    async def context(
        self, *, theme: Theme = "light", size: tuple[int, int] = WIDE, phone: bool = False
    ) -> AsyncIterator[BrowserContext]:
        context = await self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=theme,
            has_touch=phone,
            is_mobile=phone,
            permissions=["clipboard-read", "clipboard-write"],
            storage_state=await self._cookie(),
        )
        try:
            yield context
        finally:
            await context.close()

    @asynccontextmanager
    async def window(
        self,
        session_id: str | None = None,
        *,
        context: BrowserContext | None = None,
        theme: Theme = "light",
        size: tuple[int, int] = WIDE,
        phone: bool = False,
    ) -> AsyncIterator[Window]:
        """A tab that shows a session, or the first screen; it must not have complained when it is left."""
        if context is None:
            async with (
                self.context(theme=theme, size=size, phone=phone) as own,
                self.window(session_id, context=own) as window,
            ):
                yield window
            return
        window = Window(await context.new_page())
        await window.page.goto(self.address(session_id))
        if session_id is not None:
            await window.connected()
        try:
            yield window
        except (AssertionError, async_api.Error):
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2]
            await window.screenshot("failed-" + re.sub(r"\W+", "-", test))
            raise
        complaints = window.complaints()
        assert not complaints, complaints
        await window.page.close()


def chromium_or_skip() -> str:
    """Where the browser is; without it or without the built page these tests are skipped, and say so."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("chromium is not installed: the page was NOT tested in a browser")
    if not (PAGE / "index.html").exists():
        pytest.skip("the page is not built (`make page`): it was NOT tested in a browser")
    return path


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    path = chromium_or_skip()
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def site_of(folder: Path, browser: Browser, *, environ: Mapping[str, str] = NOTHING) -> AsyncIterator[Site]:
    async with serve_process(folder, "say: Hello.", environ=environ) as server:
        yield Site(server, browser)
