"""One session at the same time in an editor (`makai acp`), in the browser and in a terminal (`makai -r`), each its own
process; and a picture of it, which docs/editors.md shows."""

from __future__ import annotations

import asyncio
import base64
import html
from collections.abc import Iterator

import pytest
from playwright.async_api import expect
from support.acp_peer import AcpPeer, acp_process, text_of
from support.acp_schema import JSON
from support.browser import ARTIFACTS, Site, Window
from support.cli import Cli, Terminal
from support.terminal_screen import screen_html

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

EDITS = """
say: There is a typo in the greeting. I will fix it; you decide.
tool: edit {"path": "greet.py", "old_text": "Helo", "new_text": "Hello"}
---
say: The greeting is right now.
---
say: You are welcome.
"""
PICTURE = """<style>
  body {{ margin: 0; padding: 12px; display: grid; grid-template: 1fr auto / 500px 780px; gap: 12px; background: #ccd }}
  section {{ overflow: hidden; border-radius: 8px; background: #0d1117; color: #e6edf3; font: 12px/1.45 monospace }}
  section:last-child {{ grid-area: 1 / 2 / 3 / 3; background: white }}
  h2 {{ margin: 0; padding: 6px 12px; font: bold 13px sans-serif; background: #30363d; color: white }}
  pre {{ margin: 0; padding: 10px 12px; font: inherit; white-space: pre-wrap; overflow-wrap: anywhere }}
  img {{ display: block; width: 780px }}
  b {{ color: #76e3ea }}
</style>
<section><h2>Editor: frames of makai acp</h2><pre>{editor}</pre></section>
<section><h2>Terminal: makai -r</h2><pre>{terminal}</pre></section>
<section><h2>Browser</h2><img src="data:image/png;base64,{browser}"></section>"""


async def test_one_session_in_an_editor_the_browser_and_a_terminal(site: Site) -> None:
    greeting = site.folder / "greet.py"
    greeting.write_text('print("Helo, world")\n')
    async with acp_process(site.server.folder, EDITS) as process, AcpPeer(process) as editor:
        editor.answers["session/request_permission"] = lambda params: asyncio.Event().wait()
        await editor.initialize(clientInfo={"name": "editor", "version": "1"})
        session_id = (await editor.new_session(site.folder))["sessionId"]
        on_terminal = Cli(site.server.home).on_terminal("-r", session_id)
        async with site.window(session_id, size=(780, 640)) as window, on_terminal as terminal:
            await terminal.shows(">")
            prompt = await editor.ask("session/prompt", editor.prompt_params(session_id, "Fix the greeting."))
            question = await editor.until(lambda frame: frame.get("method") == "session/request_permission")
            await expect(window.approval).to_contain_text("greet.py")
            await terminal.shows("Fix the greeting.", "greet.py", "allow once", "Expires")
            assert greeting.read_text() == 'print("Helo, world")\n'
            await _take_picture(editor, window, terminal)

            await window.test_id("approve-once").click()
            assert (await editor.answer_to(prompt))["result"] == {"stopReason": "end_turn"}
            withdrawn = [frame["params"] for frame in editor.frames if frame.get("method") == "$/cancel_request"]
            assert withdrawn == [{"requestId": question["id"]}]
            await terminal.shows("allowed", "The greeting is right now.")
            assert greeting.read_text() == 'print("Hello, world")\n'

            await terminal.types("Thank you\r", "You are welcome.")
            await expect(window.answers.last).to_contain_text("You are welcome.")
            await editor.until(lambda frame: "You are welcome." in str(frame))
            said = text_of(editor.updates(session_id), "user_message_chunk")
            assert said == "Thank you"  # its own prompt is not repeated to it
            await window.idle()


async def _take_picture(editor: AcpPeer, window: Window, terminal: Terminal) -> None:
    browser = base64.b64encode(await window.page.screenshot()).decode()
    panels = {"editor": "\n".join(_shown(editor.frames)), "terminal": screen_html(terminal.output), "browser": browser}
    page = await window.page.context.new_page()
    await page.set_viewport_size({"width": 1316, "height": 690})
    await page.set_content(PICTURE.format(**panels))
    ARTIFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTIFACTS / "one-session.png")
    await page.close()


def _shown(frames: list[JSON]) -> Iterator[str]:
    """The frames of an agent for people: updates with what they say, and the options of a question."""
    yield '→ <b>session/prompt</b> "Fix the greeting."'
    for frame in frames:
        match frame:
            case {"method": "session/update", "params": {"update": {"content": {"text": text}}}}:
                yield f"← <b>session/update</b> {html.escape(text)}"
            case {"method": "session/update", "params": {"update": {"sessionUpdate": "tool_call", "title": title}}}:
                yield f"← <b>session/update</b> tool_call: {html.escape(title)}"
            case {"method": "session/request_permission", "params": {"options": options}}:
                yield "← <b>session/request_permission</b>"
                yield from (f"     {each['kind']:<14} {html.escape(each['name'])}" for each in options)
