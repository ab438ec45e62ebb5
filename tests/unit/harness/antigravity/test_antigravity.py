"""Antigravity runs sessions: one process per prompt, on a terminal, without questions."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.live_sessions import Desk, owned_sessions
from support.orphan_trials import processes_with

from makai.core import session_events as ev
from makai.sessions.commands import Abort
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession

AGY = """#!{python}
import os, sys, time
flag, prompt, unasked = sys.argv[1:]
assert (flag, unasked) == ("-p", "--dangerously-skip-permissions")
assert os.isatty(1) and os.isatty(0), "a terminal is needed"
words = prompt.rpartition("</transcript>")[2].strip()
if words == "fail":
    print("no login")
    sys.exit(3)
if words == "hang":
    print("\\x1b[1mWorking\\x1b[0m", flush=True)
    time.sleep(600)
if words != "silent":
    print(f"\\x1b[32m{{len(prompt.split('User: ')) - 1}} before:\\x1b[0m {{words}}", flush=True)
"""


@asynccontextmanager
async def antigravity(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: ev.PermissionMode = "never_ask"
) -> AsyncIterator[Desk]:
    programs, work = folder / "programs", folder / "work"
    programs.mkdir()
    work.mkdir()
    (programs / "agy").write_text(AGY.format(python=sys.executable))
    (programs / "agy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    async with owned_sessions(folder, "say: Hi", MemoryLog()) as sessions:
        wanted = CreateSession(model_ref="", harness="antigravity", cwd=str(work), mode=mode)
        yield Desk(sessions, await sessions.dispatch(wanted))


async def test_its_words_are_text_and_every_prompt_brings_the_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with antigravity(tmp_path, monkeypatch) as client:
        assert await client.run("one") == ev.RunFinished(stop_reason="end_turn")
        assert await client.run("two") == ev.RunFinished(stop_reason="end_turn")
        assert [event.text for event in client.events(ev.AssistantText)] == ["0 before: one\n", "1 before: two\n"]
        assert client.events(ev.Notice) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [("fail", "Antigravity ended with exit code 3. It said last:\nno login."), ("silent", "Antigravity said nothing.")],
)
async def test_a_failure_is_said_and_the_session_stays_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    async with antigravity(tmp_path, monkeypatch) as client:
        assert await client.run(words) == ev.RunFailed(code="agent_failed", message=message)
        assert await client.run("again") == ev.RunFinished(stop_reason="end_turn")


async def test_an_abort_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with antigravity(tmp_path, monkeypatch) as client:
        await client.send("hang")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await client.do(Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert processes_with(str(tmp_path / "programs" / "agy")) == []


async def test_it_is_refused_where_makai_would_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with antigravity(tmp_path, monkeypatch, mode="ask") as client:
        failed = await client.run("one")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == "Antigravity acts without asking, and outside of makai's sandbox."
