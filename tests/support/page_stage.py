"""A server whose sessions are in every state that the page has a view for, and ways to open what is on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from playwright.async_api import Browser, expect

from support.browser import Site, Window, site_of
from support.small_sessions import SmallSession, write_sessions

OLD = """\
import os


def total(prices: list[float], rate: float) -> float:
    \"\"\"The sum with tax.\"\"\"
    result = 0.0
    for price in prices:
        result += price
    return result * (1 + rate)


def names(folder: str) -> list[str]:
    return sorted(os.listdir(folder))


def last(values: list[int]) -> int:
    return values[-1]
"""
NEW = OLD.replace("result * (1 + rate)", "round(result * (1 + rate), 2)").replace("values[-1]", "values.pop()")

EVERYTHING = """think: The user wants to see everything.
say: # Everything

  A paragraph with **bold**, *emphasis*, `code`, a [link](https://example.invalid/) and ~~a mistake~~.
  - one
  - two
  > a quotation
  ```python
  def hello(name: str) -> str:
  return f"Hello, {name}"  # a comment
  ```
tool: plan {"steps": [{"content": "Look", "status": "completed"}, {"content": "Write", "status": "in_progress"},
  {"content": "Test"}]}
tool: shell {"command": "printf '\\\\033[31mred\\\\033[0m \\\\033[32mgreen\\\\033[0m'; exit 2"}
---
tool: write {"path": "shown.py", "content": "print('one')\\nprint('two')\\n"}
---
say: All is shown.
"""
ANSWER = r"""Energy is $E = mc^2$, and half of a square is an integral.[^school]

$$\int_0^1 x\,dx = \tfrac{1}{2}$$

```mermaid
flowchart LR
  A[Question] --> B[Plan] --> C[Change]
```

[^school]: As everybody learns at school.

| language | files | lines |
|---|---:|---:|
| Python | 312 | 41,204 |
| TypeScript | 97 | 12,880 |
"""
ASKS = f"""say: I round the sum and take the last value off the list.
tool: write {msgspec.json.encode({"path": "app.py", "content": NEW}).decode()}
---
say: Done.
"""
CHANGES = f"""say: I write.
tool: write {msgspec.json.encode({"path": "changed.py", "content": NEW}).decode()}
tool: write {{"path": "notes/made.txt", "content": "new\\n"}}
---
say: Both files are written.
"""
RUNS = """tool: shell {"command": "seq -f 'test_%g passed' 60; while [ ! -e never-there ]; do sleep 0.2; done",
  "timeout_s": 600}
---
say: Done.
"""
MINUTE_MS, DAY_MS = 60_000, 86_400_000
TITLES = (
    "Round prices to cents", "Why is the build slow?", "Release notes for 2.4", "Rename the customer table",
    "Flaky test of the importer", "Explain the retry policy", "Dark theme for the shop", "Update the dependencies",
    "A script that cleans old logs", "Translate the help page", "Find the memory leak", "Sketch of an API for orders",
)  # fmt: skip


class Stage(msgspec.Struct, frozen=True):
    """A site, and its sessions by the state that they are in."""

    site: Site
    sessions: Mapping[str, str]

    def address(self, place: str) -> str:
        """The place is `home`, the name of a session, or a path of the page."""
        if place in self.sessions:
            return self.site.address(self.sessions[place])
        return self.site.address() + ("" if place == "home" else place)


def small_sessions(folder: Path) -> list[SmallSession]:
    """Two weeks of work in three folders, and three runs of a script."""
    now = int(time.time() * 1000)
    folders = [str(folder / name) for name in ("shop", "site", "tools")]
    chats = [
        SmallSession(
            f"s{at}", title, now - at * (DAY_MS + 5 * MINUTE_MS), folders[at % 3], question=f"{title}, please."
        )
        for at, title in enumerate(TITLES)
    ]
    runs = [
        SmallSession(f"run{at}", f"Nightly check {at}", now - at * MINUTE_MS, folders[2], "run") for at in range(1, 4)
    ]
    answer = SmallSession("answer", "Formulas, a diagram and a table", now - MINUTE_MS, folders[1], answer=ANSWER)
    return [answer, *chats, *runs]


def used(days_ago: int, model: str, cost_usd: float | None, **more: object) -> dict[str, object]:
    day = (datetime.now() - timedelta(days=days_ago)).date().isoformat()
    counts = {"runs": 2, "input": 12_000, "output": 800, "cache_read": 30_000, "cache_write": 0}
    names = {"model_ref": f"vendor/api@{model}", "harness": "native", "cwd": "/home/ana/project"}
    return {"day": day, **names, **counts, "cost_usd": cost_usd, **more}


USED = [
    used(0, "large", 1.25),
    used(1, "large", 0.4),
    used(1, "small", 0.02, cwd='/home/ana/"notes", old'),
    used(12, "local", None, harness="codex", model_ref=""),
]


async def with_usage(window: Window) -> None:
    """A month of use, which no test can have had."""
    await window.page.route("**/api/usage?**", lambda route: route.fulfill(json={"rows": USED, "complete": True}))


async def open_settings(window: Window, section: str) -> None:
    await window.page.evaluate("(section) => { location.hash = `#/settings/${section}`; }", section)
    await expect(window.test_id("settings")).to_have_attribute("data-section", section)
    await expect(window.page.get_by_text("Loading…")).to_have_count(0)


async def drop_file(window: Window, name: str, text: str) -> None:
    """Drop a file anywhere on the page."""
    await window.page.evaluate(
        """([name, text]) => {
            const files = new DataTransfer();
            files.items.add(new File([text], name, { type: "text/plain" }));
            const options = { dataTransfer: files, bubbles: true, cancelable: true };
            for (const kind of ["dragover", "drop"])
                document.querySelector("main").dispatchEvent(new DragEvent(kind, options));
        }""",
        [name, text],
    )


@asynccontextmanager
async def stage_of(folder: Path, browser: Browser) -> AsyncIterator[Stage]:
    home = folder / "makai-home"
    (home / "commands").mkdir(parents=True)
    home.chmod(0o700)
    (home / "commands/greet.md").write_text("---\nargument-hint: NAME\ndescription: say hello\n---\nGreet $1 warmly.")
    await write_sessions(home, small_sessions(folder))
    async with site_of(folder, browser, environ={"MAKAI_TEST_LOGIN": "1", "PATH": "/usr/bin:/bin"}) as site:
        for name in ("app.py", "changed.py"):
            (site.folder / name).write_text(OLD)
        async with site.window() as window:
            made = {name: await act(site, window) for name, act in _ACTS.items()}
            yield Stage(site, {"answer": "answer", **made})


async def _begun(site: Site, window: Window, mode: str, script: str, text: str) -> str:
    site.script(script)
    session_id = await site.session(mode)
    await window.page.goto(site.address(session_id))
    await window.connected()
    await window.say(text)
    return session_id


async def _everything(site: Site, window: Window) -> str:
    session_id = await _begun(site, window, "ask", EVERYTHING, "Show me everything")
    await expect(window.approval).to_contain_text("printf")
    await window.test_id("approve-once").click()
    await expect(window.approval).to_contain_text("shown.py")
    await window.test_id("approve-once").click()
    await expect(window.answers.last).to_contain_text("All is shown.")
    await window.idle()
    return session_id


async def _asking(site: Site, window: Window) -> str:
    session_id = await _begun(site, window, "ask", ASKS, "Round the total, and pop the last value")
    await expect(window.approval).to_contain_text("app.py")
    await window.say("Then run the tests")
    await window.composer.fill("Keep the docstrings")
    await window.composer.press("Control+Enter")
    await expect(window.test_id("waiting").locator("li")).to_have_count(2)
    return session_id


async def _failed(site: Site, window: Window) -> str:
    failure = "say: I begin\nfail: invalid_request The model does not want this. See https://example.com/why."
    session_id = await _begun(site, window, "ask", failure, "Try")
    await expect(window.test_id("remedies")).to_be_visible()
    return session_id


async def _changed(site: Site, window: Window) -> str:
    session_id = await _begun(site, window, "accept_edits", CHANGES, "Change two files")
    await expect(window.answers.last).to_contain_text("Both files are written.")
    await window.idle()
    return session_id


async def _branch(site: Site, window: Window) -> str:
    origin = await _begun(site, window, "ask", "echo", "Which walnuts grow fast?")
    await window.idle()
    await window.page.locator(".item.user").hover()
    await window.test_id("edit-message").click()
    await window.test_id("edit-field").fill("Which walnuts grow slowly?")
    await window.test_id("edit-field").press("Enter")
    await window.page.wait_for_url(lambda url: origin not in url)
    await window.connected()
    await window.idle()
    return window.page.url.rpartition("/")[2]


async def _running(site: Site, window: Window) -> str:
    session_id = await _begun(site, window, "never_ask", RUNS, "Run the tests")
    await expect(window.tool("shell").get_by_test_id("terminal")).to_contain_text("test_60")
    return session_id


async def _streaming(site: Site, window: Window) -> str:
    session_id = await _begun(site, window, "ask", "pace: 200ms\nrepeat: 100000 On and on. ", "Count")
    await expect(window.answers).to_contain_text("On and on.")
    return session_id


_ACTS = {
    "everything": _everything,
    "asking": _asking,
    "failed": _failed,
    "changed": _changed,
    "branch": _branch,
    "running": _running,
    "streaming": _streaming,
}
