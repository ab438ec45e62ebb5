"""Words that want to be more than words: everything a model, a tool or a title says is shown and never obeyed."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect
from support.browser import Site, Window

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTS = [
    "<script>window.pwned = 1</script>", '<img src="x" onerror="window.pwned = 1">',
    "<svg onload=window.pwned=1><script>window.pwned=1</script></svg>",
    '<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>', '<a href="javascript:window.pwned=1">press me</a>',
    "[press me](javascript:window.pwned=1)", "[press me](JaVaScRiPt&colon;window.pwned=1)",
    "[press me](data:text/html,<script>window.pwned=1</script>)", "[press me](vbscript:x)",
    "![picture](https://evil.invalid/track.png)", '![picture](x" onerror="window.pwned=1)',
    "[press me](https://good.invalid 'a\" onmouseover=\"window.pwned=1')", "<style>body { display: none }</style>",
    '<form action="https://evil.invalid"><input name="x"></form>', '<base href="https://evil.invalid/">',
    '<meta http-equiv="refresh" content="0; url=https://evil.invalid">', "`<img src=x onerror=window.pwned=1>`",
    '<math><mtext><table><mglyph><style><img src=x onerror="window.pwned=1">',
    '<div style="position:fixed;inset:0" id="composer" class="approval" data-testid="approve-once">click</div>',
]  # fmt: skip
# Everything in the document that could run, load or lead to something foreign.
LOOK = """() => {
    const SAFE_ADDRESS = /^(#|\\/|https?:|mailto:|data:image\\/(png|jpeg|gif|webp);)/i;
    const bad = [];
    for (const element of document.querySelectorAll("*")) {
        const name = element.tagName.toLowerCase();
        const inPage = element.closest("head") !== null;
        if (!inPage && ["script", "iframe", "object", "embed", "base", "meta", "style", "form", "math"].includes(name)
            && !element.querySelector("[data-testid=composer]")) bad.push(element.outerHTML.slice(0, 200));
        for (const { name: attribute, value } of element.attributes) {
            if (attribute.startsWith("on")) bad.push(`${name} ${attribute}`);
            if (["href", "src", "action"].includes(attribute) && !SAFE_ADDRESS.test(value))
                bad.push(`${name} ${attribute}=${value}`);
        }
    }
    return { bad, pwned: window.pwned ?? null, shown: getComputedStyle(document.body).display };
}"""
SAFE: dict[str, Any] = {"bad": [], "pwned": None, "shown": "block"}


async def harmless(window: Window) -> None:
    """Nothing ran, nothing foreign is in the document, and clicking on what looks like a link changes nothing."""
    assert await window.page.evaluate(LOOK) == SAFE
    for link in await window.page.get_by_text("press me").all():
        await link.hover()
        if await link.evaluate("(element) => element.closest('a') === null"):
            await link.click()
    assert await window.page.evaluate(LOOK) == SAFE


def said(texts: list[str]) -> str:
    return "".join(f"say: {text}\n" for text in texts)


async def test_markdown_is_shown_and_never_obeyed(site: Site) -> None:
    site.script("think: " + SCRIPTS[1] + "\n" + said(SCRIPTS))
    async with site.window(await site.session()) as window:
        await window.say("\n".join(SCRIPTS))
        await expect(window.answers).to_have_count(len(SCRIPTS))
        await window.idle()
        await window.test_id("reasoning").locator("summary").click()
        await expect(window.answers.first).to_contain_text(SCRIPTS[0])
        await expect(window.test_id("user-message")).to_contain_text(SCRIPTS[1])
        await harmless(window)
        links = await window.answers.locator("a").evaluate_all("(all) => all.map((a) => [a.href, a.rel, a.target])")
        assert links == [
            ["https://evil.invalid/track.png", "noopener noreferrer", "_blank"],
            ["https://good.invalid/", "noopener noreferrer", "_blank"],
        ]
        await window.page.reload()
        await expect(window.answers).to_have_count(len(SCRIPTS))
        await harmless(window)


async def test_titles_and_tool_output_are_only_text(site: Site) -> None:
    payload = SCRIPTS[1]
    (site.folder / "evil.html").write_text("\n".join(SCRIPTS), encoding="utf-8")
    (site.folder / "codes.txt").write_text("\033]0;title\007\033[31mred\033[0m\033[2J\n", encoding="utf-8")
    site.script('tool: shell {"command": "cat evil.html codes.txt; exit 3"}\n---\nsay: Done.')
    async with site.window(await site.session("never_ask")) as window:
        await window.press("r")
        await window.test_id("title-field").fill(payload)
        await window.test_id("title-field").press("Enter")
        await expect(window.test_id("session-title")).to_have_text(payload)
        await window.say("Show it")
        terminal = window.tool("shell").get_by_test_id("terminal")
        await expect(terminal).to_contain_text(SCRIPTS[0])
        await expect(terminal).to_contain_text("red")
        await expect(window.tool("shell")).to_contain_text("exit 3")
        await window.idle()
        await harmless(window)
        assert payload in await window.page.title()


async def test_a_formula_draws_nothing_outside_of_its_block(site: Site) -> None:
    site.script(r"say: $\hspace{-20em}\hspace{-12em}\colorbox{red}{Approve}$ and more words.")
    async with site.window(await site.session()) as window:
        await window.say("Show it")
        await expect(window.answers.locator(".katex-html")).to_contain_text("Approve")
        await window.idle()
        seen = await window.answers.locator(".katex-html .mord").last.evaluate(
            """(letters) => {
                const { x, y, width, height } = letters.getBoundingClientRect();
                const block = letters.closest(".block").getBoundingClientRect();
                const there = document.elementFromPoint(x + width / 2, y + height / 2);
                return { isOutside: x + width < block.left - 20, isSeen: there?.closest(".math") != null };
            }"""
        )
        assert seen == {"isOutside": True, "isSeen": False}


async def test_hidden_characters_in_a_command_that_waits_for_approval_are_spelled_out(site: Site) -> None:
    command = (
        "rm -rf ./build \\u202e#\\u2066 txt.eltit\\u2069 \\u001b[2K\\u001b[1Aecho\\u200b harmless\\u0008\\rls\\u00a0-l"
    )
    site.script(f'tool: shell {{"command": "{command}"}}\n---\nsay: No.')
    async with site.window(await site.session()) as window:
        await window.say("Clean up")
        exact = window.test_id("approval-exact")
        await expect(exact).to_have_text(
            r"rm -rf ./build \u202e#\u2066 txt.eltit\u2069 \x1b[2K\x1b[1Aecho\u200b harmless\x08\x0dls\xa0-l"
        )
        await expect(window.approval).to_contain_text("They are spelled out in red.")
        await expect(exact.locator(".hidden-character").first).to_have_text(r"\u202e")
        await window.screenshot("hidden-characters")
        shown = await window.page.evaluate("() => document.body.innerText + document.title + document.body.outerHTML")
        assert not set(shown) & set("\u202e\u2066\u2069\x1b\x08\u200b")
        await window.test_id("deny").click()
        await window.idle()
        shown = await window.page.evaluate("() => document.body.innerText + document.title + document.body.outerHTML")
        assert not set(shown) & set("\u202e\u2066\u2069\x1b\x08\u200b")


async def test_huge_tables_and_lines_of_a_megabyte_leave_the_page_usable(site: Site) -> None:
    table = "\n".join(f"  | {row} | value {row} |" for row in range(5_000))
    site.script(
        "chunk: 50000\n"
        f"say: | number | value |\n  |---|---|\n{table}\n"
        f"say: {'x' * 1_000_000}\n"
        f"say: {'*_[`' * 100_000}\n"
        "say: The end."
    )
    async with site.window(await site.session()) as window:
        await window.say("Flood me")
        await expect(window.answers.last).to_contain_text("The end.", timeout=30_000)
        await window.idle()
        await window.test_id("transcript").evaluate("(box) => box.scrollTo(0, 0)")
        await expect(window.page.locator("tbody tr")).to_have_count(3_000)
        start = await window.page.evaluate("() => performance.now()")
        await window.composer.fill("still here")
        await window.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        assert await window.page.evaluate("() => performance.now()") - start < 1_000
        await window.page.reload()
        await expect(window.answers.last).to_contain_text("The end.")
        assert await window.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("marks", ["> ", "- ", "1. "])
async def test_one_answer_that_cannot_be_laid_out_takes_no_other_with_it(site: Site, marks: str) -> None:
    site.script(f"chunk: 50000\nsay: {marks * 5_000}deep\nsay: The next one.")
    async with site.window(await site.session()) as window:
        await window.say("Nest")
        await expect(window.answers).to_have_count(2)
        await window.idle()
        await expect(window.answers.last).to_contain_text("The next one.")
        assert len(await window.answers.first.inner_text()) > 1_000


async def test_a_tool_that_prints_a_line_without_an_end_does_not_widen_the_page(site: Site) -> None:
    site.script('tool: shell {"command": "head -c 1000000 /dev/zero | tr \'\\\\0\' y"}\n---\nsay: Printed.')
    async with site.window(await site.session("never_ask")) as window:
        await window.say("Print")
        await expect(window.answers).to_contain_text("Printed.")
        await expect(window.tool("shell").get_by_test_id("terminal")).to_contain_text("yyyy")
        assert await window.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
