"""Another agent runs a session: it is picked in the page, its name is shown, and what it says arrives."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from support.browser import Site, site_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARROT = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            say(id=asked["id"], result={"protocolVersion": 1, "agentInfo": {"name": "parrot", "version": "1"}})
        case "session/new":
            say(id=asked["id"], result={"sessionId": "p1"})
        case "session/prompt":
            words = "".join(block.get("text", "") for block in asked["params"]["prompt"])
            chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Squawk: " + words}}
            say(method="session/update", params={"sessionId": "p1", "update": chunk})
            say(id=asked["id"], result={"stopReason": "end_turn"})
        case str() if "id" in asked:
            say(id=asked["id"], error={"code": -32601, "message": "unknown"})
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server whose user has added an agent, and whose PATH has none of the known ones."""
    folder = tmp_path_factory.mktemp("agents")
    program = folder / "parrot.py"
    program.write_text(PARROT, encoding="utf-8")
    home = folder / "makai-home"
    home.mkdir(mode=0o700)
    rows = ["[agents.parrot]", 'title = "Parrot"', f"command = ['{sys.executable}', '{program}']"]
    (home / "config.toml").write_text("\n".join(rows), encoding="utf-8")
    async with site_of(folder, browser, environ={"PATH": "/usr/bin:/bin"}) as site:
        yield site


async def test_an_installed_agent_is_picked_and_its_name_stands_in_the_head_of_its_session(site: Site) -> None:
    async with site.window() as window:
        await window.test_id("harness-picker").click()
        await expect(window.test_id("agent-option")).to_contain_text(["makai", "Parrot"])
        await expect(window.test_id("missing-agent").first).to_contain_text("npm install")
        await window.screenshot("agent-picker")
        await window.page.keyboard.press("ArrowDown")
        await window.page.keyboard.press("Enter")
        await expect(window.composer).to_be_focused()
        await expect(window.test_id("home").get_by_test_id("model-picker")).to_be_disabled()
        await expect(window.test_id("home")).to_contain_text("its own process is not in the sandbox.")
        await window.test_id("folder-picker").click()
        await window.test_id("cwd").fill(str(site.folder))
        await window.test_id("cwd").press("Enter")
        await expect(window.composer).to_be_focused()
        await window.say("Hello")
        await expect(window.answers).to_contain_text("Squawk: Hello")
        await window.idle()
        await expect(window.test_id("agent")).to_contain_text("Parrot")
        await expect(window.test_id("session-row").first).to_contain_text("Parrot")
        await window.screenshot("agent-session")
        session_id = window.page.url.rpartition("/")[2]
    shown = await site.ask(f"/api/sessions/{session_id}")
    assert (shown["harness"], shown["cwd"]) == ("acp:parrot", str(site.folder))


async def test_a_session_of_makai_names_no_agent(site: Site) -> None:
    async with site.window(await site.session()) as window:
        await expect(window.test_id("agent")).to_have_count(0)
        await expect(window.page.locator("main").get_by_test_id("model-picker")).to_be_visible()


async def test_the_default_agent_of_the_settings_is_the_one_a_new_chat_begins_with(site: Site) -> None:
    config = site.folder.parent / "makai-home" / "config.toml"
    before = config.read_text(encoding="utf-8")
    async with site.window() as window:
        await window.page.goto(f"{site.server.url}/#/settings")
        await window.page.get_by_label("Agent").select_option("parrot")
        await expect(window.test_id("saved")).to_have_text("Agent saved.")
        await window.page.goto(f"{site.server.url}/#/")
        await expect(window.test_id("harness-picker")).to_contain_text("Parrot")
        await window.test_id("harness-picker").click()
        await expect(window.page.get_by_role("radio", name="Parrot")).to_be_focused()
        await window.test_id("agent-option").first.click()
        await expect(window.test_id("home").get_by_test_id("model-picker")).to_be_enabled()
    info = await site.ask("/api/info")
    config.write_text(before, encoding="utf-8")  # the other tests begin without a default
    assert info["default_agent"] == "acp:parrot"
