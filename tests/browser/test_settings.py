"""The settings of the page in a real browser, on a real server and its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from support.browser import LOST_SERVER, PHONE, Site, Window, site_of
from support.page_stage import open_settings, with_usage
from support.plain_mcp import PYTHON, SERVER

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

SECTIONS = (
    "defaults", "instructions", "permissions", "folders", "tokens", "mcp", "usage", "appearance", "notifications",
    "keys",
)  # fmt: skip


FITS = """() => [document.documentElement, document.querySelector(".shown")].every(
    (box) => box.scrollWidth <= box.clientWidth
)"""


async def test_on_a_phone_sections_are_picked_from_a_list_and_nothing_is_wider_than_the_screen(site: Site) -> None:
    async with site.window(size=PHONE, phone=True) as window:
        await with_usage(window)
        await open_settings(window, "defaults")
        for section in SECTIONS:
            await window.test_id("settings-picker").select_option(section)
            await open_settings(window, section)
            assert await window.page.evaluate(FITS), section


async def test_a_default_is_written_to_the_users_file_and_reset(site: Site) -> None:
    file = site.server.home / "config.toml"
    file.write_text('# mine\neffort = "low" # for now\n', encoding="utf-8")
    async with site.window() as window:
        await open_settings(window, "defaults")
        mode = window.page.locator("[data-setting=mode]")
        await expect(window.page.locator("[data-setting=effort]").get_by_test_id("setting-source")).to_have_text(
            "Your file"
        )
        await mode.locator("select").select_option("plan")
        await expect(mode.get_by_test_id("setting-source")).to_have_text("Your file")
        assert file.read_text(encoding="utf-8") == '# mine\neffort = "low" # for now\nmode = "plan"\n'

        await window.page.goto(site.address())
        await expect(window.test_id("mode-picker")).to_have_value("plan")

        await open_settings(window, "defaults")
        await mode.get_by_test_id("setting-reset").click()
        await expect(mode.get_by_test_id("setting-source")).to_have_count(0)
        assert file.read_text(encoding="utf-8") == '# mine\neffort = "low" # for now\n'
        file.unlink()


async def test_instructions_are_saved_and_a_change_elsewhere_is_not_overwritten(site: Site) -> None:
    file = site.server.home / "AGENTS.md"
    async with site.window() as window:
        window.allow(re.compile("400"))
        await open_settings(window, "instructions")
        await window.test_id("instructions").fill("Answer in Dutch.")
        await window.test_id("save-instructions").click()
        await expect(window.page.get_by_text("Saved. The next message")).to_be_visible()
        assert file.read_text(encoding="utf-8") == "Answer in Dutch."

        await window.test_id("instructions").fill("Answer in Danish.")
        await open_settings(window, "keys")
        file.write_text("From my editor.", encoding="utf-8")
        await open_settings(window, "instructions")
        await expect(window.test_id("instructions")).to_have_value("Answer in Danish.")
        await window.test_id("save-instructions").click()
        await expect(window.page.get_by_role("alert")).to_contain_text("changed since you opened it")
        assert file.read_text(encoding="utf-8") == "From my editor."
        await window.page.get_by_role("button", name="Discard changes").click()
        await expect(window.test_id("instructions")).to_have_value("From my editor.")
        file.unlink()


async def test_a_token_is_shown_once_opens_the_page_on_another_device_and_is_revoked(site: Site) -> None:
    async with site.window() as window:
        await open_settings(window, "tokens")
        await expect(window.page.locator("[data-current]")).to_contain_text("This device")
        await window.test_id("token-name").fill("phone")
        await window.test_id("token-name").press("Enter")
        link = await window.test_id("token-link").input_value()
        assert link.startswith(f"{site.server.url}/#token=mkt_")

        device = await site.browser.new_context()
        phone = Window(await device.new_page())
        await phone.page.goto(link)
        await expect(phone.test_id("scope")).to_have_text("Watching")
        await open_settings(phone, "tokens")
        await expect(phone.test_id("why-not")).to_contain_text("Your link lets you watch")
        await device.close()

        await window.test_id("token-done").click()
        await expect(window.test_id("new-token")).to_have_count(0)
        assert "mkt_" not in await window.page.content()
        await window.page.locator("[data-name=phone]").get_by_test_id("revoke-token").dblclick()
        await expect(window.page.locator("[data-name=phone]")).to_have_count(0)


async def test_a_folder_is_trusted_after_its_files_were_shown(site: Site) -> None:
    config = site.folder / ".makai/config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text('mode = "plan"\n', encoding="utf-8")
    async with site.window() as window:
        await open_settings(window, "folders")
        await window.test_id("trust-path").fill(str(site.folder))
        await window.test_id("trust-path").press("Enter")
        await expect(window.test_id("trust-review")).to_be_focused()
        await expect(window.test_id("trust-review")).to_contain_text('mode = "plan"')
        await window.test_id("trust-folder").click()
        row = window.test_id("trusted-folder").filter(has_text=str(site.folder))
        await expect(row).to_contain_text("Trusted")
        await row.get_by_test_id("distrust").click()
        await expect(row).to_contain_text("Not trusted")


async def test_an_mcp_server_is_added_tested_and_removed(site: Site) -> None:
    program = site.server.folder / "work/plain_server.py"  # the sandbox shows a server no other folder
    program.write_text("import sys; print('hello log', file=sys.stderr, flush=True)\n" + SERVER, encoding="utf-8")
    async with site.window() as window:
        await open_settings(window, "mcp")
        await window.test_id("mcp-name").fill("plain")
        await window.test_id("mcp-target").fill(f"{PYTHON} -c \"exec(open('{program}').read())\"")
        await window.test_id("add-server").click()
        server = window.page.locator("[data-testid=mcp-server][data-name=plain]")
        await expect(server.get_by_test_id("mcp-state")).to_have_text("not tested yet")
        await server.get_by_test_id("test-server").click()
        await expect(server.get_by_test_id("mcp-state")).to_have_text("ready")
        await server.get_by_text("5 tools, log").click()
        await expect(server.get_by_role("group", name="Log of plain")).to_have_text("hello log")
        await window.screenshot("settings-mcp-tested")
        await server.get_by_test_id("remove-server").click()
        await expect(server.get_by_test_id("remove-server")).to_have_text("Yes, remove")
        await server.get_by_test_id("remove-server").click()
        await expect(server).to_have_count(0)


async def test_usage_is_drawn_listed_and_downloaded_with_unknown_prices_said(site: Site, tmp_path: Path) -> None:
    async with site.window() as window:
        await with_usage(window)
        await open_settings(window, "usage")
        await expect(window.test_id("usage-total")).to_contain_text("at least $1.67")
        table = window.test_id("usage-table").locator("tbody tr")
        assert [(await row.inner_text()).split() for row in await table.all()] == [
            ["large", "$1.65", "4", "24k", "1.6k", "60k"],
            ["small", "$0.02", "2", "12k", "800", "30k"],
            ["The", "agent's", "own", "unknown", "2", "12k", "800", "30k"],
        ]
        heights = (
            "(rects) => rects.map((rect) => rect.getAttribute('height')).filter((height) => height !== '0').length"
        )
        assert await window.test_id("usage-chart").locator(".value").evaluate_all(heights) == 2
        await window.test_id("usage-measure").select_option("tokens")
        assert await window.test_id("usage-chart").locator(".value").evaluate_all(heights) == 3
        async with window.page.expect_download() as started:
            await window.test_id("usage-csv").click()
        await (await started.value).save_as(tmp_path / "usage.csv")
        lines = (tmp_path / "usage.csv").read_text(encoding="utf-8").splitlines()
        assert len(lines) == 5
        assert '"/home/ana/""notes"", old"' in lines[3]


async def test_a_run_counts_in_the_usage_of_today(site: Site) -> None:
    site.script("say: Hello.\nusage: input=1200 output=34")
    async with site.window(await site.session()) as window:
        await window.say("Hi")
        await window.idle()
        await open_settings(window, "usage")
        await window.page.get_by_role("button", name="Folder").click()
        row = window.test_id("usage-table").locator("tr").filter(has_text=str(site.folder))
        await expect(row).to_contain_text("1.2k")


async def test_how_the_page_looks_is_remembered_by_this_browser(site: Site) -> None:
    async with site.context() as context:
        async with site.window(context=context) as window:
            await open_settings(window, "appearance")
            for choice in ("Dark", "Large", "Compact: more on one screen", "Nothing moves"):
                await window.page.get_by_label(choice, exact=True).check()
        async with site.window(context=context) as window:
            root = await window.page.evaluate("() => ({ ...document.documentElement.dataset })")
            assert root == {"theme": "dark", "textSize": "large", "density": "compact", "motion": "reduced"}
            assert await window.page.evaluate("() => document.documentElement.scrollHeight <= innerHeight + 1")


HIDE = """
Object.defineProperty(document, "visibilityState", { get: () => window.seen ?? "hidden" });
window.notified = [];
window.Notification = class {
  static permission = "granted";
  static async requestPermission() { return "granted"; }
  constructor(title, { body, tag }) { window.notified.push([title, body, tag.split(" ")[0]]); }
};
"""


async def test_a_page_out_of_sight_calls_the_user_back_once_of_several_tabs(site: Site) -> None:
    site.script('tool: shell {"command": "touch made"}\n---\nsay: Done.')
    session_id = await site.session()
    async with site.context() as context:
        await context.add_init_script(HIDE)
        await context.add_init_script("localStorage.setItem('makai.notify', 'approval finished failed')")
        async with (
            site.window(session_id, context=context) as one,
            site.window(session_id, context=context) as other,
        ):
            await one.page.wait_for_event("request", lambda request: "limit=50" in request.url)
            await one.page.wait_for_event("request", lambda request: "limit=50" in request.url)
            await one.say("Go")
            await one.page.wait_for_function("() => window.notified.length === 1")
            await expect(one.page.locator("link[rel=icon]")).to_have_attribute("href", "/icon-waiting.svg")
            await one.test_id("approve-once").click()
            await one.page.wait_for_function("() => window.notified.length === 2")
            said = [await tab.page.evaluate("() => window.notified") for tab in (one, other)]
    titles = [kind for notices in said for _, _, kind in notices]
    assert titles == ["approval", "end"]


OLD_PAGE = """async () => {
    const cache = await caches.open("makai-page-1");
    await cache.put("/", new Response("before the upgrade"));
    await cache.put("/assets/old.js", new Response("old"));
}"""


async def test_the_installed_page_says_offline_what_to_do_and_opens_again(browser: Browser, tmp_path: Path) -> None:
    async with site_of(tmp_path, browser) as site, site.window() as window:
        window.allow(LOST_SERVER)
        manifest = await site.ask("/manifest.webmanifest")
        for icon in manifest["icons"]:
            assert (await window.page.request.get(site.server.url + icon["src"])).ok
        await window.page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
        await window.page.evaluate(OLD_PAGE)
        await window.page.reload()
        await expect(window.test_id("home")).to_be_visible()
        kept = await window.page.evaluate(
            "async () => (await (await caches.open('makai-page-1')).keys()).map(({ url }) => new URL(url).pathname)"
        )
        assert {path for path in kept if not path.startswith("/assets/")} == {
            "/", "/offline.html", "/offline.css", "/offline.js", "/icon.svg"
        }  # fmt: skip
        assert "/assets/old.js" not in kept
        await site.server.kill()
        await window.page.goto(site.address())
        await expect(window.page.get_by_role("heading")).to_have_text("makai is not running")
        await expect(window.page.locator("code")).to_have_text("makai serve")
        site.server.port = int(site.server.url.rpartition(":")[2])
        await site.server.start()
        await expect(window.test_id("home")).to_be_visible()
