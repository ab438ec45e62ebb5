"""What the page survives: reloads, other windows, networks that fail, and servers that are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, WebSocketRoute, expect
from support.browser import LOST_SERVER, WAIT_MS, Site, Window, site_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = 60
WHOLE = [f"w{number}" for number in range(WORDS)]
STREAM = f"pace: 25ms\nsay: {' '.join(WHOLE)}"
LONG = [f"w{number}" for number in range(400)]
"""Ten seconds: a busy machine needs some of them to load a page again."""


async def words(window: Window) -> list[str]:
    texts = await window.answers.locator(".prose").all_inner_texts()
    return " ".join(texts).split()


async def arriving(window: Window, word: str) -> None:
    await expect(window.answers).to_contain_text(f"{word} ")


@pytest.mark.req("MC-RESUME-001")
async def test_a_reload_in_the_middle_of_an_answer_loses_and_repeats_nothing(site: Site) -> None:
    site.script(f"pace: 25ms\nsay: {' '.join(LONG)}")
    async with site.window(await site.session()) as window:
        await window.say("Count")
        await arriving(window, "w5")
        await window.composer.fill("a half-written thought")
        await window.page.wait_for_function("() => JSON.stringify(localStorage).includes('half-written')")
        await window.page.reload()
        await expect(window.answers).to_have_attribute("aria-busy", "true")
        await expect(window.composer).to_have_value("a half-written thought")
        await window.idle()
        assert await words(window) == LONG
        await expect(window.test_id("user-message")).to_have_count(1)
        await expect(window.composer).to_have_value("a half-written thought")


async def test_two_windows_see_the_same_session(site: Site) -> None:
    site.script(STREAM)
    session = await site.session()
    async with site.window(session) as one, site.window(session) as other:
        await one.say("Count")
        await expect(other.test_id("user-message")).to_have_text("You Count")
        await arriving(other, "w5")
        await one.idle()
        await other.idle()
        assert await words(one) == await words(other) == WHOLE
        await other.say("Once more")
        await expect(one.test_id("user-message")).to_have_count(2)
        await one.idle()


async def test_what_is_decided_in_one_window_disappears_in_the_other_which_says_who_decided(site: Site) -> None:
    site.script('tool: write {"path": "two.txt", "content": "x"}\n---\nsay: Written.')
    session = await site.session()
    async with site.window(session) as one, site.window(session) as other:
        await one.say("Write")
        await expect(one.approval).to_be_visible()
        await expect(other.approval).to_be_visible()
        await one.test_id("approve-once").click()
        await expect(other.approval).to_have_count(0)
        await expect(other.answers).to_contain_text("Written.")
        for window in (one, other):
            await window.tool("write").locator("summary").first.scroll_into_view_if_needed()
            await expect(window.tool("write")).to_contain_text("You approved this in the browser")


class HeldBack:
    """The connections of some windows. While `holding`, what the server says does not reach them, but for frames of
    one type."""

    def __init__(self, but: str = "") -> None:
        self.holding = False
        self._but = f'"type":"{but}"'
        self.said: list[str] = []
        self.heard: list[str] = []
        self.refused = asyncio.Event()
        self._waiting: list[tuple[WebSocketRoute, str]] = []

    def join(self, page: WebSocketRoute) -> None:
        server = page.connect_to_server()
        page.on_message(lambda text: self._to_server(server, str(text)))
        server.on_message(lambda text: self._to_page(page, str(text)))

    def release(self) -> None:
        self.holding = False
        for page, text in self._waiting:
            page.send(text)

    def _to_server(self, server: WebSocketRoute, text: str) -> None:
        self.said.append(text)
        server.send(text)

    def _to_page(self, page: WebSocketRoute, text: str) -> None:
        self.heard.append(text)
        if "APPROVAL_CONFLICT" in text:
            self.refused.set()
        if self.holding and self._but not in text:
            self._waiting.append((page, text))
        else:
            page.send(text)


@pytest.mark.req("MC-APPR-009")
async def test_two_windows_that_decide_at_once_run_the_call_once(site: Site) -> None:
    site.script('tool: shell {"command": "echo ran >> both.txt"}\n---\nsay: Over.')
    session = await site.session()
    held = HeldBack()
    async with site.context() as context:
        await context.route_web_socket("**/ws?**", held.join)
        async with site.window(session, context=context) as one, site.window(session, context=context) as other:
            await one.say("Run")
            await expect(one.approval).to_be_visible()
            await expect(other.approval).to_be_visible()
            held.holding = True  # neither window learns of the other's decision before its own is on the way
            for window in (one, other):
                await window.test_id("approve-once").click()
            async with asyncio.timeout(WAIT_MS / 1000):
                await held.refused.wait()
            held.release()
            for window in (one, other):
                await window.idle()
                await expect(window.tool("shell")).to_have_attribute("data-status", "done")
    assert (site.folder / "both.txt").read_text(encoding="utf-8") == "ran\n"
    assert len([text for text in held.said if '"approve"' in text]) == 2
    assert len([text for text in held.heard if "APPROVAL_CONFLICT" in text]) == 1


async def test_without_a_network_the_page_says_so_keeps_what_is_written_and_goes_on_by_itself(site: Site) -> None:
    site.script("say: I got it.")
    async with site.window(await site.session()) as window:
        window.allow(LOST_SERVER)
        await window.page.context.set_offline(True)
        await expect(window.test_id("connection")).to_contain_text("Offline")
        await window.say("Said without a network")
        await expect(window.test_id("outgoing")).to_contain_text("it will be sent when the connection is back")
        await window.page.context.set_offline(False)
        await window.connected()
        await window.idle()
        await expect(window.test_id("user-message")).to_have_count(1)
        await expect(window.answers).to_contain_text("I got it.")
        await expect(window.test_id("outgoing")).to_have_count(0)


async def test_the_page_says_connected_when_the_conversation_is_there_and_not_before(site: Site) -> None:
    site.script("say: Hello.")
    held = HeldBack(but="welcome")
    async with site.window(await site.session()) as window:
        await window.say("Hi")
        await window.idle()
        await window.page.route_web_socket("**/ws?**", held.join)
        held.holding = True
        await window.page.reload()
        await expect(window.test_id("connection")).to_contain_text("Loading")
        held.release()
        await window.connected()
        await window.press("r")  # which needs the conversation
        await expect(window.page.get_by_role("dialog")).to_be_visible()
        await expect(window.answers).to_contain_text("Hello.")


async def test_a_slow_network_shows_everything_late_and_once(site: Site) -> None:
    site.script(STREAM)
    async with site.window(await site.session()) as window:
        devtools = await window.devtools()
        slow = {"offline": False, "latency": 300, "downloadThroughput": 20_000, "uploadThroughput": 20_000}
        await devtools.send("Network.enable")
        await devtools.send("Network.emulateNetworkConditions", slow)
        await window.page.reload()
        await window.connected()
        await window.say("Count")
        await window.idle()
        assert await words(window) == WHOLE
        await expect(window.test_id("user-message")).to_have_count(1)


async def _killed(site: Site, window: Window) -> None:
    """Kill the server and see the page say so; it is back at the same address afterwards."""
    window.allow(LOST_SERVER)
    site.server.port = int(site.server.url.rpartition(":")[2])
    await site.server.kill()
    await expect(window.test_id("connection")).to_contain_text("Reconnecting")


async def test_a_server_killed_in_the_middle_of_an_answer_is_waited_for(browser: Browser, tmp_path: Path) -> None:
    async with site_of(tmp_path, browser) as site:
        site.script(STREAM)
        async with site.window(await site.session()) as window:
            await window.say("Count")
            await arriving(window, "w5")
            await _killed(site, window)
            await expect(window.page.get_by_text("Not connected.")).to_be_visible()
            await window.screenshot("reconnecting")
            seen = await words(window)
            assert seen == WHOLE[: len(seen)]
            await site.server.start()
            await window.connected()
            await window.idle()
            # What had arrived stays in sight as broken off; the run starts that turn again, and nothing is shown twice.
            await expect(window.test_id("user-message")).to_have_count(1)
            texts = [text.split() for text in await window.answers.locator(".prose").all_inner_texts()]
            assert texts[-1] == WHOLE
            assert all(text == WHOLE[: len(text)] for text in texts)
            await window.page.reload()
            await window.idle()
            assert [text.split() for text in await window.answers.locator(".prose").all_inner_texts()] == texts


@pytest.mark.req("MC-APPR-009")
async def test_an_approval_outlives_its_server_and_the_tool_runs_once(browser: Browser, tmp_path: Path) -> None:
    async with site_of(tmp_path, browser) as site:
        site.script('tool: shell {"command": "echo ran >> once.txt"}\n---\nsay: It ran.')
        async with site.window(await site.session()) as window:
            await window.say("Run")
            await expect(window.approval).to_be_visible()
            await _killed(site, window)
            await expect(window.test_id("approve-once")).to_be_disabled()
            await site.server.start()
            await window.connected()
            await expect(window.approval).to_have_count(1)
            await window.test_id("approve-once").click()
            await window.idle()
            await expect(window.answers).to_contain_text("It ran.")
            assert (site.folder / "once.txt").read_text(encoding="utf-8") == "ran\n"


async def test_a_browser_without_permission_is_told_how_to_get_it(site: Site) -> None:
    context = await site.browser.new_context()
    window = Window(await context.new_page())
    await window.page.goto(site.address(await site.session()))
    gate = window.test_id("gate")
    await expect(gate).to_contain_text("This browser is not authorised")
    await expect(window.test_id("connection")).to_contain_text("Not authorised")
    await window.test_id("token").fill(f"{site.server.url}/#token={site.server.token}")
    await window.test_id("token").press("Enter")
    await window.connected()
    await expect(gate).to_have_count(0)
    assert site.server.token not in await window.page.evaluate(
        "location.href + document.cookie + JSON.stringify(localStorage)"
    )
    assert {one.split(": ")[0] for one in window.troubles} <= {"status 401", "console error"}
    await context.close()
