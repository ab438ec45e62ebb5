"""Servers that are killed while an answer arrives or is aborted: whatever is left, every reader has the same words."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest
from support.machine import RecordMeasure
from support.minicodex_client import BOTH, JSON, Ended, MinicodexClient, logged
from support.serve_process import ServeProcess, serve_process

ROUNDS = 20
SLOW = "pace: 3ms\nthink: Hm.\nrepeat: 100000 word"


@pytest.mark.req("MC-RUN-009", "MC-RESUME-001")
@pytest.mark.timeout(1200)
async def test_the_words_of_an_aborted_answer_are_the_same_for_all_readers_after_a_kill_at_any_moment(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    chance = random.Random(12)
    project = tmp_path / "project"
    project.mkdir()
    said: list[str] = []
    async with serve_process(tmp_path, SLOW) as server:
        for number in range(ROUNDS):
            session_id = await server.session(project)
            await begin(server, session_id, chance, aborts=number % 2 == 1)
            await server.kill()
            await server.start()
            said += await settled_words(server, session_id)
    record_measure(f"{ROUNDS} kills around an abort: aborted answers with words", "> 0", str(len(said)))
    assert said
    assert all(text == "word" * (len(text) // 4) for text in said)


async def begin(server: ServeProcess, session_id: str, chance: random.Random, *, aborts: bool) -> None:
    """An answer that has begun to arrive, for any length of time; perhaps an abort is on its way."""
    client = await server.connect(session_id, *BOTH)
    await client.hello()
    await client.ask("send", text="talk")
    await client.until("assistant_text_delta")
    if aborts:
        await client.say("abort")
    await hear_for(client, chance.uniform(0, 0.1))


async def hear_for(client: MinicodexClient, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                await client.hear()
    except (TimeoutError, Ended):
        pass


async def settled_words(server: ServeProcess, session_id: str) -> list[str]:
    """Abort what still runs; the texts of the answers, which clients of each kind and the log agree about."""
    watcher = await server.connect(session_id, *BOTH)
    snapshot = await watcher.hello()
    is_over = snapshot["run_state"]["status"] in ("finished", "error")
    if not is_over:
        # An abort that was logged before the kill settles by itself, and no further word comes.
        heard = await watcher.until(lambda frame: frame["type"] in ("assistant_text_delta", "turn_done"))
        if heard[-1]["type"] != "turn_done":
            await watcher.ask("abort")
            await watcher.until("turn_done")
    events = await log_of(server, session_id)
    said = aborted_texts(events)
    whole = [event["text"] for event in events if event["type"] == "assistant_text"]
    assert whole == said
    for names in ((), ("streaming",), BOTH):
        reader = await server.connect(session_id, *names)
        shown = (await reader.hello())["transcript"]
        reader.frames.clear()
        await reader.resume(0)
        await reader.until("turn_done")
        told = [frame["text"] for frame in logged(reader.frames) if frame["type"] == "assistant_text"]
        listed = [item["text"] for item in shown if item["type"] == "assistant_text"]
        assert told == said
        # Turns that a kill broke off are shown in part to those that know parts, before the aborted one.
        assert (listed if names != BOTH else listed[len(listed) - len(said) :]) == said
        await reader.close()
    return said


def aborted_texts(events: list[JSON]) -> list[str]:
    """What the deltas of the aborted turns say."""
    found: list[str] = []
    words: list[str] = []
    for event in events:
        if event["type"] == "turn_started":
            words = []
        elif event["type"] == "text_delta":
            words.append(event["delta"])
        elif event["type"] == "run_aborted" and words:
            found.append("".join(words))
    return found


async def log_of(server: ServeProcess, session_id: str) -> list[JSON]:
    url = f"{server.url}/api/sessions/{session_id}/export?format=jsonl"
    async with server.http.get(url, headers=dict(server.headers)) as response:
        return [msgspec.json.decode(line)["event"] for line in (await response.text()).splitlines()]
