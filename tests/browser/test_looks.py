"""The page on a phone, in the demo and for a session that is gone; every view is looked at in test_views.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from support.browser import AXE, PHONE, Site, Theme, Window, site_of

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (`make checkpage`): it checked nothing"),
]

ANSWER = """think: The user wants to see everything.
say: # Everything

  A paragraph with **bold**, *emphasis*, `code`, a [link](https://example.invalid/) and ~~a mistake~~.
  - one
  - two
  > a quotation
  ```python
  def hello(name: str) -> str:
  return f"Hello, {name}"  # a comment
  ```
  | left | right |
  |---|---:|
  | a | 1 |
tool: plan {"steps": [{"content": "Look", "status": "completed"}, {"content": "Write", "status": "in_progress"},
  {"content": "Test"}]}
tool: shell {"command": "printf '\\\\033[31mred\\\\033[0m \\\\033[32mgreen\\\\033[0m'; exit 2"}
---
tool: write {"path": "shown.py", "content": "print('one')\\nprint('two')\\n"}
---
say: All is shown.
"""


async def clean(window: Window, screen: str) -> None:
    assert [(screen, violation) for violation in await window.axe()] == []


async def filled(site: Site, window: Window) -> None:
    """A conversation with everything in it, waiting for an approval."""
    site.script(ANSWER)
    await window.say("Show me everything")
    await expect(window.approval).to_contain_text("printf")
    await window.test_id("approve-once").click()
    await expect(window.approval).to_contain_text("shown.py")


async def test_axe_is_really_looking(site: Site) -> None:
    async with site.window() as window:
        await window.page.evaluate(
            """() => {
                const main = document.querySelector("main");
                main.insertAdjacentHTML("afterbegin", '<p>pale</p><button></button><img src="/icon.svg">');
                Object.assign(main.firstElementChild.style, { color: "#888", background: "#999" });
            }"""
        )
        assert {violation.id for violation in await window.axe()} == {"image-alt", "color-contrast", "button-name"}


async def test_a_missing_session_says_so(site: Site) -> None:
    async with site.context() as context:
        window = Window(await context.new_page())
        await window.page.goto(site.address("there-is-no-such-session"))
        await expect(window.page.get_by_text("This session does not exist, or it was deleted.")).to_be_visible()
        await expect(window.test_id("session-missing")).to_have_text("Session not found")
        await expect(window.test_id("model-picker")).to_have_count(0)
        await clean(window, "a session that is gone")
        await window.page.get_by_role("main").get_by_role("link", name="New chat").click()
        await expect(window.test_id("home")).to_be_visible()


async def test_on_a_phone_everything_is_within_reach(site: Site) -> None:
    async with site.window(await site.session(), size=PHONE, phone=True) as window:
        await filled(site, window)
        await window.screenshot("phone-approval")
        await clean(window, "an approval on a phone")
        # As wide as the screen, and what is pressed is large enough for a finger and not covered by anything.
        assert await window.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        for button in ("approve-once", "deny", "open-list", "abort"):
            box = await window.test_id(button).bounding_box()
            assert box is not None
            assert box["height"] >= 24, button
            assert 0 <= box["x"] <= PHONE[0] - box["width"], button
        await window.test_id("approve-once").tap()
        await expect(window.answers.last).to_contain_text("All is shown.")
        await window.idle()
        await window.screenshot("phone-answer")
        await window.test_id("open-list").tap()
        await expect(window.test_id("session-row").first).to_be_visible()
        await clean(window, "the list on a phone")
        await window.screenshot("phone-list")
        await window.page.keyboard.press("Escape")
        await expect(window.test_id("open-list")).to_be_focused()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_demo_shows_what_an_agent_does_without_account(
    browser: Browser, tmp_path: Path, theme: Theme
) -> None:
    async with site_of(tmp_path, browser) as site, site.window(theme=theme) as window:
        await window.test_id("open-demo").click()
        await window.connected()
        await expect(window.composer).to_have_value("Show me what you can do.")
        await window.composer.press("Enter")
        await expect(window.approval.get_by_test_id("diff")).to_contain_text("greet.py")
        await window.screenshot(f"demo-diff-{theme}")
        await window.decide("y")
        await expect(window.test_id("approval-exact")).to_have_text("python3 test_greet.py")
        await window.screenshot(f"demo-command-{theme}")
        await window.decide("y")
        await expect(window.tool("shell").get_by_test_id("terminal")).to_contain_text("all tests passed")
        await expect(window.answers.last.locator("table")).to_be_visible()
        await window.idle()
        await expect(window.test_id("plan")).to_contain_text("3 of 3 done")
        await clean(window, "the demo")
        await window.screenshot(f"demo-done-{theme}")
