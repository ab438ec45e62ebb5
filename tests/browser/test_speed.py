"""How fast and how light the page is, measured in the browser while it works."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest
from playwright.async_api import Browser, CDPSession, Response, expect
from support.browser import Site, Window, site_of
from support.long_session import write_long_session
from support.machine import RecordMeasure, slack
from support.profiles import FAULTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXCHANGES = 2_500
KEYS = 200 if FAULTS else 60
ANSWERS = 100 if FAULTS else 4
SLACK = 1 if FAULTS else 6
"""`make test` runs these beside other tests and shows what it measured; the bars themselves are for `make faults`."""
DELTAS = 1_000
"""Of one answer."""

# Notes when the transcript was complete and its last message drawn, counted from the start of the navigation.
WATCH_FOR_THE_LAST = """
new MutationObserver((_, observer) => {
    const box = document.querySelector("[data-testid=transcript]");
    const last = [...document.querySelectorAll("[data-testid=assistant-message]")].at(-1);
    if (box?.dataset.items !== "ITEMS" || !last?.textContent.includes("answer LAST.")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.completeAt = performance.now(); }));
}).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
"""
# Event timing: from the press of a key to the next painted frame. Shorter than 16 ms is not reported.
WATCH_KEYS = """() => {
    window.slowKeys = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (entry.name === "keydown") window.slowKeys.push(entry.duration);
    }).observe({ type: "event", durationThreshold: 16 });
}"""


async def test_a_session_of_5000_messages_is_complete_within_a_second_of_a_reload(
    browser: Browser, tmp_path: Path, record_measure: RecordMeasure
) -> None:
    await write_long_session(tmp_path / "makai-home", "long", EXCHANGES)
    script = WATCH_FOR_THE_LAST.replace("ITEMS", str(EXCHANGES * 2)).replace("LAST", str(EXCHANGES - 1))
    async with site_of(tmp_path, browser) as site, site.window("long") as window:
        await window.page.add_init_script(script)
        took = []
        for _ in range(3):
            await window.page.reload()
            await window.page.wait_for_function("() => window.completeAt !== undefined")
            took.append(await window.page.evaluate("() => window.completeAt"))
        record_measure("reload to the full transcript of 5,000 messages", "< 1,000 ms", f"{min(took):.0f} ms")
        assert min(took) < 1_000 * SLACK * slack(), took
        # All of it is there, although only what is near the screen is drawn.
        drawn = await window.test_id("user-message").count()
        assert 0 < drawn < 300
        await window.test_id("transcript").evaluate("(box) => box.scrollTo(0, 0)")
        await expect(window.page.get_by_text("question 0", exact=True)).to_be_visible()
        await window.press("g")
        await expect(window.page.get_by_text(f"answer {EXCHANGES - 1}", exact=True)).to_be_visible()


async def test_what_is_too_long_for_a_snapshot_comes_when_the_reader_scrolls(browser: Browser, tmp_path: Path) -> None:
    await write_long_session(tmp_path / "makai-home", "longer", 1_500, answer="x" * 4_000)
    async with site_of(tmp_path, browser) as site, site.window("longer") as window:
        transcript = window.test_id("transcript")
        await expect(window.page.get_by_text("answer 1499", exact=True)).to_be_visible()
        loaded = int(await transcript.get_attribute("data-items") or 0)
        assert loaded < 3_000
        async with asyncio.timeout(40):
            while await window.page.get_by_text("question 0", exact=True).count() == 0:
                await transcript.evaluate("(box) => { box.scrollTop = 0; }")
                await window.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
        await expect(transcript).to_have_attribute("data-items", "3000")
        questions = await window.test_id("user-message").all_inner_texts()
        assert [text.split()[-1] for text in questions[:3]] == ["0", "1", "2"]


def _essay(words: int) -> str:
    """Parts of a hundred words, as a model that writes at length would say them."""
    lines = [
        f"## Part {number}" if number % 9 == 8 else " ".join(f"word{number}x{place}" for place in range(12))
        for number in range(words // 12)
    ]
    return "\n  ".join(lines)


async def _typed(window: Window) -> tuple[float, float, float]:
    """Type; how long a key took at the 95th percentile and at worst, in ms, and the words that came in per second."""
    before = len((await window.answers.inner_text()).split())
    start = await window.page.evaluate("() => performance.now()")
    await window.page.evaluate(WATCH_KEYS)
    await window.composer.press_sequentially("x" * KEYS, delay=25)
    await expect(window.composer).to_have_value("x" * KEYS)
    seconds = (await window.page.evaluate("() => performance.now()") - start) / 1000
    rate = (len((await window.answers.inner_text()).split()) - before) / seconds
    slow: list[float] = await window.page.evaluate("() => window.slowKeys")
    every = sorted([*slow, *[16.0] * (KEYS - len(slow))])
    return every[int(KEYS * 0.95)], every[-1], rate


@pytest.mark.alone
@pytest.mark.scaled
@pytest.mark.timeout(300)
async def test_typing_stays_quick_while_words_stream_in(site: Site, record_measure: RecordMeasure) -> None:
    site.script(f"pace: 4ms\nsay: {_essay(60_000)}")
    async with site.window(await site.session()) as window:
        await window.say("Go on")
        await expect(window.answers).to_contain_text("Part 8")
        # Whatever else this machine does can only add: the best of three counts.
        tries: list[tuple[float, float, float]] = []
        while len(tries) < 3 and not any(p95 < 50 and worst < 80 for p95, worst, _ in tries):
            await window.composer.fill("")
            tries.append(await _typed(window))
        p95, worst, rate = min(tries, key=lambda one: one[1])
        found = f"{p95:.0f} ms, worst {worst:.0f} ms, at {rate:.0f} deltas/s"
        record_measure("a key to the next frame while text streams in", "p95 < 50 ms, worst < 80 ms", found)
        await window.page.keyboard.press("Escape")
        await expect(window.test_id("notice")).to_have_text("Stopped.")
        assert p95 < 50 * SLACK * slack(), tries
        assert worst < 80 * SLACK * slack(), tries


async def _heap(window: Window) -> tuple[float, int]:
    """Megabytes in use after a garbage collection, and the nodes of the document."""
    devtools = await window.devtools()
    await devtools.send("HeapProfiler.collectGarbage")
    used = await devtools.send("Runtime.getHeapUsage")
    await devtools.detach()
    nodes: int = await window.page.evaluate("() => document.querySelectorAll('*').length")
    return used["usedSize"] / 1e6, nodes


@pytest.mark.alone
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_the_tab_does_not_grow_with_what_streams_through_it(site: Site, record_measure: RecordMeasure) -> None:
    site.script(f"pace: 1ms\nrepeat: {DELTAS} words,")
    async with site.window(await site.session()) as window:
        held: list[tuple[float, int]] = []
        for number in range(ANSWERS):
            await window.say(f"Answer number {number}")
            # Without the number of items the answer before this one, and a page that has not sent yet, would do.
            await expect(window.test_id("transcript")).to_have_attribute("data-items", str(2 * (number + 1)))
            await expect(window.answers.last).to_have_attribute("aria-busy", "false")
            await window.idle()
            held.append(await _heap(window))
        early = max(1, ANSWERS // 5)
        (first, _), (last, nodes) = held[early - 1], held[-1]
        found = f"{first:.1f} MB after {early * DELTAS:,}, {last:.1f} MB after {ANSWERS * DELTAS:,}"
        record_measure("heap of the tab while deltas stream through it", "grows <= 5 MB", found)
        assert last - first <= 5, held
        assert nodes < 3_000


WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });
"""
HOSTILE = {
    "a table of 6,000 columns": "|" + "a|" * 6_000 + "\n|" + "-|" * 6_000 + "\n" + "|\n" * 12_500,
    "a table of 8,000 rows": "|a|b|\n|-|-|\n" + "|1|2|\n" * 8_000,
    "a table of 60 columns": "|" + "a|" * 60 + "\n|" + "-|" * 60 + "\n" + ("|" + "b|" * 60 + "\n") * 400,
    "marks in one paragraph": "*a_[b](\n" * 6_000,
    "a list of 12,000 items": "- a\n" * 12_000,
    "a list item of 25,000 lines": "- a\n" + "b\n" * 25_000,
    "20,000 paragraphs": "a\n\n" * 20_000,
    "1,000,000 characters": "word *a* `b` [c](https://d.example) " * 28_000,
}


