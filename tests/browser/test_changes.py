"""What a session changed, as the page shows it: diffs, the list of changed files, and undo of single files."""

from __future__ import annotations

import msgspec
import pytest
from playwright.async_api import Locator, expect
from support.browser import PHONE, Site, Theme, Window
from support.machine import RecordMeasure, slack

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLACK = 6
"""How much longer a busy machine may take."""

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


def greet(name: str) -> str:
    return "Hello, " + name


def last(values: list[int]) -> int:
    return values[-1]
"""
NEW = OLD.replace("result * (1 + rate)", "round(result * (1 + rate), 2)").replace("values[-1]", "values.pop()")


def write(path: str, content: str) -> str:
    return f"tool: write {msgspec.json.encode({'path': path, 'content': content}).decode()}\n"


def script(*messages: tuple[str, ...]) -> str:
    """The files that each message writes."""
    return "---\n".join(f"say: I write.\n{''.join(writes)}---\nsay: Done.\n" for writes in messages)


async def worked(window: Window, text: str = "Do it") -> None:
    answers = await window.answers.count()
    await window.say(text)
    await expect(window.answers).to_have_count(answers + 2)
    await window.idle()


def changed(window: Window, name: str) -> Locator:
    return window.page.locator(f"[data-testid=changed-file][data-path$='/{name}']")


@pytest.mark.parametrize(("theme", "size"), [("light", (1440, 900)), ("dark", (1440, 900)), ("light", PHONE)])
async def test_changed_files_are_listed_with_their_diffs_and_undone_one_by_one(
    site: Site, theme: Theme, size: tuple[int, int]
) -> None:
    (site.folder / "app.py").write_text(OLD)
    (site.folder / "notes/made.txt").unlink(missing_ok=True)
    site.script(script((write("app.py", NEW), write("notes/made.txt", "new\n"))))
    session = await site.session("accept_edits")
    async with site.window(session, theme=theme, size=size, phone=size == PHONE) as window:
        await worked(window)
        await expect(window.test_id("open-changes")).to_contain_text("2")
        await window.press("f")
        app = changed(window, "app.py")
        await expect(app.get_by_role("button").first).to_have_accessible_name("app.py +2 lines added −2 lines removed")
        await expect(app.locator(".added .word")).to_have_text(["round", "(", ", ", "2", ")", ".pop()"])
        await expect(app.locator(".hljs-keyword").first).to_be_visible()
        assert await window.axe() == []
        await app.get_by_test_id("undo-file").click()
        await expect(window.test_id("restore-file")).to_have_count(1)
        await expect(window.test_id("confirm-restore")).to_be_focused()
        assert await window.axe() == []
        await window.page.keyboard.press("Enter")
        await expect(window.test_id("changed-file")).to_have_count(1)
        assert ((site.folder / "app.py").read_text(), (site.folder / "notes/made.txt").read_text()) == (OLD, "new\n")
        await window.page.keyboard.press("Escape")
        await expect(window.test_id("changes")).to_have_count(0)
        await expect(window.test_id("open-changes")).to_contain_text("1")


async def test_a_diff_is_shown_side_by_side_where_there_is_room_and_the_page_remembers_it(site: Site) -> None:
    (site.folder / "app.py").write_text(OLD)
    site.script(script((write("app.py", NEW),)))
    session = await site.session("accept_edits")
    async with site.context(size=(1440, 900)) as context, site.window(session, context=context) as window:
        await worked(window)
        await window.press("f")
        app = changed(window, "app.py")
        await expect(app.locator(".pair")).to_have_count(0)
        await window.test_id("side-by-side").click()
        beside = app.locator(".pair", has=window.page.locator(".removed")).first
        await expect(beside.locator(".line code")).to_have_text(
            ["    return result * (1 + rate)", "    return round(result * (1 + rate), 2)"]
        )
        assert await window.axe() == []
        gaps = app.get_by_test_id("diff-gap")
        await expect(gaps).to_have_count(2)
        await gaps.first.click()
        await expect(gaps).to_have_count(1)
        await expect(app).to_contain_text("import os")
        await window.page.reload()
        await window.connected()
        await window.press("f")
        await expect(app.locator(".pair").first).to_be_visible()
        await window.page.set_viewport_size({"width": 700, "height": 900})
        await expect(app.locator(".pair")).to_have_count(0)


async def test_an_undo_leaves_out_what_is_unchecked_and_what_was_changed_since(site: Site) -> None:
    second = (write("a.txt", "2\n"), write("b.txt", "2\n"), write("c.txt", "2\n"))
    site.script(script((write("a.txt", "1\n"),), second))
    session = await site.session("accept_edits")
    async with site.window(session) as window:
        await worked(window, "First")
        await worked(window, "Second")
        (site.folder / "b.txt").write_text("mine\n")
        await window.test_id("session-menu").click()
        await window.page.get_by_role("menuitem", name="Undo file changes").click()
        files = window.test_id("restore-file")
        await expect(files).to_have_count(3)
        await expect(files.nth(1)).to_contain_text("Stays as it is: it was changed since.")
        await expect(files.nth(1).get_by_role("checkbox")).to_be_disabled()
        await files.nth(2).get_by_role("checkbox").uncheck()
        await expect(window.test_id("confirm-restore")).to_have_text("Undo 1 of 3 files")
        await window.test_id("confirm-restore").click()
        await expect(window.page.get_by_text("Undid the changes of")).to_have_count(1)
        assert [(site.folder / name).read_text() for name in ("a.txt", "b.txt", "c.txt")] == ["1\n", "mine\n", "2\n"]
        await window.test_id("session-menu").click()
        await window.page.get_by_role("menuitem", name="Undo file changes").click()
        first = await window.test_id("restore-to").locator("option", has_text="First").get_attribute("value")
        await window.test_id("restore-to").select_option(first)
        await expect(files.nth(0)).to_contain_text("Remove a.txt")
        await window.test_id("confirm-restore").click()
        await expect(window.page.get_by_text("Undid the changes of")).to_have_count(2)
        assert [(site.folder / name).exists() for name in ("a.txt", "b.txt", "c.txt")] == [False, True, False]


async def test_the_list_grows_while_the_agent_works_and_undo_waits_for_the_end(site: Site) -> None:
    gate = site.folder / "gate-list"
    gate.unlink(missing_ok=True)
    waits = msgspec.json.encode({"command": f"while [ ! -e {gate.name} ]; do sleep 0.05; done"}).decode()
    site.script(f"{write('x.txt', '1')}---\ntool: shell {waits}\n---\n{write('y.txt', '2')}---\nsay: Done.\n")
    async with site.window(await site.session("never_ask")) as window:
        await window.say("Go")
        await expect(window.page.locator("[data-testid=tool-card][data-status=running]")).to_have_count(1)
        await window.press("f")
        await expect(window.test_id("changed-file")).to_have_count(1)
        await expect(window.test_id("undo-file")).to_be_disabled()
        gate.touch()
        await expect(window.test_id("changed-file")).to_have_count(2)
        await expect(window.test_id("undo-file").last).to_be_enabled()


async def test_a_question_that_comes_while_the_list_is_open_is_announced_there(site: Site) -> None:
    site.script(f"{write('asked-1.txt', 'x')}---\n{write('asked-2.txt', 'y')}---\nsay: Done.\n")
    async with site.window(await site.session()) as window:
        await window.say("Go")
        await window.decide("y")
        await expect(window.approval.get_by_test_id("diff")).to_contain_text("asked-2.txt")
        await window.press("f")
        await window.read_approval()
        await window.page.keyboard.press("y")
        await window.test_id("sheet-approval").click()
        await expect(window.test_id("changes")).to_have_count(0)
        await expect(window.approval).to_be_visible()
        assert not (site.folder / "asked-2.txt").exists()


async def test_a_diff_of_10_000_lines_opens_at_once(site: Site, record_measure: RecordMeasure) -> None:
    lines = [f"value_{number} = {number}" for number in range(10_000)]
    (site.folder / "long.py").write_text("\n".join(lines) + "\n")
    new = [f"{line} + 1" if number % 2 else line for number, line in enumerate(lines)]
    site.script(script((write("long.py", "\n".join(new) + "\n"),)))
    async with site.window(await site.session("accept_edits")) as window:
        await worked(window)
        await window.press("f")
        head = changed(window, "long.py").get_by_role("button").first
        await expect(head).to_contain_text("+5,000")
        await head.click()
        await expect(changed(window, "long.py").locator(".line")).to_have_count(0)
        took = await head.evaluate(
            """async (button) => {
              const start = performance.now();
              button.click();
              while (!document.querySelector('[data-testid=changes] .line')) await new Promise(requestAnimationFrame);
              return performance.now() - start;
            }"""
        )
        await expect(changed(window, "long.py").locator(".line").first).to_be_visible()
        drawn = await changed(window, "long.py").locator(".line").count()
    record_measure("from a click to a diff of 10,000 lines", "< 300 ms", f"{took:.0f} ms")
    assert drawn < 1000
    assert took < 300 * SLACK * slack()
