"""Links of `makai tokens link` in a browser: the page shows what they allow, and nothing else works."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect
from support.browser import Site, Window
from support.cli import Cli

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITES = 'tool: write {"path": "%s", "content": "one\\n"}\n---\nsay: It is written.'


@asynccontextmanager
async def opened(site: Site, *options: str) -> AsyncIterator[Window]:
    """A window of another person, who was given a link."""
    link = (await Cli(site.server.home)("tokens", "link", *options)).out.strip()
    context = await site.browser.new_context()
    try:
        window = Window(await context.new_page())
        await window.page.goto(link)
        await expect(window.test_id("connection")).to_have_attribute("data-state", re.compile("granted|live"))
        assert "mkt_" not in window.page.url
        yield window
        assert window.complaints() == []
    finally:
        await context.close()


async def asked(site: Site, name: str) -> str:
    """A session in which the agent waits for an answer."""
    site.script(WRITES % name)
    session_id = await site.session()
    async with site.window(session_id) as window:
        await window.say("Write it")
        await expect(window.approval).to_be_visible()
    return session_id


async def test_an_observer_sees_the_question_and_can_neither_answer_nor_write(site: Site) -> None:
    session_id = await asked(site, "observed.txt")
    async with opened(site, "--session", session_id) as window:
        await expect(window.approval).to_be_visible()
        await expect(window.test_id("approve-once")).to_be_disabled()
        await expect(window.test_id("deny")).to_be_disabled()
        await expect(window.test_id("approval-locked")).to_contain_text("makai tokens link --scope approve")
        await expect(window.composer).to_be_disabled()
        await expect(window.test_id("scope")).to_have_text("Watching")
        await window.decide("y")
        await expect(window.approval).to_be_visible()
        assert not (site.folder / "observed.txt").exists()
        assert await window.axe() == []


async def test_a_link_that_may_approve_answers_and_the_log_names_it(site: Site) -> None:
    session_id = await asked(site, "approved.txt")
    async with opened(site, "--session", session_id, "--scope", "approve", "--name", "ana") as window:
        await window.test_id("approve-once").click()
        await window.idle()
        assert (site.folder / "approved.txt").read_text() == "one\n"
        await expect(window.tool("write").locator("[title^='Token: ana/']")).to_contain_text("ana approved this")