@pytest.mark.parametrize("shape", HOSTILE)
async def test_no_answer_freezes_the_page(
    browser: Browser, tmp_path: Path, shape: str, record_measure: RecordMeasure
) -> None:
    answer = f"\n\n{HOSTILE[shape]}\n\nend of it"
    await write_long_session(tmp_path / "makai-home", "hostile", 1, answer=answer)
    async with site_of(tmp_path, browser) as site, site.window("hostile") as window:
        await window.page.add_init_script(WATCH_TASKS)
        await window.page.reload()
        await window.page.wait_for_function("() => /end of it|Show more/.test(document.body.textContent)")
        await window.idle()
        longest: float = await window.page.evaluate("() => window.longest")
        record_measure(f"longest task of the page for {shape}", "< 200 ms", f"{longest:.0f} ms")
        assert longest < 200 * SLACK * slack()


def _table(row: str) -> str:
    """A table of 50 kB; `row` gets its number."""
    rows = [row.format(number=number) for number in range(50_000 // len(row.format(number=1_000)))]
    return "| one | two | three | four |\n|---|---|---|---|\n" + "\n".join(rows)


TABLES = {
    "text": _table("| value {number} | value | some words of it | {number} |"),
    "marks": _table("| **bold {number}** | `code` | [link](https://example.org/{number}) | *one* and ~~two~~ |"),
}


async def _cpu_ms(metrics: CDPSession) -> float:
    """CPU time of the page's main thread: what other programs do to the clock is not in it."""
    found = await metrics.send("Performance.getMetrics")
    seconds: float = next(one["value"] for one in found["metrics"] if one["name"] == "TaskDuration")
    return seconds * 1_000


@pytest.mark.parametrize("kind", TABLES)
async def test_a_table_of_50_kb_is_drawn_in_under_200_ms(
    browser: Browser, tmp_path: Path, kind: str, record_measure: RecordMeasure
) -> None:
    home = tmp_path / "makai-home"
    await write_long_session(home, "short", 1)
    await write_long_session(home, "table", 1, answer=f"\n\n{TABLES[kind]}\n\nend of it")
    rows = TABLES[kind].count("\n") - 1
    async with site_of(tmp_path, browser) as site, site.window("short") as window:
        metrics = await window.devtools()
        await metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
        took = []
        for _ in range(3):
            await window.idle()
            before = await _cpu_ms(metrics)
            await window.page.evaluate("() => { location.hash = '#/s/table'; }")
            await window.page.wait_for_function("(n) => document.querySelectorAll('tbody tr').length === n", arg=rows)
            await window.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
            took.append(await _cpu_ms(metrics) - before)
            await window.page.evaluate("() => { location.hash = '#/s/short'; }")
            await expect(window.page.locator("tbody tr")).to_have_count(0)
        await metrics.detach()
        record_measure(f"CPU to open a session with a table of 50 kB, {kind}", "< 200 ms", f"{min(took):.0f} ms")
        assert min(took) < 200 * slack(), took


async def test_a_first_visit_loads_at_most_150_kb_of_javascript(site: Site, record_measure: RecordMeasure) -> None:
    scripts: list[Response] = []
    async with site.context() as context:
        page = await context.new_page()
        page.on("response", lambda response: scripts.append(response) if response.url.endswith(".js") else None)
        await page.goto(site.address())
        await expect(page.get_by_test_id("home")).to_be_visible()
        await expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "granted")
        size = sum([len(gzip.compress(await response.body())) for response in scripts])
    record_measure("JavaScript of a first visit, compressed", "<= 150 KB", f"{size / 1024:.0f} KB")
    assert scripts
    assert size <= 150 * 1024
