"""What a model wrote, as a reader sees it: tables, formulas, diagrams, footnotes and code."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from support.browser import PHONE, Site, site_of
from support.long_session import write_long_session

pytestmark = pytest.mark.asyncio(loop_scope="module")

DIAGRAM = "flowchart TD\n    A[Start] --> B[End]"
HOSTILE_DIAGRAMS = [
    'flowchart TD\n    A["<img src=x onerror=parent.pwned=1>"] --> B["<script>top.pwned=1</script>"]',
    'flowchart TD\n    A --> B\n    click A "javascript:top.pwned=1"\n    click B call alert()',
    '%%{init: {"securityLevel": "loose", "themeCSS": "*{background:url(https://evil.invalid/x.png)}"}}%%\n'
    'flowchart TD\n    A["<a href=https://evil.invalid>out</a>"] --> B',
    "flowchart TD\n    A@{ img: 'https://evil.invalid/track.png', label: 'x', w: 60, h: 60 }",
]


COLUMNS = [f"column number {number}" for number in range(12)]
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * 12}"
ROW = "| **bold** | [link](https://example.org/a) | `a \\| b` |" + " x |" * 9
CODE = "\n".join(f"value_{number} = 'text'" for number in range(400))
BROKEN = "flowchart TD; A --> ((broken"


def _fenced(*diagrams: str) -> str:
    return "\n\n".join(f"```mermaid\n{code}\n```" for code in diagrams)


TEXTS = {
    "wide-table": f"Here it is:\n{HEAD}\n{ROW}\n{ROW}\n\nEnd.",
    "tall-table": "| name | words |\n|---|---|\n"
    + "\n".join(f"| row {number} | {'word ' * (number % 9)}|" for number in range(400))
    + "\n| last | `a \\| b` | beyond the header |",
    "long-table": "| a | b |\n|---|---|\n" + "\n".join(f"| {number} | x |" for number in range(4_000)),
    "formulas": r"It costs $5 or $6, but $E = mc^2$ and \(\boxed{a}\)."
    "\n\n$$\n\\int_0^1 x\\,dx\n+ \\fcolorbox{red}{yellow}{b}\n$$\n\nBroken: $\\frac{1$. "
    "Bomb: $\\def\\a{\\a\\a}\\a$.\n\n$\\href{javascript:alert(1)}{x} \\htmlStyle{position:fixed}{y} \\includegraphics{https://e.invalid/}$",
    "footnote": "A claim.[^src]" + "\n\nParagraph" * 60 + "\n\n[^src]: Where it comes from.",
    "diagrams": _fenced(DIAGRAM, BROKEN),
    "hostile": _fenced(*HOSTILE_DIAGRAMS),
    "code": f"```python\n{CODE}\n```",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server with one session per text, named like it."""
    folder = tmp_path_factory.mktemp("texts")
    for name, text in TEXTS.items():
        await write_long_session(folder / "makai-home", name, 1, answer=f"\n\n{text}")
    async with site_of(folder, browser) as site:
        yield site


async def test_a_table_scrolls_inside_of_itself_and_is_copied_as_csv_and_markdown(site: Site) -> None:
    async with site.window("wide-table", size=PHONE) as window:
        box = window.test_id("table").get_by_role("group")
        await expect(box.locator("tbody tr")).to_have_count(2)
        await box.focus()
        await window.page.keyboard.press("End")
        await window.page.keyboard.press("ArrowRight")
        await window.page.wait_for_function("(box) => box.scrollLeft > 0", arg=await box.element_handle())
        assert await window.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        await window.page.get_by_label("Copy as CSV").click()
        await expect(window.page.get_by_label("Copied as CSV")).to_be_visible()
        line = f"bold,link,a | b{',x' * 9}\r\n"
        assert await window.page.evaluate("navigator.clipboard.readText()") == f"{','.join(COLUMNS)}\r\n{line}{line}"
        await window.page.get_by_label("Copy as Markdown").click()
        await expect(window.page.get_by_label("Copied as Markdown")).to_be_visible()
        assert await window.page.evaluate("navigator.clipboard.readText()") == f"{HEAD}\n{ROW}\n{ROW}"
        assert await window.axe() == []


async def test_a_long_table_shows_its_rows_as_far_as_the_page_can_spare_and_the_rest_on_request(site: Site) -> None:
    async with site.window("long-table") as window:
        await expect(window.page.locator("tbody tr")).to_have_count(3_000)
        await window.page.get_by_role("button", name="Show more (1,000 of 4,000 rows)").click()
        await expect(window.page.locator("tbody tr")).to_have_count(4_000)
        await expect(window.test_id("table").locator("figcaption")).to_contain_text("4,000 rows")


async def test_the_columns_of_a_tall_table_are_in_line_from_its_header_to_its_last_row(site: Site) -> None:
    async with site.window("tall-table", size=PHONE) as window:
        box = window.test_id("table").get_by_role("group")
        await expect(box.locator("tbody tr")).to_have_count(401)
        last = box.get_by_role("row", name="last a | b beyond the header")
        await last.scroll_into_view_if_needed()
        left = "(row) => [...row.children].map((cell) => cell.getBoundingClientRect().left)"
        header = await box.locator("thead tr").evaluate(left)
        cells = await last.evaluate(left)
        assert cells[:2] == header
        assert cells[2] > cells[1]
        assert await window.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        # Far rows (17 and 170 to 179) are known to a screen reader and to the browser's search, though not laid out.
        assert await box.get_by_role("row", name="row 17 ").count() == 11
        assert await window.axe() == []


