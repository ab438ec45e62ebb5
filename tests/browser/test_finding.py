"""Finding a session again among many: groups, filters, runs, the search, and actions on one and on many."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect
from support.browser import Site, Window, site_of
from support.cli import Cli
from support.long_session import write_long_session
from support.machine import RecordMeasure, slack
from support.profiles import FAULTS
from support.small_sessions import SmallSession, write_sessions

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY = 10_000 if FAULTS else 1_300
SLACK = 1 if FAULTS else 6
"""`make test` runs these beside other tests and shows what it measured; the bars themselves are for `make faults`."""
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def now_ms() -> int:
    return int(time.time() * 1000)


def row(window: Window, session_id: str) -> Locator:
    return window.page.locator(f"[data-testid=session-row][data-session='{session_id}']")


async def titles(window: Window) -> list[str]:
    return await window.page.locator("[data-testid=session-row] .title").all_inner_texts()


async def groups(window: Window) -> list[str]:
    return [text.strip() for text in await window.test_id("group").all_inner_texts()]


async def choose(window: Window, entry: str) -> None:
    await window.page.get_by_role("menuitem", name=re.compile(f"^{entry}")).click()


def some(count: int, **fields: Any) -> list[SmallSession]:
    """Sessions of the last minutes, the newest first."""
    newest = now_ms() - 1_000
    return [SmallSession(f"s{at}", f"Session {at}", newest - at * 1_000, **fields) for at in range(count)]


async def test_sessions_are_grouped_by_day_or_folder_and_the_page_remembers_which(
    browser: Browser, tmp_path: Path
) -> None:
    now = now_ms()
    shop, site_folder = str(tmp_path / "shop/api"), str(tmp_path / "site/api")
    await write_sessions(
        tmp_path / "makai-home",
        [
            SmallSession("s1", "Just now", now - 1, shop),
            SmallSession("s2", "A while ago", now - 20 * DAY_MS, site_folder),
            SmallSession("s3", "Long ago", now - 40 * DAY_MS, shop),
        ],
    )
    async with site_of(tmp_path, browser) as site, site.window() as window:
        await expect(row(window, "s3")).to_be_visible()
        assert await groups(window) == ["Today", "Older"]
        await expect(row(window, "s1")).to_contain_text("shop/api")
        await window.test_id("grouping").select_option("folder")
        await expect(window.test_id("group").first).to_have_text("shop/api")
        assert await groups(window) == ["shop/api", "site/api"]
        assert await titles(window) == ["Just now", "Long ago", "A while ago"]
        await expect(window.test_id("group").first).to_have_attribute("title", shop)
        await window.test_id("group").first.click()
        await expect(window.test_id("group").first).to_have_attribute("aria-expanded", "false")
        assert await titles(window) == ["A while ago"]
        await window.page.reload()
        await expect(row(window, "s2")).to_be_visible()
        assert await titles(window) == ["A while ago"]


async def test_runs_are_one_line_that_opens_in_place(browser: Browser, tmp_path: Path) -> None:
    chat, *runs = some(4)
    await write_sessions(
        tmp_path / "makai-home",
        [chat, *[SmallSession(one.session_id, one.title, one.updated_ms, made_by="run") for one in runs]],
    )
    async with site_of(tmp_path, browser) as site, site.window() as window:
        await expect(window.test_id("runs")).to_have_text("3 runs")
        assert await titles(window) == ["Session 0"]
        await window.test_id("runs").click()
        await expect(row(window, "s3")).to_be_visible()
        assert await titles(window) == ["Session 0", "Session 1", "Session 2", "Session 3"]
        await row(window, "s2").click()
        await window.connected()
        await expect(row(window, "s2")).to_have_attribute("aria-current", "page")
        await window.test_id("runs").click(button="right")
        await choose(window, "Select these 3 runs")
        await expect(window.test_id("selection")).to_contain_text("3 selected")


async def test_filters_show_what_waits_and_what_runs_and_say_when_that_is_nothing(site: Site) -> None:
    site.script('tool: write {"path": "waits.txt", "content": "x"}\n---\nsay: Written.')
    asking = await site.session()
    async with site.window(asking) as window:
        await window.test_id("filter").select_option("waiting")
        await expect(window.test_id("empty-list")).to_contain_text("No session waits for you.")
        await window.test_id("empty-list").get_by_role("button", name="Show all").click()
        await expect(row(window, asking)).to_be_visible()
        await window.say("Write it")
        await expect(window.approval).to_be_visible()
        await window.test_id("filter").select_option("waiting")
        await expect(window.test_id("session-row")).to_have_count(1)
        await expect(row(window, asking)).to_have_accessible_name(re.compile("1 approval waiting"))
        await window.test_id("filter").select_option("running")
        await expect(row(window, asking)).to_be_visible()
        await window.test_id("deny").click()
        await expect(window.test_id("empty-list")).to_contain_text("Nothing is running.")


async def test_a_session_that_is_not_open_has_its_actions_by_mouse_and_by_keyboard(
    browser: Browser, tmp_path: Path
) -> None:
    await write_sessions(tmp_path / "makai-home", some(3))
    async with site_of(tmp_path, browser) as site, site.window("s0") as window:
        await row(window, "s1").hover()
        await window.page.get_by_role("button", name="Actions for Session 1").click()
        await expect(window.page.get_by_role("menuitem", name="Open in a new tab")).to_be_focused()
        await choose(window, "Rename")
        await expect(window.test_id("title-field")).to_have_value("Session 1")
        await window.test_id("title-field").fill("Another name")
        await window.test_id("title-field").press("Enter")
        await expect(row(window, "s1")).to_contain_text("Another name")
        await expect(window.test_id("session-title")).to_have_text("Session 0")
        # By keyboard alone: archive, and take it back.
        await row(window, "s1").focus()
        await window.page.keyboard.press("Shift+F10")
        await window.page.get_by_role("menuitem", name="Archive", exact=True).press("Enter")
        await expect(row(window, "s1")).to_have_count(0)
        await expect(row(window, "s0")).to_be_focused()
        await window.test_id("toast-action").click()
        await expect(row(window, "s1")).to_be_visible()
        await row(window, "s1").click(button="right")
        await choose(window, "Archive")
        await expect(row(window, "s1")).to_have_count(0)
        await window.test_id("filter").select_option("archived")
        await expect(row(window, "s1")).to_be_visible()
        assert await titles(window) == ["Another name"]
        await row(window, "s1").click(button="right")
        await choose(window, "Move out of the archive")
        await expect(window.test_id("empty-list")).to_contain_text("Nothing is archived.")
        await window.test_id("filter").select_option("all")
        await row(window, "s1").click(button="right")
        await choose(window, "Delete")
        await expect(window.test_id("delete-dialog")).to_contain_text("Another name")
        await window.test_id("confirm-delete").click()
        await expect(row(window, "s1")).to_have_count(0)
        await expect(window.test_id("session-title")).to_have_text("Session 0")
        await row(window, "s2").click(button="right")
        async with window.page.context.expect_page() as opened:
            await choose(window, "Open in a new tab")
        await expect((await opened.value).get_by_test_id("session-title")).to_have_text("Session 2")
        await row(window, "s2").click(button="right")
        await choose(window, "Branch")
        await window.page.wait_for_url(lambda url: "/s/" in url and not url.endswith(("s0", "s2")))


async def test_many_sessions_are_archived_and_deleted_at_once(browser: Browser, tmp_path: Path) -> None:
    await write_sessions(tmp_path / "makai-home", some(8))
    async with site_of(tmp_path, browser) as site, site.window() as window:
        await row(window, "s1").click(modifiers=["Control"])
        await row(window, "s3").click(modifiers=["Shift"])
        await row(window, "s6").click()
        await expect(window.test_id("selection")).to_contain_text("4 selected")
        await expect(row(window, "s2")).to_have_attribute("aria-checked", "true")
        await window.test_id("archive-selected").click()
        await expect(window.page.get_by_text("4 sessions were archived.")).to_be_visible()
        await expect(row(window, "s2")).to_have_count(0)
        assert await titles(window) == [f"Session {at}" for at in (0, 4, 5, 7)]
        await window.test_id("toast-action").click()
        await expect(row(window, "s2")).to_be_visible()
        order = await titles(window)
        assert sorted(order) == [f"Session {at}" for at in range(8)]
        # The same with keys: x selects where the focus is, and Escape gives up.
        await window.test_id("session-row").first.focus()
        for key in ("x", "j", "x", "Escape", "x", "j", "x"):
            await window.page.keyboard.press(key)
        await expect(window.test_id("selection")).to_contain_text("2 selected")
        await window.test_id("delete-selected").click()
        dialog = window.test_id("delete-dialog")
        await expect(dialog.get_by_role("heading")).to_have_text("Delete 2 sessions?")
        assert await dialog.get_by_role("listitem").all_inner_texts() == order[1:3]
        await window.test_id("confirm-delete").click()
        await expect(window.page.get_by_text("2 sessions were deleted.")).to_be_visible()
        left = (await site.ask("/api/sessions"))["sessions"]
        assert [one["title"] for one in left] == await titles(window) == [order[0], *order[3:]]
        # When the last one is archived, the list says so, and leads to them.
        await window.test_id("session-row").first.focus()
        for key in "xjxjxjxjxjx":
            await window.page.keyboard.press(key)
        await window.test_id("archive-selected").click()
        await expect(window.test_id("empty-list")).to_contain_text("All sessions are archived.")
        await window.page.get_by_role("button", name="Show archived sessions").click()
        await expect(window.test_id("session-row")).to_have_count(6)


async def test_a_hit_opens_the_conversation_at_its_place_and_back_leads_back(browser: Browser, tmp_path: Path) -> None:
    # Longer than a snapshot: the place is on a page that is loaded for it.
    await write_long_session(tmp_path / "makai-home", "long", 1_500, answer="x" * 4_000)
    async with site_of(tmp_path, browser) as site, site.window() as window:
        await window.press("/")
        await expect(window.test_id("session-search")).to_be_focused()
        await window.page.keyboard.type('"question 77"')
        match = window.test_id("match").first
        await expect(match).to_contain_text("You question 77")
        await expect(match.locator("mark").first).to_have_text(re.compile("question"))
        await window.page.keyboard.press("Enter")
        asked = window.test_id("transcript").get_by_text("question 77", exact=True)
        await expect(asked).to_be_in_viewport()
        place = window.page.locator("[data-item]:focus")
        await expect(place).to_contain_text("question 77")
        await expect(place).to_have_attribute("data-found", "")
        assert re.search(r"#/s/long\?at=\d+$", window.page.url)
        # In the middle of the conversation, and it stays there.
        middle: float = await place.evaluate(
            """(item) => { const box = item.closest("[data-testid=transcript]").getBoundingClientRect();
                           const own = item.getBoundingClientRect();
                           return (own.top + own.height / 2 - box.top) / box.height; }"""
        )
        assert 0.3 < middle < 0.7
        await expect(window.page.locator("[data-found]")).to_have_count(0)
        await expect(asked).to_be_in_viewport()
        await window.page.go_back()
        await expect(window.test_id("home")).to_be_visible()
        await window.page.go_forward()
        await expect(asked).to_be_in_viewport()


async def test_the_search_finds_archived_sessions_too_and_says_when_there_is_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    newest = now_ms()
    await write_sessions(
        tmp_path / "makai-home",
        [
            SmallSession("s1", "Walnuts", newest - MINUTE_MS, question="How do walnuts grow?", answer="On **trees**."),
            SmallSession("s2", "Oranges", newest - 2 * MINUTE_MS, question="And walnut trees?"),
        ],
    )
    async with site_of(tmp_path, browser) as site, site.window() as window:
        await row(window, "s2").click(button="right")
        await choose(window, "Archive")
        await expect(row(window, "s2")).to_have_count(0)
        await window.composer.focus()
        await window.press("/")
        await window.page.keyboard.type("walnut")
        await expect(window.test_id("hit")).to_have_count(2)
        archived = window.page.locator("[data-testid=hit][data-session=s2]")
        await expect(archived).to_contain_text("archived")
        await window.page.get_by_role("button", name="Actions for Oranges").click()
        await expect(window.page.get_by_role("menuitem", name="Move out of the archive")).to_be_visible()
        await window.page.keyboard.press("Escape")
        await archived.click()
        await expect(window.test_id("archived-line")).to_contain_text("Archived")
        await window.screenshot("archived-session")
        await window.test_id("unarchive").click()
        await expect(window.test_id("archived-line")).to_have_count(0)
        await expect(archived).not_to_contain_text("archived")
        await window.test_id("session-search").focus()
        await window.page.keyboard.press("ArrowDown")
        await window.page.keyboard.press("j")
        await expect(window.test_id("match").first).to_be_focused()
        # Escape leaves the search: the list is back, and the run of the open session, if one is active, continues.
        await window.page.keyboard.press("Escape")
        await expect(window.test_id("session-search")).to_have_value("")
        await expect(row(window, "s1")).to_be_visible()
        await window.test_id("session-search").fill("xylophone")
        await expect(window.test_id("hits")).to_contain_text("Nothing found.")


async def test_a_new_list_moves_neither_the_focus_nor_the_place(browser: Browser, tmp_path: Path) -> None:
    await write_sessions(tmp_path / "makai-home", some(150))
    async with site_of(tmp_path, browser) as site, site.window() as window:
        await expect(row(window, "s0")).to_be_visible()
        await window.test_id("session-list").evaluate("(box) => { box.scrollTop = 2000; }")
        await row(window, "s50").focus()
        before = await row(window, "s50").bounding_box()
        for _ in range(3):
            await site.session()
        # The list has the new ones: it is three lines longer.
        await expect(row(window, "s50").locator("xpath=..")).to_have_attribute("aria-setsize", "104")
        await expect(row(window, "s50")).to_be_focused()
        assert await row(window, "s50").bounding_box() == before


async def test_the_list_stays_quick_with_10000_sessions(
    browser: Browser, tmp_path: Path, record_measure: RecordMeasure
) -> None:
    await write_sessions(tmp_path / "makai-home", some(MANY, answer="Walnuts grow on trees."))
    async with site_of(tmp_path, browser) as site, site.window() as window:
        await expect(row(window, "s0")).to_be_visible()
        await window.page.evaluate(
            """() => { window.longest = 0;
                new PerformanceObserver((list) => {
                    for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
                }).observe({ type: "longtask" }); }"""
        )
        # The end of the list loads what is older, until all of it is there.
        await row(window, "s0").focus()
        last = row(window, f"s{MANY - 1}")
        while await last.count() == 0:
            await window.page.keyboard.press("End")
            await window.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
        await expect(last).to_be_focused()
        await window.press("/")
        await window.page.keyboard.type("walnuts grow", delay=20)
        await expect(window.test_id("hit").first).to_be_visible()
        await window.page.keyboard.press("Escape")
        await expect(row(window, "s0")).to_be_visible()
        longest: float = await window.page.evaluate("() => window.longest")
        nodes: int = await window.page.evaluate("() => document.querySelectorAll('nav *').length")
        record_measure(
            f"longest task of the page, listing and searching {MANY:,} sessions", "< 200 ms", f"{longest:.0f} ms"
        )
        assert longest < 200 * SLACK * slack()
        assert nodes < 1_500


async def test_an_observer_can_look_but_not_touch(site: Site) -> None:
    session = await site.session()
    link = (await Cli(site.server.home)("tokens", "link")).out.strip()
    context = await site.browser.new_context()
    window = Window(await context.new_page())
    await window.page.goto(link)
    await row(window, session).click(button="right")
    offered = ["Open in a new tab", "Export as Markdown", "Export as JSON lines"]
    await expect(window.page.get_by_role("menuitem")).to_have_text(offered)
    await window.page.keyboard.press("Escape")
    await expect(window.test_id("select-mode")).to_have_count(0)
    assert window.complaints() == []
    await context.close()
