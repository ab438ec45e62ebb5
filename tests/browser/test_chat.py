"""Talking to an agent in the page: words stream in, tools are asked about, and everything can be stopped."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from support.browser import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("MC-UI-001", "MC-UI-002")
async def test_a_message_is_sent_and_its_answer_streams_in(site: Site) -> None:
    site.script("pace: 30ms\nthink: Somebody greets.\nsay: **Hello** there, this is an answer of several words.")
    async with site.window(await site.session()) as window:
        await window.say("Hi")
        await expect(window.test_id("user-message")).to_have_text("You Hi")
        await expect(window.answers).to_have_attribute("aria-busy", "true")
        await expect(window.test_id("abort")).to_be_visible()
        await expect(window.answers.locator("strong")).to_have_text("Hello")
        await window.idle()
        await expect(window.answers).to_contain_text("Hello there, this is an answer of several words.")
        await expect(window.answers).to_have_attribute("aria-busy", "false")
        await expect(window.test_id("abort")).to_have_count(0)
