"""Around a conversation: the list of sessions, names, forks, exports, models, logins, and the keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, expect
from support.browser import Site, Window, site_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def menu(window: Window, entry: str) -> None:
    await window.test_id("session-menu").click()
    await window.page.get_by_role("menuitem", name=entry).click()


async def talked(site: Site, title: str) -> str:
    site.script("say: An answer worth keeping.")
    session = await site.session()
    async with site.window(session) as window:
        await window.say("A question")
        await expect(window.answers).to_contain_text("An answer worth keeping.")
        await window.idle()
        await window.press("r")
        await window.test_id("title-field").fill(title)
        await window.test_id("title-field").press("Enter")
        await expect(window.test_id("session-title")).to_have_text(title)
    return session


async def focused(window: Window) -> str:
    """The test id or the name of what has the focus."""
    name: str = await window.page.evaluate(
        "() => { const at = document.activeElement; return at.dataset.testid ?? at.ariaLabel ?? at.tagName; }"
    )
    return name


async def test_a_renamed_session_is_found_by_its_name_in_every_window(site: Site) -> None:
    session = await talked(site, "Walnuts and oranges")
    async with site.window() as window:
        row = window.page.locator(f"[data-testid=session-row][data-session='{session}']")
        await expect(row).to_contain_text("Walnuts and oranges")
        await window.press("/")
        await expect(window.test_id("session-search")).to_be_focused()
        await window.page.keyboard.type("nothing like it")
        await expect(window.page.get_by_text("Nothing found.")).to_be_visible()
        await window.test_id("session-search").fill("walnuts")
        await expect(window.test_id("hit")).to_have_count(1)
        await expect(window.test_id("hit").locator("mark")).to_have_text("Walnuts")
        await window.test_id("hit").click()
        await window.connected()
        await expect(window.answers).to_contain_text("An answer worth keeping.")


async def test_a_branch_goes_its_own_way(site: Site) -> None:
    original = await talked(site, "The original")
    async with site.window(original) as window:
        await menu(window, "Branch")
        await window.page.wait_for_url(lambda url: original not in url)
        await window.connected()
        await expect(window.answers).to_contain_text("An answer worth keeping.")
        await window.say("Only in the branch")
        await expect(window.answers).to_have_count(2)
        await window.idle()
        await window.page.goto(site.address(original))
        await window.connected()
        await expect(window.test_id("user-message")).to_have_count(1)


async def test_file_changes_are_undone_after_a_look_at_them(site: Site) -> None:
    site.script('say: I write.\ntool: write {"path": "made.txt", "content": "new\\n"}\n---\nsay: Done.\n')
    session = await site.session("accept_edits")
    async with site.window(session) as window:
        await window.say("Write it")
        await expect(window.answers.last).to_contain_text("Done.")
        await window.idle()
        await menu(window, "Undo file changes")
        await expect(window.test_id("restore-dialog")).to_contain_text("made.txt +0 −1")
        assert (site.folder / "made.txt").exists()
        await window.test_id("confirm-restore").click()
        await expect(window.page.get_by_text("Undid the changes of")).to_be_visible()
        assert not (site.folder / "made.txt").exists()
        await menu(window, "Redo file changes")
        await window.test_id("confirm-restore").click()
        await expect(window.page.get_by_text("Redid the changes of")).to_be_visible()
        assert (site.folder / "made.txt").read_text() == "new\n"


async def test_a_session_is_exported_in_both_forms(site: Site, tmp_path: Path) -> None:
    session = await talked(site, "Exported")
    async with site.window(session) as window:
        saved = {}
        for entry in ("Export as Markdown", "Export as JSON lines"):
            async with window.page.expect_download() as download:
                await menu(window, entry)
            path = tmp_path / (await download.value).suggested_filename
            await (await download.value).save_as(path)
            saved[path.suffix] = path.read_text(encoding="utf-8")
    assert "An answer worth keeping." in saved[".md"]
    lines = [msgspec.json.decode(line) for line in saved[".jsonl"].splitlines()]
    assert [line["event_id"] for line in lines] == list(range(1, len(lines) + 1))


async def test_deleting_asks_first_and_then_the_session_is_gone_everywhere(site: Site) -> None:
    session = await talked(site, "Not for long")
    async with site.window(session) as window, site.window(session) as other:
        other.allow(re.compile(r"404"))
        await menu(window, "Delete")
        await window.test_id("delete-dialog").get_by_text("Keep it").click()
        await expect(window.test_id("delete-dialog")).to_have_count(0)
        await menu(window, "Delete")
        await window.test_id("confirm-delete").click()
        await expect(window.test_id("home")).to_be_visible()
        await expect(window.page.locator(f"[data-session='{session}']")).to_have_count(0)
        await expect(other.page.get_by_text("This session does not exist, or it was deleted.")).to_be_visible()


async def test_mode_and_model_are_picked_and_shown_as_the_server_has_them(site: Site) -> None:
    session = await site.session()
    async with site.window(session) as window:
        await window.page.locator("main").get_by_test_id("mode-picker").select_option("accept_edits")
        await expect(window.page.locator("main").get_by_test_id("mode-picker")).to_have_value("accept_edits")
        await window.press("m")
        await window.test_id("model-search").fill("scripted echo")
        await expect(window.test_id("model-option").first).to_contain_text("Echo")
        await window.test_id("model-search").press("Enter")
        await expect(window.test_id("model-dialog")).to_have_count(0)
        await expect(window.page.locator("main").get_by_test_id("model-picker")).to_contain_text("echo")
        effort = window.page.locator("main").get_by_label("Reasoning effort")
        await effort.select_option("high")
        await expect(effort).to_have_value("high")
        await window.page.reload()
        await expect(effort).to_have_value("high")
        await window.say("Say this back")
        await expect(window.answers).to_contain_text("Say this back")
        await window.idle()
    shown = await site.ask(f"/api/sessions/{session}")
    assert (shown["mode"], shown["model_ref"]) == ("accept_edits", "scripted/scripted@echo")


async def test_a_login_asks_refuses_and_succeeds_in_the_page(browser: Browser, tmp_path: Path) -> None:
    async with site_of(tmp_path, browser, environ={"MAKAI_TEST_LOGIN": "1"}) as site, site.window() as window:
        await window.test_id("open-login").click()
        await window.page.get_by_label("Find a provider").fill("test fixture")
        row = window.page.locator("[data-testid=provider][data-provider='test-fixture']")
        await expect(row).to_contain_text("not logged in")
        await row.get_by_test_id("start-login").click()
        flow = window.test_id("login-flow")
        await expect(flow).to_contain_text('Type "ok" to log in:')
        await window.test_id("login-answer").fill("no")
        await window.test_id("login-answer").press("Enter")
        await expect(flow).to_have_attribute("data-result", "failed")
        await expect(flow).to_contain_text('The answer was not "ok".')
        await window.screenshot("login-refused")
        await window.page.get_by_role("button", name="Try again").click()
        await window.test_id("login-answer").fill("ok")
        await window.test_id("login-answer").press("Enter")
        # It is the first model that can be used, so it is chosen, and a message can be written.
        await expect(window.test_id("login-dialog")).to_have_count(0)
        await expect(window.composer).to_be_focused()
        await window.test_id("open-login").click()
        await expect(row).to_contain_text("logged in")
        await row.get_by_role("button", name="Log out").click()
        await expect(row).to_contain_text("not logged in")


async def test_a_login_that_is_left_is_cancelled(site: Site) -> None:
    async with site.window() as window:
        await window.test_id("open-login").click()
        row = window.page.locator("[data-testid=provider][data-provider='test-fixture']")
        await row.get_by_test_id("start-login").click()
        await expect(window.test_id("login-answer")).to_be_visible()
        await window.page.keyboard.press("Escape")
        await expect(window.test_id("login-dialog")).to_have_count(0)
        await expect(window.test_id("open-login")).to_be_focused()
        await window.test_id("open-login").click()
        await expect(row).to_contain_text("not logged in")


async def test_a_new_chat_has_the_sandbox_that_was_chosen_and_says_what_none_means(site: Site) -> None:
    site.script("say: Hello.")
    async with site.window() as window:
        picker = window.test_id("sandbox-picker")
        await expect(picker).to_have_value("workspace-write")
        await expect(window.test_id("home")).to_contain_text("Commands write only in this folder and have no network.")
        await picker.select_option("full-access")
        await expect(window.test_id("no-sandbox")).to_contain_text("everything that you can")
        await window.screenshot("no-sandbox")
        await window.say("Hi")
        await expect(window.test_id("sandbox")).to_have_text("No sandbox")
        await window.idle()


async def test_everything_can_be_done_without_a_mouse(site: Site) -> None:
    site.script('tool: write {"path": "keys.txt", "content": "x"}\n---\nsay: Written by keys.')
    async with site.window() as window:
        keyboard = window.page.keyboard
        await expect(window.composer).to_be_focused()
        await window.press("m")
        await expect(window.test_id("model-search")).to_be_focused()
        await keyboard.type("scripted scenario")
        await expect(window.test_id("model-option")).to_have_count(1)
        await keyboard.press("Enter")
        await window.press("i")
        await keyboard.type("Write")
        await keyboard.press("Enter")
        await expect(window.composer).to_be_focused()
        await expect(window.approval).to_be_visible()
        await window.decide("y")
        await expect(window.answers).to_contain_text("Written by keys.")
        await window.idle()
        await window.press("r")
        await expect(window.test_id("title-field")).to_be_focused()
        await keyboard.press("Control+a")
        await keyboard.type("Named by keys")
        await keyboard.press("Enter")
        await expect(window.test_id("session-title")).to_have_text("Named by keys")
        await window.press("c")
        await expect(window.test_id("home")).to_be_visible()
        await window.press("/")
        await expect(window.test_id("session-search")).to_be_focused()
        await keyboard.press("ArrowDown")
        assert await focused(window) == "session-row"
        await keyboard.press("Enter")
        await expect(window.test_id("session-title")).to_have_text("Named by keys")


@pytest.mark.parametrize(
    ("key", "dialog", "opener"),
    [("?", "help", "open-help"), ("m", "model-dialog", "model-picker"), ("r", "rename-dialog", "session-title")],
)
async def test_dialogs_open_by_key_and_give_the_focus_back(site: Site, key: str, dialog: str, opener: str) -> None:
    async with site.window(await site.session()) as window:
        await window.page.locator(f"main [data-testid={opener}], nav [data-testid={opener}]").first.focus()
        await window.page.keyboard.press(key)
        await expect(window.test_id(dialog)).to_be_visible()
        assert await window.page.evaluate("() => document.querySelector('dialog').contains(document.activeElement)")
        await window.page.keyboard.press("Escape")
        await expect(window.test_id(dialog)).to_have_count(0)
        assert await focused(window) == opener


async def test_tab_walks_through_everything_in_the_order_in_which_it_is_seen(site: Site) -> None:
    site.script('tool: write {"path": "tab.txt", "content": "x"}\n---\nsay: Written.')
    async with site.window(await site.session()) as window:
        await window.say("Write")
        await expect(window.approval).to_be_visible()
        # The walk begins at the top of the document, wherever the focus was.
        await window.page.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")
        seen: list[str] = []
        while len(seen) < 200 and "send" not in seen and seen.count("new-chat") < 2:
            await window.page.keyboard.press("Tab")
            seen.append(await focused(window))
            visible = await window.page.evaluate(
                """() => { const box = document.activeElement.getBoundingClientRect();
                           return document.activeElement === document.body || (box.width > 0 && box.height > 0); }"""
            )
            assert visible, seen
        order = ["new-chat", "session-search", "open-login", "session-title", "approve-once", "deny", "composer"]
        assert [name for name in seen if name in order][: len(order)] == order
