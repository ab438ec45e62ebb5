"""How a session begins in the page: its folder, agent and model are picked, files go along, commands are completed, and
on the first visit there are three ways to begin."""

from __future__ import annotations

import asyncio
import base64
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, expect
from support.browser import PHONE, Site, Window, site_of
from support.page_stage import drop_file

pytestmark = pytest.mark.asyncio(loop_scope="module")

PICTURE: FilePayload = {
    "name": "dot.png",
    "mimeType": "image/png",
    "buffer": base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    ),
}
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_EXTRA_INDEX_URL": "", "PIP_RETRIES": "0"}
"""Where pip finds nothing, at once."""
PASTE = """(text) => {
    const words = new DataTransfer();
    words.setData("text/plain", text);
    const options = { clipboardData: words, bubbles: true, cancelable: true };
    document.activeElement.dispatchEvent(new ClipboardEvent("paste", options));
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("starting")
    commands = folder / "makai-home" / "commands"
    commands.mkdir(parents=True)
    (folder / "makai-home").chmod(0o700)
    (commands / "greet.md").write_text("---\nargument-hint: NAME\ndescription: say hello\n---\nGreet $1 warmly.")
    async with site_of(folder, browser, environ={"MAKAI_TEST_LOGIN": "1"}) as site:
        (site.folder / "src").mkdir()
        (site.folder / "src" / "main.py").write_text("print('from main')\n")
        (site.folder / "notes.txt").write_text("the content of the notes\n")
        (site.folder / "ignored.log").write_text("noise\n")
        (site.folder / ".gitignore").write_text("*.log\n")
        yield site


async def pick_model(window: Window, name: str) -> None:
    await window.test_id("home").get_by_test_id("model-picker").click()
    await window.test_id("model-search").fill(name)
    await window.test_id("model-search").press("Enter")
    await expect(window.test_id("model-dialog")).to_have_count(0)
    await expect(window.composer).to_be_focused()


async def pick_folder(window: Window, path: str) -> None:
    await window.test_id("folder-picker").click()
    await expect(window.test_id("cwd")).to_be_focused()
    await window.test_id("cwd").fill(path)
    await window.test_id("cwd").press("Enter")
    await expect(window.composer).to_be_focused()


async def test_a_folder_is_completed_by_key_created_when_missing_and_shows_its_branch(site: Site) -> None:
    repository = site.folder / "repository"
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", "-b", "trunk", str(repository)], check=True)
    async with site.window() as window:
        await window.test_id("folder-picker").click()
        field, options = window.test_id("cwd"), window.test_id("folder-option")
        await expect(field).to_be_focused()
        await field.fill(f"{site.folder}/rep")
        await expect(options).to_have_text([str(repository)])
        await field.press("Tab")
        await expect(field).to_have_value(f"{repository}/")
        await expect(window.test_id("folder-dialog")).to_contain_text("on branch trunk")
        await field.press("Enter")
        await expect(window.composer).to_be_focused()
        await expect(window.test_id("branch")).to_contain_text("trunk")

        await window.test_id("folder-picker").click()
        await field.fill(str(site.folder / "made" / "here"))
        await expect(window.test_id("folder-says")).to_have_text(f"{site.folder}/made/here does not exist.")
        await window.test_id("create-folder").click()
        await expect(window.composer).to_be_focused()
        await expect(window.test_id("folder-picker")).to_contain_text("here")
        assert (site.folder / "made" / "here").is_dir()

        await window.test_id("folder-picker").click()
        await window.page.keyboard.press("Escape")
        await expect(window.test_id("folder-picker")).to_be_focused()


async def test_a_file_is_completed_and_attached_on_the_home_page_and_shown_folded_in_the_message(site: Site) -> None:
    site.script("echo")
    async with site.window() as window:
        await pick_folder(window, str(site.folder))
        await pick_model(window, "echo")
        await window.composer.press_sequentially("Look at @note")
        await expect(window.test_id("completions").get_by_role("option")).to_have_text(["notes.txt"])
        await window.page.keyboard.press("Enter")
        await expect(window.composer).to_have_value("Look at @notes.txt ")
        await window.composer.press("Enter")
        sent = window.test_id("user-message")
        await expect(sent.get_by_test_id("sent-file").locator("summary")).to_have_text(re.compile(r"notes\.txt\s*25 B"))
        await window.idle()
        await expect(window.composer).to_be_focused()
        await sent.locator("summary").click()
        await expect(sent.get_by_test_id("sent-file")).to_contain_text("the content of the notes")
        await expect(window.answers.last).to_contain_text("the content of the notes")
        session_id = window.page.url.rpartition("/")[2]
    events = (await site.ask(f"/api/sessions/{session_id}/transcript"))["items"]
    uri = (site.folder / "notes.txt").as_uri()
    assert events[0]["text"] == f'Look at @notes.txt \n<resource uri="{uri}">\nthe content of the notes\n\n</resource>'


async def test_only_files_that_the_tools_may_read_are_offered_and_attached(site: Site) -> None:
    outside = site.folder.parent / "outside.txt"
    outside.write_text("secret")
    async with site.window(await site.session()) as window:
        await window.composer.press_sequentially("@ig")
        await expect(window.test_id("completions")).to_have_count(0)
        await window.composer.fill("")
        await window.composer.press_sequentially("@src")
        await expect(window.test_id("completions").get_by_role("option").first).to_have_text(re.compile("src/"))
        await window.page.keyboard.press("Escape")
        await expect(window.test_id("completions")).to_have_count(0)
        await window.say(f"@{outside} says what?")
        await expect(window.page.get_by_text("outside.txt is not attached")).to_be_visible()
        await expect(window.test_id("user-message")).to_have_text(re.compile("says what"))
        await expect(window.test_id("sent-file")).to_have_count(0)
        await window.idle()


async def test_text_files_are_dropped_anywhere_and_pasted_and_binary_ones_are_refused(site: Site) -> None:
    site.script("say: Read.")
    async with site.window(await site.session()) as window:
        await window.composer.focus()
        await drop_file(window, "dropped.md", "# Title")
        chips = window.test_id("attached-file")
        await expect(chips).to_have_text([re.compile(r"dropped\.md\s*7 B")])
        await expect(window.composer).to_be_focused()
        await window.page.evaluate(PASTE, "long " * 1000)
        await expect(chips).to_have_text([re.compile("dropped"), re.compile(r"pasted\.txt\s*5\.0 KB")])
        await drop_file(window, "program.bin", "a\0b")
        await expect(window.page.get_by_text("program.bin: not a text file.")).to_be_visible()
        await window.page.get_by_role("button", name="Remove pasted.txt").click()
        await expect(chips).to_have_count(1)
        await window.composer.press("Enter")
        await window.idle()
        await expect(window.test_id("sent-file").locator("summary")).to_have_text([re.compile("dropped")])


async def test_attachments_survive_another_session_and_a_reload_and_end_with_the_draft(site: Site) -> None:
    site.script("say: Read.")
    first, second = await site.session(), await site.session()
    async with site.window(first) as window:
        chips = window.test_id("attached-file")
        await window.composer.fill("Look at these")
        await drop_file(window, "notes.md", "# Title")
        await window.test_id("file-input").set_input_files(files=[PICTURE])
        await expect(chips).to_have_text([re.compile("notes")])
        await expect(window.test_id("attached-picture")).to_have_count(1)
        await window.page.goto(site.address(second))
        await window.connected()
        await expect(chips).to_have_count(0)
        await window.page.goto(site.address(first))
        await expect(chips).to_have_text([re.compile("notes")])
        await window.page.reload()
        await expect(chips).to_have_text([re.compile("notes")])
        await expect(window.test_id("attached-picture")).to_have_count(1)
        await expect(window.composer).to_have_value("Look at these")
        await window.composer.press("Enter")
        await expect(window.test_id("sent-file").locator("summary")).to_have_text([re.compile("notes")])
        await window.idle()
        await window.page.reload()
        await window.idle()
        await expect(chips.or_(window.test_id("attached-picture"))).to_have_count(0)


async def test_commands_that_show_something_open_the_view_that_shows_it(site: Site) -> None:
    site.script("say: Hi.\nusage: input=1200 output=40")
    async with site.window(await site.session()) as window:
        await window.say("Hello")
        await window.idle()
        for command, says in (("/context", "1,200"), ("/cost", "Cost"), ("/diff", "changed")):
            await window.say(command)
            dialog = window.page.get_by_role("dialog")
            await expect(dialog).to_contain_text(re.compile(says, re.IGNORECASE))
            await window.page.keyboard.press("Escape")
            await expect(dialog).to_have_count(0)
            await expect(window.composer).to_be_focused()
        for command, section in (("/mcp", "mcp"), ("/trust", "folders")):
            await window.say(command)
            await expect(window.test_id("settings")).to_have_attribute("data-section", section)
            await window.page.go_back()
        await expect(window.test_id("user-message")).to_have_count(1)
    async with site.window() as window:
        await window.composer.press_sequentially("/co")
        await expect(window.test_id("completions").get_by_role("option")).to_contain_text(["/cost"])
        await window.say("/cost")
        await expect(window.test_id("settings")).to_have_attribute("data-section", "usage")


async def test_a_slash_offers_commands_and_carries_them_out(site: Site) -> None:
    site.script("say: Hello, Ann.")
    async with site.window(await site.session()) as window:
        options = window.test_id("completions").get_by_role("option")
        await window.composer.press_sequentially("/ti")
        await expect(options.first).to_contain_text("/title [TEXT]")
        await expect(window.composer).to_have_attribute("aria-activedescendant", "completion-0")
        await window.composer.press("Tab")
        await window.composer.press_sequentially("My work")
        await expect(window.test_id("command-hint")).to_contain_text("change the title")
        await window.composer.press("Enter")
        await expect(window.test_id("session-title")).to_have_text("My work")
        await expect(window.composer).to_have_value("")
        await window.composer.press_sequentially("/gre")
        await expect(options).to_contain_text(["/greet NAME say hello"])
        await window.composer.press("Enter")
        await window.composer.press_sequentially("Ann")
        await window.composer.press("Enter")
        await expect(window.test_id("user-message")).to_contain_text("Greet Ann warmly.")
        await window.idle()
        window.allow(re.compile("400"))
        await window.say("/nonsense")
        await expect(window.page.get_by_text("There is no command /nonsense.")).to_be_visible()
        await expect(window.composer).to_have_value("/nonsense")


async def test_a_model_of_a_provider_without_login_leads_to_its_login_and_back_with_the_model(site: Site) -> None:
    async with site.window() as window:
        await window.test_id("model-picker").click()
        search = window.test_id("model-search")
        await expect(search).to_be_focused()
        await search.fill("anthropic")
        option = window.test_id("model-option").first
        await expect(option).to_contain_text("log in to use it")
        await expect(option).to_contain_text(re.compile(r"\$\d+ in, \$\d+ out"))
        await search.fill("fixture")
        await expect(option).to_contain_text("Test fixture (scripted)")
        await search.press("Enter")
        await expect(window.test_id("login-dialog")).to_contain_text("Log in: Test fixture")
        await expect(window.test_id("login-answer")).to_be_focused()
        await window.test_id("login-answer").fill("ok")
        await window.test_id("login-answer").press("Enter")
        await expect(window.test_id("login-dialog")).to_have_count(0)
        await expect(window.composer).to_be_focused()
        await expect(window.test_id("model-picker")).to_have_attribute("title", re.compile("test-fixture/.*fixture"))


async def test_the_first_visit_offers_three_ways_also_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    async with (
        site_of(tmp_path, browser, environ=NO_INDEX) as site,
        site.window(size=PHONE, phone=True) as window,
    ):
        ways = window.test_id("onboarding")
        await expect(ways.get_by_role("heading")).to_have_count(3)
        await expect(window.test_id("pull-start")).to_contain_text("93 MB")
        assert await window.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert [violation for violation in await window.axe() if violation.impact != "minor"] == []
        await window.test_id("pull-start").tap()
        await expect(window.test_id("pull-failed")).to_be_visible()
        await window.test_id("onboard-login").tap()
        await expect(window.test_id("login-dialog")).to_be_visible()
        await window.page.keyboard.press("Escape")
        await window.test_id("open-demo").tap()
        await expect(window.composer).to_have_value("Show me what you can do.")
