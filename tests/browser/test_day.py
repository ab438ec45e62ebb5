"""A day in the page, as one journey: from the first visit to a run that continues after the server was killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, expect
from support.browser import LOST_SERVER, Site, Window, site_of
from support.page_stage import drop_file, open_settings

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

MORNING = """say: First the plan.
tool: write {"path": "plan.txt", "content": "walnuts\\n"}
---
tool: shell {"command": "rm notes.txt"}
---
say: The walnuts are planned, and your notes stay.
---
say: In short: plant walnuts.
"""
WHOLE = [f"w{number}" for number in range(400)]


def evening(pace: str) -> str:
    """The scenario goes by the number of answers so far; a branch begins with the three that it took along."""
    call = 'tool: shell {"command": "echo ran >> once.txt"}'
    return "say: Never said.\n---\n" * 3 + f"{call}\n---\n{pace}\nsay: {' '.join(WHOLE)}\n"


def row(window: Window, session_id: str) -> Locator:
    return window.page.locator(f"[data-testid=session-row][data-session='{session_id}']")


def shown_session(window: Window) -> str:
    return window.page.url.rpartition("/")[2].partition("?")[0]


async def test_a_day_from_the_first_visit_to_a_server_that_was_killed(browser: Browser, tmp_path: Path) -> None:
    async with site_of(tmp_path, browser) as site, site.window() as window:
        (site.folder / "notes.txt").write_text("the content of the notes\n")
        await _look_at_the_demo(window)
        planned = await _plan(site, window)
        await _undo_one_file(site, window)
        branch = await _find_and_branch(window, planned)
        await _archive(window, planned)
        link = await _create_token(window)
        device = await browser.new_context()
        watcher = Window(await device.new_page())
        await watcher.page.goto(link)
        await expect(watcher.test_id("scope")).to_have_text("Watching")
        await row(watcher, branch).click()
        await watcher.connected()
        await _watched_run(site, window, watcher, branch)
        await _interrupted_run(site, window, watcher)
        watcher.allow(LOST_SERVER)
        assert watcher.complaints() == []
        await device.close()


async def _look_at_the_demo(window: Window) -> None:
    await expect(window.page.get_by_role("heading", name="Welcome to makai")).to_be_visible()
    await window.test_id("open-demo").click()
    await window.connected()
    await expect(window.composer).to_have_value("Show me what you can do.")
    await window.composer.press("Enter")
    for decided in ("greet.py", "python3 test_greet.py"):
        await expect(window.approval).to_contain_text(decided)
        await window.decide("y")
    await expect(window.answers.last.locator("table")).to_be_visible()
    await window.idle()


async def _plan(site: Site, window: Window) -> str:
    """Start in a folder with two files, steer and queue while a question is open, allow one call and deny another."""
    site.script(MORNING)
    await window.press("c")
    await window.test_id("folder-picker").click()
    await window.test_id("cwd").fill(str(site.folder))
    await window.test_id("cwd").press("Enter")
    await expect(window.composer).to_be_focused()
    await window.test_id("home").get_by_test_id("model-picker").click()
    await window.test_id("model-search").fill("scenario")
    await window.test_id("model-search").press("Enter")
    await expect(window.composer).to_be_focused()
    await drop_file(window, "prices.csv", "walnut,3\n")
    await expect(window.test_id("attached-file")).to_contain_text("prices.csv")
    await window.composer.press_sequentially("Plan with @note")
    await expect(window.test_id("completions").get_by_role("option")).to_have_text(["notes.txt"])
    await window.page.keyboard.press("Enter")
    await window.composer.press("Enter")
    await expect(window.test_id("sent-file")).to_have_count(2)

    await expect(window.approval).to_contain_text("plan.txt")
    waiting = window.test_id("waiting").locator("li")
    await window.say("Then shrten it")
    await expect(waiting).to_have_text(["Queued Then shrten it"])
    await waiting.get_by_role("button", name="Edit this message").click()
    await expect(window.composer).to_have_value("Then shrten it")
    await window.say("Then shorten it")
    await expect(waiting).to_have_text(["Queued Then shorten it"])
    await window.composer.fill("Keep my notes")
    await window.composer.press("Control+Enter")
    await expect(waiting).to_contain_text(["Then shorten it", "Steering"])
    await window.test_id("approve-once").click()
    await expect(window.approval).to_contain_text("rm notes.txt")
    await window.test_id("deny-why").click()
    await window.test_id("deny-reason").fill("I need my notes.")
    await window.test_id("deny-reason").press("Enter")
    await expect(window.answers.last).to_contain_text("plant walnuts")
    await window.idle()
    said = await window.test_id("user-message").all_inner_texts()
    assert [text.split("\n")[-1] for text in said[1:]] == ["Keep my notes", "Then shorten it"]
    await expect(window.tool("shell")).to_have_attribute("data-status", "denied")
    assert ((site.folder / "plan.txt").read_text(), (site.folder / "notes.txt").exists()) == ("walnuts\n", True)
    return shown_session(window)


async def _undo_one_file(site: Site, window: Window) -> None:
    await window.press("f")
    await expect(window.test_id("changed-file")).to_contain_text("plan.txt")
    await window.test_id("undo-file").click()
    await window.test_id("confirm-restore").click()
    await expect(window.test_id("changed-file")).to_have_count(0)
    assert not (site.folder / "plan.txt").exists()
    await window.page.keyboard.press("Escape")
    await expect(window.test_id("changes")).to_have_count(0)


async def _find_and_branch(window: Window, planned: str) -> str:
    await window.press("c")
    await expect(window.test_id("home")).to_be_visible()
    await window.press("/")
    await window.page.keyboard.type("your notes stay")
    await expect(window.test_id("match").first).to_contain_text("walnuts are planned")
    await window.page.keyboard.press("Enter")
    await window.connected()
    assert shown_session(window) == planned
    said = window.answers.filter(has_text="your notes stay")
    await expect(said).to_be_in_viewport()
    await said.hover()
    await said.get_by_label("Branch from here").click()
    await window.page.wait_for_url(lambda url: planned not in url)
    await window.connected()
    await expect(window.test_id("branch-line")).to_contain_text("which stays as it is")
    await expect(window.answers.last).to_contain_text("your notes stay")
    await window.test_id("session-search").fill("")
    return shown_session(window)


async def _archive(window: Window, planned: str) -> None:
    await row(window, planned).click(button="right")
    await window.page.get_by_role("menuitem", name="Archive", exact=True).click()
    await expect(row(window, planned)).to_have_count(0)


async def _create_token(window: Window) -> str:
    await open_settings(window, "tokens")
    await window.test_id("token-name").fill("tablet")
    await window.test_id("token-scope").select_option("observe")
    await window.test_id("token-name").press("Enter")
    link = await window.test_id("token-link").input_value()
    await window.test_id("token-done").click()
    return link


async def _watched_run(site: Site, window: Window, watcher: Window, branch: str) -> None:
    """Another device sees the question, cannot answer it or write, and says why."""
    site.script(evening("pace: 25ms"))
    await row(window, branch).click()
    await window.connected()
    await window.say("Now count")
    await expect(watcher.approval).to_contain_text("once.txt")
    await expect(watcher.test_id("approval-locked")).to_contain_text("Your link lets you watch.")
    await expect(watcher.composer).to_be_disabled()
    await expect(watcher.composer).to_have_attribute("placeholder", re.compile("needs one with the scope prompt"))
    await watcher.press("y")
    await expect(window.approval).to_be_visible()
    await window.test_id("approve-once").click()
    await expect(watcher.approval).to_have_count(0)
    await expect(watcher.answers.last).to_contain_text("w5 ")


async def _interrupted_run(site: Site, window: Window, watcher: Window) -> None:
    """A reload and a killed server in the middle of an answer: both devices see its end, and nothing runs twice."""
    await window.page.reload()
    await expect(window.answers.last).to_have_attribute("aria-busy", "true")
    for one in (window, watcher):
        one.allow(LOST_SERVER)
    site.server.port = int(site.server.url.rpartition(":")[2])
    await site.server.kill()
    await expect(window.test_id("connection")).to_contain_text("Reconnecting")
    site.script(evening("pace: 1ms"))
    await site.server.start()
    for one in (window, watcher):
        await one.connected()
        await one.idle()
        assert (await one.answers.last.locator(".prose").inner_text()).split() == WHOLE
    assert (site.folder / "once.txt").read_text() == "ran\n"
    await expect(window.test_id("user-message").last).to_have_text("You Now count")
