"""Talking to an agent in the page: words stream in, tools are asked about, and everything can be stopped."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from support.browser import Site, Window

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = "pace: 20ms\nrepeat: 100000 On and on."
MANY = " ".join(f"w{number}" for number in range(60))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def writing(name: str, answer: str = "It is written.") -> str:
    """A model that writes one file and says so."""
    return f'tool: write {{"path": "{name}", "content": "one\\ntwo\\n"}}\n---\nsay: {answer}'


async def asked(site: Site, window: Window, name: str) -> None:
    """The model wants to write a file, and the page asks."""
    site.script(writing(name))
    await window.say("Write it")
    await expect(window.approval).to_be_visible()
    assert not (site.folder / name).exists()


@pytest.mark.req("MC-UI-001", "MC-UI-002")
async def test_a_message_is_sent_and_its_answer_streams_in(site: Site) -> None:
    site.script(f"pace: 30ms\nthink: A greeting.\nsay: **Hello** there, {MANY} are several words.")
    async with site.window(await site.session()) as window:
        await window.say("Hi")
        await expect(window.test_id("user-message")).to_have_text("You Hi")
        await expect(window.answers).to_have_attribute("aria-busy", "true")
        await expect(window.test_id("abort")).to_be_visible()
        await expect(window.answers.locator("strong")).to_have_text("Hello")
        await window.idle()
        await expect(window.answers).to_contain_text(f"Hello there, {MANY} are several words.")
        await expect(window.answers).to_have_attribute("aria-busy", "false")
        await expect(window.test_id("abort")).to_have_count(0)
        await window.test_id("reasoning").locator("summary").click()
        await expect(window.test_id("reasoning")).to_contain_text("A greeting.")


async def test_code_is_highlighted_and_can_be_copied(site: Site) -> None:
    site.script("say: Look:\n\n  ```python\n  def hello():\n  return 1\n  ```\n")
    async with site.window(await site.session()) as window:
        await window.say("Show me code")
        block = window.test_id("code-block")
        await expect(block.locator(".hljs-keyword").first).to_have_text("def")
        await block.get_by_test_id("copy").click()
        await expect(block.get_by_label("Copied")).to_be_visible()
        assert await window.page.evaluate("navigator.clipboard.readText()") == "def hello():\nreturn 1"


async def test_a_run_that_fails_says_why(site: Site) -> None:
    site.script("say: I begin\nfail: invalid_request The model does not want this.")
    async with site.window(await site.session()) as window:
        await window.say("Try")
        notice = window.test_id("notice")
        await expect(notice).to_contain_text("The model does not want this.")
        await expect(notice).to_have_attribute("role", "alert")
        await window.idle()
        await expect(window.answers).to_contain_text("I begin")


@pytest.mark.req("MC-UI-002")
@pytest.mark.parametrize("way", ["Escape", "button"])
async def test_a_run_is_stopped_by_key_or_mouse(site: Site, way: str) -> None:
    site.script(ENDLESS)
    async with site.window(await site.session()) as window:
        await window.say("Count")
        await expect(window.answers).to_contain_text("On and on.On and on.")
        if way == "button":
            await window.test_id("abort").click()
        else:
            await window.page.keyboard.press("Escape")
        await expect(window.test_id("notice")).to_have_text("Stopped.")
        await window.idle()
        await expect(window.answers).to_contain_text("On and on.On and on.")
        site.script("say: Here I am again.")
        await window.say("And now?")
        await expect(window.answers.last).to_contain_text("Here I am again.")


@pytest.mark.req("MC-UI-001")
async def test_a_call_is_approved_with_the_mouse_having_seen_its_diff(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await asked(site, window, "mouse.txt")
        await expect(window.approval.get_by_test_id("diff")).to_contain_text("mouse.txt")
        await expect(window.approval.locator(".line.added")).to_have_count(2)
        await expect(window.test_id("approval-badge")).to_have_text("1")
        assert (await window.page.title()).startswith("(1) ")
        await window.test_id("approve-once").click()
        await window.idle()
        await expect(window.approval).to_have_count(0)
        await expect(window.test_id("approval-badge")).to_have_count(0)
        await expect(window.tool("write")).to_have_attribute("data-status", "done")
        await expect(window.answers).to_contain_text("It is written.")
        assert (site.folder / "mouse.txt").read_text(encoding="utf-8") == "one\ntwo\n"


async def test_the_key_y_allows_and_says_who_did(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await asked(site, window, "key.txt")
        await window.decide("y")
        await window.idle()
        assert (site.folder / "key.txt").exists()
        await expect(window.tool("write")).to_contain_text("You approved this in the browser")


async def test_the_key_n_denies_and_nothing_runs(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await asked(site, window, "denied.txt")
        site.script(writing("denied.txt", "Then I leave it."))
        await window.decide("n")
        await window.idle()
        await expect(window.tool("write")).to_have_attribute("data-status", "denied")
        await expect(window.answers).to_contain_text("Then I leave it.")
        assert not (site.folder / "denied.txt").exists()


async def test_a_key_pressed_before_anybody_can_have_read_the_question_decides_nothing(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await window.page.evaluate(
            """() => new MutationObserver((_, observer) => {
                if (!document.querySelector("[data-testid=approval]")) return;
                observer.disconnect();
                document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "y", bubbles: true }));
                window.pressed = true;
            }).observe(document.body, { childList: true, subtree: true })"""
        )
        await asked(site, window, "unread.txt")
        await window.read_approval()
        assert await window.page.evaluate("() => window.pressed")
        await expect(window.test_id("approve-once")).to_be_enabled()
        await window.decide("n")
        await window.idle()
        assert not (site.folder / "unread.txt").exists()


async def test_letters_of_a_text_stay_letters_and_alt_decides_while_writing(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await asked(site, window, "typed.txt")
        await window.read_approval()
        await window.composer.press_sequentially("yes, also say so")
        await expect(window.composer).to_have_value("yes, also say so")
        await expect(window.test_id("approve-once")).to_be_enabled()
        await window.composer.press("Alt+y")
        await expect(window.answers).to_contain_text("It is written.")
        await window.idle()
        await expect(window.composer).to_have_value("yes, also say so")
        assert (site.folder / "typed.txt").exists()


@pytest.mark.parametrize(
    ("key", "result", "scope"),
    [("y", "done", "once"), ("s", "done", "session"), ("a", "done", "always"), ("n", "denied", "once")],
)
async def test_the_keys_work_in_the_empty_composer(site: Site, key: str, result: str, scope: str) -> None:
    session_id = await site.session()
    async with site.window(session_id) as window:
        await asked(site, window, f"composer-{key}.txt")
        await window.read_approval()
        await expect(window.composer).to_be_focused()
        await window.page.keyboard.press(key)
        await expect(window.tool("write")).to_have_attribute("data-status", result)
        await window.idle()
        await expect(window.composer).to_have_value("")
        if result == "done":
            reach = {"once": "", "session": ", for this session)", "always": ", always)"}[scope]
            rule = f" (Edit(./composer-{key}.txt){reach}" if reach else ""
            await expect(window.tool("write")).to_contain_text(f"You approved this in the browser{rule}")


async def test_a_key_is_an_answer_only_alone_pressed_once_and_offered(site: Site) -> None:
    async with site.window(await site.session()) as window:
        keyboard = window.page.keyboard
        site.script('tool: shell {"command": "echo $(date)"}\n---\nsay: Over.')
        await window.say("Run it")
        await window.read_approval()
        for name in ("approve-session", "approve-always"):
            await expect(window.test_id(name)).to_have_count(0)
        await window.composer.focus()
        await keyboard.press("a")
        await expect(window.composer).to_have_value("a")
        await keyboard.press("Backspace")
        await window.press_after_typing("Shift")
        await keyboard.down("y")
        await keyboard.down("y")  # an auto-repeat
        await keyboard.up("y")
        await expect(window.composer).to_have_value("yy")
        await expect(window.test_id("approve-once")).to_be_enabled()
        await window.composer.fill("")
        await keyboard.press("Escape")
        await window.idle()
        await expect(window.tool("shell")).to_have_attribute("data-status", "denied")


async def test_each_button_shows_its_key(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await asked(site, window, "letters.txt")
        keys = {"approve-once": "y", "approve-session": "s", "approve-always": "a", "deny": "n", "deny-stop": "Esc"}
        for name, key in keys.items():
            await expect(window.test_id(name).locator("kbd")).to_have_text(key)
        await window.screenshot("question")
        await window.test_id("deny-stop").click()
        await window.idle()
        await expect(window.tool("write")).to_have_attribute("data-status", "denied")


async def test_allowing_for_the_session_asks_once(site: Site) -> None:
    site.script(
        'tool: shell {"command": "touch here.txt"}\n---\nsay: First.\n---\n'
        'tool: shell {"command": "touch here.txt"}\n---\nsay: Second.'
    )
    async with site.window(await site.session()) as window:
        await window.say("Run it")
        await expect(window.test_id("approval-exact")).to_have_text("touch here.txt")
        await window.test_id("approve-session").click()
        await expect(window.answers.last).to_contain_text("First.")
        await expect(window.tool("shell")).to_contain_text("for this session")
        await window.say("And again")
        await expect(window.answers.last).to_contain_text("Second.")
        await window.idle()
        await expect(window.tool("shell")).to_have_count(2)
        await expect(window.tool("shell").last).to_have_attribute("data-status", "done")


async def test_messages_are_queued_and_steer_while_a_run_goes_on(site: Site) -> None:
    site.script(
        'tool: write {"path": "steered.txt", "content": "x"}\n---\nsay: Tool is over.\n---\nsay: Queue answered.'
    )
    async with site.window(await site.session()) as window:
        await window.say("Begin")
        await expect(window.approval).to_be_visible()
        await window.say("This one waits")
        waiting = window.test_id("waiting").locator("li")
        await expect(waiting).to_have_text(["Queued This one waits"])
        await window.composer.fill("This one steers")
        await window.composer.press("Control+Enter")
        await expect(waiting).to_contain_text(["This one waits", "Steering"])
        await window.decide("y")
        await window.idle()
        await expect(waiting).to_have_count(0)
        said = await window.test_id("user-message").all_inner_texts()
        assert [text.split("\n")[-1] for text in said] == ["Begin", "This one steers", "This one waits"]
        await expect(window.answers.last).to_contain_text("Queue answered.")


async def test_a_queued_message_is_edited_or_removed_and_runs_as_it_was_edited(site: Site) -> None:
    site.script('tool: write {"path": "queued.txt", "content": "x"}\n---\nsay: Not written.\n---\nsay: Queue answered.')
    async with site.window(await site.session()) as window:
        await window.say("Begin")
        await expect(window.approval).to_be_visible()
        waiting = window.test_id("waiting").locator("li")
        for number, text in enumerate(("First", "Second", "Third"), 1):
            await window.say(text)
            await expect(waiting).to_have_count(number)
        await window.composer.fill("typed already")
        await waiting.nth(1).get_by_role("button", name="Edit this message").click()
        await expect(waiting).to_have_text(["Queued First", "Queued Third"])
        await expect(window.composer).to_have_value("Second\ntyped already")
        await expect(window.composer).to_be_focused()
        await window.say("Second, edited")
        await expect(waiting).to_have_text(["Queued First", "Queued Third", "Queued Second, edited"])
        for left in (2, 1):
            await waiting.first.get_by_role("button", name="Remove this message").click()
            await expect(waiting).to_have_count(left)
        await window.decide("n")
        await window.idle()
        said = await window.test_id("user-message").all_inner_texts()
        assert [text.split("\n")[-1] for text in said] == ["Begin", "Second, edited"]
        await expect(window.answers.last).to_contain_text("Queue answered.")


async def test_a_pasted_picture_is_shown_and_sent(site: Site) -> None:
    site.script("say: I see a picture.")
    session = await site.session()
    async with site.window(session) as window:
        await window.composer.focus()
        await window.page.evaluate(
            """async (data) => {
                const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
                const files = new DataTransfer();
                files.items.add(new File([bytes], "dot.png", { type: "image/png" }));
                const paste = new ClipboardEvent("paste", { clipboardData: files, bubbles: true });
                document.activeElement.dispatchEvent(paste);
            }""",
            PIXEL,
        )
        await expect(window.page.get_by_alt_text("Picture 1")).to_be_visible()
        await window.say("What is this?")
        await expect(window.page.get_by_alt_text("Picture 1 that you sent")).to_be_visible()
        await window.page.reload()
        await expect(window.page.get_by_alt_text("Picture 1 that you sent")).to_be_visible()
        await expect(window.answers).to_contain_text("I see a picture.")
    items = (await site.ask(f"/api/sessions/{session}/transcript"))["items"]
    assert [item["images"] for item in items if item["type"] == "user_text"] == [
        [{"data": PIXEL, "mime_type": "image/png"}]
    ]
