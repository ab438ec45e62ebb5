"""What can be done with a conversation in the page: edit, regenerate, branch, retry, and explain a denial."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Locator, expect
from support.browser import PHONE, Site, Window

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PASTE = """async (data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "dot.png", { type: "image/png" }));
    document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: files, bubbles: true }));
}"""

PASTE_PROGRAMS = """() => {
    const files = new DataTransfer();
    for (const name of ["one.bin", "two.bin", "three.bin", "four.bin"]) files.items.add(new File(["x\\0y"], name));
    document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: files, bubbles: true }));
}"""
"""Files that are neither pictures nor text: each is refused with a message."""


def message(window: Window, text: str) -> Locator:
    """The place of a message, with its actions."""
    return window.page.locator(".item.user").filter(has_text=text)


async def act(place: Locator, name: str) -> None:
    """Choose one of the actions, which show when the pointer comes near."""
    await place.hover()
    await place.get_by_label(name, exact=True).click()


async def talked(site: Site, window: Window) -> None:
    site.script("echo")
    for text in ("First question", "Second question"):
        await window.say(text)
        await window.idle()
    await expect(window.answers).to_have_count(2)


async def branched(window: Window, origin: str) -> str:
    """The id of the branch that the page shows now."""
    await window.page.wait_for_url(lambda url: origin not in url)
    await window.connected()
    return window.page.url.rpartition("/")[2]


async def state_of(site: Site, session_id: str) -> dict[str, Any]:
    row = await site.ask(f"/api/sessions/{session_id}")
    return {name: row[name] for name in ("model_ref", "mode", "harness", "cwd")}


async def test_an_edited_message_starts_a_branch_and_the_original_stays(site: Site) -> None:
    session_id = await site.session("plan")
    async with site.window(session_id) as window:
        await talked(site, window)
        await act(message(window, "Second question"), "Edit and send again")
        field = window.test_id("edit-field")
        await expect(field).to_be_focused()
        await expect(field).to_have_value("Second question")
        await window.page.keyboard.press("Escape")
        await expect(field).to_have_count(0)
        await expect(message(window, "Second question").get_by_test_id("edit-message")).to_be_focused()

        await window.page.keyboard.press("Enter")
        await field.fill("A better question")
        await window.screenshot("edit")
        await field.press("Enter")
        branch = await branched(window, session_id)
        await window.idle()
        await expect(window.test_id("user-message")).to_have_text(["You First question", "You A better question"])
        await expect(window.answers.last).to_contain_text("A better question")
        await expect(window.composer).to_be_focused()
        assert await state_of(site, branch) == await state_of(site, session_id)

        line = window.test_id("branch-line")
        await expect(line).to_have_text(re.compile("Branched from First question, which stays as it is"))
        await window.screenshot("branch")
        await line.get_by_role("link").click()
        await window.page.wait_for_url(lambda url: session_id in url)
        await expect(window.test_id("user-message")).to_have_text(["You First question", "You Second question"])
        await expect(line).to_have_count(0)


async def test_the_first_message_is_edited_with_its_pictures(site: Site) -> None:
    session_id = await site.session()
    site.script("echo")
    async with site.window(session_id) as window:
        await window.composer.focus()
        await window.page.evaluate(PASTE, PIXEL)
        await expect(window.page.get_by_label("Remove picture 1")).to_be_visible()
        await window.say("What is this?")
        await window.idle()
        await act(message(window, "What is this?"), "Edit and send again")
        await expect(window.test_id("edit-form").get_by_role("img")).to_have_count(1)
        await window.test_id("edit-field").fill("What colour is it?")
        await window.test_id("send-edited").click()
        await branched(window, session_id)
        await window.idle()
        await expect(window.test_id("user-message")).to_have_text(["You What colour is it?"])
        await expect(window.test_id("user-message").get_by_role("img")).to_have_count(1)


async def test_an_answer_is_regenerated_and_branched_from(site: Site) -> None:
    session_id = await site.session()
    async with site.window(session_id) as window:
        await talked(site, window)
        site.script("say: Never said.\n---\nsay: Quite another answer.")
        await act(window.answers.last, "Regenerate")
        await window.page.get_by_role("menuitem", name="Same model").click()
        await branched(window, session_id)
        await window.idle()
        await expect(window.test_id("user-message")).to_have_text(["You First question", "You Second question"])
        await expect(window.answers.last).to_contain_text("Quite another answer.")

        await window.page.goto(site.address(session_id))
        await window.connected()
        await act(window.answers.first, "Branch from here")
        await branched(window, session_id)
        await expect(window.test_id("user-message")).to_have_text(["You First question"])
        await expect(window.answers).to_have_count(1)


async def test_file_changes_are_undone_from_the_message_before_them(site: Site) -> None:
    site.script('tool: write {"path": "changed.txt", "content": "x"}\n---\nsay: Done.')
    async with site.window(await site.session("accept_edits")) as window:
        await window.say("Change it")
        await window.idle()
        await window.say("Thanks")
        await window.idle()
        await expect(message(window, "Thanks").get_by_label("Undo file changes to here")).to_have_count(0)
        await act(message(window, "Change it"), "Undo file changes to here")
        await expect(window.test_id("restore-dialog")).to_contain_text("changed.txt")
        await window.page.keyboard.press("Escape")
        await expect(message(window, "Change it").get_by_test_id("undo-to-here")).to_be_focused()


async def test_a_failed_run_is_retried_without_a_second_message(site: Site) -> None:
    site.script("say: I begin\nfail: invalid_request The model does not want this. See https://example.com/why.")
    async with site.window(await site.session()) as window:
        await window.say("Try")
        notice = window.test_id("notice")
        await expect(notice).to_have_count(1)
        await expect(notice.get_by_role("link")).to_have_attribute("href", "https://example.com/why")
        await expect(notice.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer")
        await window.screenshot("failure")
        site.script("say: Now it works.")
        await window.test_id("remedy-retry").click()
        await expect(window.composer).to_be_focused()
        await expect(window.answers.last).to_contain_text("Now it works.")
        await window.idle()
        await expect(window.test_id("user-message")).to_have_count(1)
        await expect(window.test_id("remedies")).to_have_count(0)


async def test_a_failed_run_is_given_to_another_model(site: Site) -> None:
    site.script("fail: overloaded Come back later.")
    async with site.window(await site.session()) as window:
        await window.say("Say this back")
        await window.test_id("remedy-model").click(timeout=60_000)
        await window.test_id("model-search").fill("scripted echo")
        await window.test_id("model-search").press("Enter")
        await expect(window.answers).to_contain_text("Say this back")
        await window.idle()
        await expect(window.test_id("user-message")).to_have_count(1)
        await expect(window.test_id("notice")).to_have_count(1)


async def test_a_stopped_run_is_continued(site: Site) -> None:
    site.script("pace: 20ms\nrepeat: 100000 On and on.")
    async with site.window(await site.session()) as window:
        await window.say("Count")
        await expect(window.answers).to_contain_text("On and on.On and on.")
        await window.page.keyboard.press("Escape")
        await window.idle()
        await expect(window.test_id("notice")).to_have_text("Stopped.")
        await expect(window.test_id("broken-off")).to_have_count(0)
        site.script("say: Here is the rest.")
        await window.test_id("remedy-continue").click()
        await expect(window.answers.last).to_contain_text("Here is the rest.")
        await expect(window.test_id("user-message").last).to_have_text("You Continue.")


async def test_the_agent_reads_why_a_call_was_denied(site: Site) -> None:
    call = 'tool: write {"path": "why.txt", "content": "x"}'
    site.script(f"{call}\n---\nsay: Then I do not.")
    async with site.window(await site.session()) as window:
        await window.say("Write it")
        await expect(window.approval).to_be_visible()
        await window.page.locator("[data-testid=transcript]").focus()
        await window.page.keyboard.press("Shift+N")
        reason = window.test_id("deny-reason")
        await expect(reason).to_be_focused()
        await reason.fill("not now")
        await reason.press("Escape")
        await expect(window.test_id("deny-why")).to_be_focused()
        await expect(window.approval).to_be_visible()

        await window.page.keyboard.press("Enter")
        await expect(reason).to_have_value("not now")
        await reason.fill("Use notes.txt instead.")
        await window.screenshot("deny")
        await reason.press("Enter")
        await window.idle()
        await expect(window.composer).to_be_focused()
        tool = window.tool("write")
        await expect(tool).to_have_attribute("data-status", "denied")
        await tool.locator("summary").first.click()
        await expect(tool).to_contain_text("You denied this in the browser: Use notes.txt instead.")
        await expect(tool.get_by_test_id("terminal")).to_contain_text("denied: Use notes.txt instead.")


async def test_the_focus_comes_back_from_every_dialog(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await window.connected()
        for name in ("model-picker", "session-title"):
            opener = window.page.locator("main").get_by_test_id(name)
            await opener.focus()
            await opener.press("Enter")
            await expect(
                window.page.get_by_role("dialog").get_by_role("textbox").or_(window.test_id("model-search"))
            ).to_be_focused()
            await window.page.keyboard.press("Escape")
            await expect(opener).to_be_focused()
        await window.page.evaluate("document.activeElement.blur()")
        await window.press("?")
        await expect(window.test_id("help")).to_be_visible()
        await window.page.keyboard.press("Escape")
        await expect(window.composer).to_be_focused()


@pytest.mark.parametrize("home", [False, True])
async def test_messages_never_cover_the_field_on_a_phone(site: Site, home: bool) -> None:
    async with site.window(None if home else await site.session(), size=PHONE) as window:
        await expect(window.composer).to_be_visible()
        for height in (844, 420):  # with the phone's keyboard
            await window.page.set_viewport_size({"width": 390, "height": height})
            await window.composer.focus()
            await window.page.evaluate(PASTE_PROGRAMS)
            toasts, field = window.test_id("toasts"), window.page.locator("form:has([data-testid=composer])")
            await expect(toasts.locator(".toast").first).to_be_visible()
            above, below = await toasts.bounding_box(), await field.bounding_box()
            assert above
            assert below
            assert above["y"] + above["height"] <= below["y"] or above["y"] >= below["y"] + below["height"]