async def test_formulas_are_set_prices_stay_text_and_a_broken_formula_shows_its_source(site: Site) -> None:
    async with site.window("formulas") as window:
        await expect(window.answers.locator(".math .katex-html")).to_have_count(4)
        await expect(window.answers.locator(".math .katex-mathml math")).to_have_count(4)
        await expect(window.answers.locator(".math.failed")).to_have_text([r"$\frac{1$", r"$\def\a{\a\a}\a$"])
        await expect(window.answers).to_contain_text("It costs $5 or $6, but")
        await expect(window.answers.locator(".math a, .math img, .math [style*=fixed]")).to_have_count(0)
        assert await window.page.evaluate("() => document.fonts.check('16px KaTeX_Main')")


async def test_a_footnote_is_followed_by_keyboard_and_back(site: Site) -> None:
    async with site.window("footnote") as window:
        mark = window.page.get_by_label("Footnote src", exact=True)
        await mark.press("Enter")
        note = window.answers.locator(".note")
        await expect(note).to_be_focused()
        await expect(note).to_be_in_viewport()
        await note.get_by_role("button").press("Enter")
        await expect(mark).to_be_focused()
        assert "#/s/" in window.page.url


async def test_a_diagram_is_a_picture_whose_code_can_be_shown(site: Site) -> None:
    async with site.window("diagrams", theme="dark") as window:
        drawn, broken = window.test_id("diagram").first, window.test_id("diagram").last
        await expect(drawn).to_have_attribute("data-state", "drawn")
        picture = drawn.get_by_role("img")
        size = await picture.evaluate("(img) => img.decode().then(() => [img.naturalWidth, img.naturalHeight])")
        assert min(size) > 50
        await drawn.get_by_role("button", name="Code", exact=True).click()
        await expect(drawn.get_by_label("Code, mermaid")).to_have_text(DIAGRAM)
        await expect(broken).to_have_attribute("data-state", "failed")
        await expect(broken).to_contain_text("This diagram cannot be drawn: Parse error on line 1")
        await expect(broken.get_by_label("Code, mermaid")).to_have_text(BROKEN)


async def test_a_hostile_diagram_runs_nothing_and_loads_nothing(site: Site) -> None:
    async with site.context() as context, site.window(context=context) as window:
        loaded: list[str] = []
        stopped: list[str | None] = []
        window.page.on("requestfinished", lambda request: loaded.append(request.url))
        window.page.on("requestfailed", lambda request: stopped.append(request.failure))
        # The browser says what the frame's policy stopped: nothing may get further than that.
        window.allow(re.compile(r"Content Security Policy|request failed: GET https://evil.invalid/\S+: csp"))
        await window.page.goto(site.address("hostile"))
        settled = window.page.locator("[data-testid=diagram]:not([data-state=drawing])")
        await expect(settled).to_have_count(len(HOSTILE_DIAGRAMS))
        assert [url for url in loaded if not url.startswith((site.server.url, "data:image/"))] == []
        assert set(stopped) <= {"csp"}
        assert await window.page.evaluate("() => window.pwned ?? null") is None
        frame = window.page.locator("iframe.diagram-frame")
        await expect(frame).to_have_attribute("sandbox", "allow-scripts")
        (child,) = [frame for frame in window.page.frames if frame.parent_frame is not None]
        reached = await child.evaluate(
            """async () => {
                const tried = (act) => { try { return String(act()); } catch (error) { return error.name; } };
                const asked = await fetch("/api/info").then((answer) => answer.status, (error) => error.name);
                return [origin, tried(() => parent.document.title), tried(() => document.cookie),
                        tried(() => localStorage.length), asked];
            }"""
        )
        assert reached == ["null", "SecurityError", "SecurityError", "SecurityError", "TypeError"]


async def test_long_code_folds_wraps_and_has_line_numbers(site: Site) -> None:
    async with site.window("code") as window:
        block = window.test_id("code-block")
        await expect(block.locator("figcaption")).to_contain_text("python")
        await expect(block.locator("code")).not_to_contain_text("value_30 ")
        await block.get_by_role("button", name="Show all 400 lines").click()
        await expect(block.locator("code")).to_contain_text("value_399 ")
        await block.get_by_role("button", name="Lines", exact=True).click()
        await expect(block.locator(".line")).to_have_count(400)
        await block.get_by_role("button", name="Wrap", exact=True).click()
        await expect(block.locator("pre")).to_have_css("white-space-collapse", "preserve")
        await expect(block.locator("pre")).to_have_css("text-wrap-mode", "wrap")
        await block.get_by_label("Copy code").click()
        await expect(block.get_by_label("Copied")).to_be_visible()
        assert await window.page.evaluate("navigator.clipboard.readText()") == CODE
        assert await window.axe() == []
        await window.page.reload()
        await expect(block.locator(".line")).to_have_count(24)
