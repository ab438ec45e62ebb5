"""The page while a provider limits the rate, and with a picture for a model that takes none."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from support.browser import Site, site_of
from support.minicodex import BOTH
from support.upstream import refuses, upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUSY = refuses(429, b'{"error":{"message":"Slow down","code":"rate_limit_exceeded"}}', Retry_After="300")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PASTE = """async (data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "dot.png", { type: "image/png" }));
    document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: files, bubbles: true }));
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A site whose provider answers no request."""
    async with upstream(BUSY) as vendor:
        environ = {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{vendor.url}/v1"}
        async with site_of(tmp_path_factory.mktemp("limited"), browser, environ=environ) as site:
            yield site


async def session_with(site: Site, model_ref: str) -> str:
    session_id = await site.session()
    client = await site.server.connect(session_id, *BOTH)
    await client.hello()
    assert await client.ask("set_model", model_ref=model_ref) == "accepted"
    client.drop()
    return session_id


async def test_a_wait_is_counted_down_and_the_stop_button_ends_it(limited: Site) -> None:
    session_id = await session_with(limited, "openai/openai-completions@gpt-of-next-year")
    async with limited.window(session_id) as window:
        await window.say("Hello")
        wait, notice = window.test_id("wait"), window.test_id("notice")
        await expect(wait).to_have_text(re.compile(r"^Waiting 4 min 5\d s:$"))
        first = await wait.text_content()
        await expect(wait).not_to_have_text(str(first))
        await expect(notice).to_contain_text("openai refused the request (HTTP 429): Slow down. Attempt 2 follows.")
        await window.screenshot("wait")
        await window.test_id("abort").click()
        await window.idle()
        await expect(wait).to_have_count(0)


async def test_a_picture_for_a_model_that_takes_none_is_refused_with_a_reason(limited: Site) -> None:
    session_id = await session_with(limited, "scripted/scripted@demo")
    async with limited.window(session_id) as window:
        await window.composer.focus()
        await window.page.evaluate(PASTE, PIXEL)
        await expect(window.page.get_by_alt_text("Picture 1")).to_be_visible()
        await window.say("What is this?")
        await expect(window.page.get_by_text("demo takes no pictures; scripted/echo does.")).to_be_visible()
        await window.screenshot("picture-refused")
    items = (await limited.ask(f"/api/sessions/{session_id}/transcript"))["items"]
    assert items == []
