"""The law of a run: whatever the program writes and wherever it ends, every prompt is answered or fails, once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.claude_lab import CAPTURES, ClaudeLab, MemoryClaude, SilentClient, recorded
from support.scripted_claude import ClaudeSettings

from makai.core import session_events as ev
from makai.core.errors import AgentFailed
from makai.harness.claude_code.process import ClaudeProcess
from makai.harness.claude_code.translator import ClaudeTranslator
from makai.harness.claude_code.turn_results import ClaudeTurnResult
from makai.wire.acp.common import TextBlock

LINES = {name: recorded(name) for name in CAPTURES}
SETTLES_WITHIN_S = 6.0


async def prompted(lines: list[bytes]) -> tuple[list[ClaudeTurnResult | AgentFailed], float]:
    """The answers to prompts until the program has ended, and how long the slowest took. It ends after these lines."""
    texts = tuple(line.decode("utf-8", "surrogateescape") for line in lines)
    transport = MemoryClaude([], {}, ClaudeSettings(lines=texts))
    ends: list[AgentFailed] = []
    process = ClaudeProcess("Claude Code", transport, SilentClient(), "s", "/nowhere", ends.append)
    answers: list[ClaudeTurnResult | AgentFailed] = []
    slowest = 0.0
    try:
        while not process.has_ended:
            began = time.monotonic()
            try:
                answers.append(await asyncio.wait_for(process.prompt((TextBlock(text="Hi"),)), SETTLES_WITHIN_S))
            except AgentFailed as failed:
                answers.append(failed)
            slowest = max(slowest, time.monotonic() - began)
    finally:
        await process.close()
    assert len(ends) == 1
    assert not [task for task in asyncio.all_tasks() if "asks" in task.get_name()]
    return answers, slowest


@pytest.mark.req("DM-PROV-003")
@pytest.mark.parametrize("name", CAPTURES)
async def test_every_prompt_of_a_recorded_stream_is_answered(name: str) -> None:
    answers, _ = await prompted(LINES[name])
    results = sum(b'"type":"result"' in line for line in LINES[name])
    assert 1 <= len(answers) <= results + 1
    assert sum(isinstance(answer, ClaudeTurnResult) for answer in answers) <= max(results, 1)


@pytest.mark.parametrize("name", CAPTURES)
async def test_a_program_that_ends_after_any_line_settles_its_prompt(name: str) -> None:
    for cut in range(len(LINES[name])):
        answers, _ = await prompted(LINES[name][:cut])
        assert answers
        if not any(b'"type":"result"' in line for line in LINES[name][:cut]):
            assert [type(answer) for answer in answers] == [AgentFailed]


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """A recorded stream with lines cut, damaged, doubled, moved and mixed with those of another."""
    lines = list(LINES[draw(st.sampled_from(CAPTURES))])
    rng = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 6))):
        at = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
            case 1:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 2:
                lines.pop(at)
            case 3:
                lines.insert(at, rng.choice(LINES[rng.choice(CAPTURES)]))
            case 4:
                where = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:where] + rng.randbytes(3).replace(b"\n", b"") + lines[at][where:]
            case 5:
                swap = (b'"', b"null,") if rng.random() < 0.5 else (b":{", b":[")
                lines[at] = lines[at].replace(*swap, 1)
            case _:
                for old, new in ((b"true", b"7"), (b'"text"', b'"hologram"'), (b"null", b"{}"), (b"success", b"error")):
                    lines[at] = lines[at].replace(old, new) if rng.random() < 0.5 else lines[at]
        lines = lines or [b"{}"]
    return lines


@settings(max_examples=1_000, deadline=None)
@given(mutated())
def test_a_damaged_stream_settles_every_prompt_in_time(lines: list[bytes]) -> None:
    answers, slowest = asyncio.run(prompted(lines))
    assert answers
    assert slowest < SETTLES_WITHIN_S


@pytest.mark.req("DM-PROV-003")
async def test_a_run_settles_once_wherever_the_program_ends(tmp_path: Path) -> None:
    lines = [line.decode() for line in LINES["duplex_permission"]]
    first_result = next(at for at, line in enumerate(lines) if '"type":"result"' in line)
    for cut in range(0, first_result + 2, 3):
        folder = tmp_path / str(cut)
        folder.mkdir()
        async with ClaudeLab(folder, lines=tuple(lines[:cut])).session(mode="never_ask") as (_, desk):
            settled = await desk.run("say Hi")
            assert len(desk.events(ev.RunFinished)) + len(desk.events(ev.RunFailed)) == 1
            assert isinstance(settled, ev.RunFinished) == (cut > first_result)
            called = [call.call_id for call in desk.events(ev.ToolCalled)]
            assert sorted(one.call_id for one in desk.events(ev.ToolFinished)) == sorted(called)


def test_a_line_costs_little() -> None:
    """The bar is 20 µs per line; a loaded machine gets some more."""
    lines = [line for _ in range(20) for line in LINES["duplex_permission"]]
    times: list[float] = []
    for _ in range(5):
        translator, began = ClaudeTranslator(), time.perf_counter()
        for line in lines:
            translator.feed(line)
        times.append((time.perf_counter() - began) / len(lines) * 1e6)
    assert min(times) < 40, times


def test_the_driver_is_imported_when_it_is_used() -> None:
    code = (
        "import sys; import makai.sessions.owner, makai.harness.acp.driver; "
        "print([name for name in sys.modules if 'claude_code' in name or 'harness.amp' in name])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == "[]\n"
