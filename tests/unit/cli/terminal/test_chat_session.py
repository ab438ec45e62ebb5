"""A terminal is one more client of a live session: what others do there is shown, and first answers win."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.live_sessions import SCENARIO_MODEL, scripted_models

from makai.catalog.model_ref import ref_of
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.slash_commands import carry_out
from makai.cli.terminal.styled_text import Piece, plain
from makai.core.errors import InvalidRequest, SessionRefused
from makai.core.session_events import RunTerms, SessionTerms
from makai.core.version import __version__
from makai.providers.runtime import ModelRuntime
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, DeleteSession, GetState, ListSessions
from makai.sessions.service import Sessions
from makai.tools.sandbox.detect import detect

WAIT_S = 60.0
ASKS = """\
tool: write {"path": "new.txt", "content": "hello\\n"}
---
say: Done.
"""


class Watcher:
    """A terminal without a terminal: a chat, and all it was told to show."""

    def __init__(self, sessions: Sessions, models: ModelRuntime, folder: Path, name: str) -> None:
        model = models.resolve(SCENARIO_MODEL)
        wanted = CreateSession(model_ref=ref_of(model), cwd=str(folder), terms=SessionTerms(builtin_tools=True))
        self.text = ""
        self._news = asyncio.Event()
        self.chat = ChatSession(
            sessions, models, wanted, self._show, me=name, finished_length=len, run_terms=RunTerms()
        )
        self.following = asyncio.ensure_future(self.chat.follow())

    def _show(self, pieces: Sequence[Piece]) -> None:
        self.text += plain(pieces)
        self._news.set()

    async def shows(self, *texts: str) -> None:
        """Wait for each text, and forget everything up to the last."""
        for text in texts:
            async with asyncio.timeout(WAIT_S):
                while text not in self.text:
                    self._news.clear()
                    await self._news.wait()
            self.text = self.text.partition(text)[2]

    async def command(self, name: str, argument: str = "") -> str:
        """What a command says by itself."""
        return plain(await carry_out(self.chat, name, argument))


@asynccontextmanager
async def watchers(folder: Path, scenario: str, *names: str) -> AsyncIterator[list[Watcher]]:
    """Clients of the same sessions, each following its own."""
    (folder / "work").mkdir()
    async with scripted_models(folder, scenario) as models:
        sessions = await OwnedSessions.open(folder / "home", models, log=MemoryLog())
        everyone = [Watcher(sessions, models, folder / "work", name) for name in names]
        try:
            yield everyone
        finally:
            for watcher in everyone:
                watcher.following.cancel()
            await asyncio.gather(*(watcher.following for watcher in everyone), return_exceptions=True)
            await sessions.close()


async def test_a_question_is_answered_by_whoever_is_first_and_everyone_is_told(tmp_path: Path) -> None:
    async with watchers(tmp_path, ASKS, "one", "two") as (one, two):
        await one.chat.send("Write it")
        await one.shows("+ hello")
        session_id = one.chat.session_id
        assert session_id is not None
        await two.chat.open(session_id)
        await two.shows("> Write it")
        [asked] = two.chat.view.questions.values()

        await two.chat.allow(asked, "once", "")
        await one.chat.deny(asked.call_id)

        await one.shows("allowed by two", "Done.")
        await two.shows("allowed\n", "Done.")
    assert (tmp_path / "work" / "new.txt").read_text() == "hello\n"


async def test_who_comes_second_hears_that_the_question_is_answered(tmp_path: Path) -> None:
    async with watchers(tmp_path, ASKS, "one") as (one,):
        await one.chat.send("Write it")
        await one.shows("+ hello")
        [asked] = one.chat.view.questions.values()
        await one.chat.deny(asked.call_id, "no")
        await one.chat.allow(asked, "once", "")

        await one.shows("denied: no", "Someone else was faster")
    assert not (tmp_path / "work" / "new.txt").exists()


async def test_others_words_and_aborts_are_shown(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: Thinking it over\nstall", "one", "two") as (one, two):
        await one.chat.send("Hi")
        await one.shows("Thinking it over")
        assert one.chat.session_id is not None
        await two.chat.open(one.chat.session_id)
        await two.shows("Thinking it over")
        await two.chat.send("me too")
        await two.chat.abort()

        await one.shows("Stopped by two.", "> me too  (from another client)")
        await two.shows("Stopped.")
        await two.chat.abort()


async def test_own_lines_are_never_marked_as_those_of_another_client(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: ok\n---\nsay: ok\n---\nsay: ok", "one") as (one,):
        await one.chat.send("first")
        await one.chat.send("second", "steer")
        first = one.chat.session_id
        await one.shows("> first\n", "> second\n")
        forked = await one.chat.fork()
        await one.shows("> first\n", "> second\n")
        await one.chat.send("third")
        await one.shows("> third\n")
        assert first is not None
        await one.chat.open(first)
        await one.chat.open(forked)
        await one.chat.send("fourth")
        await one.shows("> fourth\n")


async def test_a_session_begins_with_the_first_message_with_what_was_set_before(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: ok", "one") as (one,):
        await one.command("mode", "plan")
        await one.command("model", "scripted/echo")
        await one.command("title", "A test")
        assert await one.chat.sessions.dispatch(ListSessions()) == []
        await one.chat.send("Hi")
        await one.shows("> Hi")

        [summary] = await one.chat.sessions.dispatch(ListSessions())
        assert (summary.mode, summary.model_ref, summary.title) == ("plan", "scripted/scripted@echo", "A test")


async def test_commands_move_between_sessions(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: ok", "one") as (one,):
        await one.chat.send("First")
        await one.shows("ok", "out")
        first = one.chat.session_id
        assert first is not None

        assert "a copy of" in await one.command("fork")
        assert one.chat.session_id not in (None, first)
        assert "begins a new session" in await one.command("new")
        assert one.chat.session_id is None
        await one.command("resume", first[:8])
        await one.shows("> First")
        assert one.chat.session_id == first
        assert f"* {first[:8]}" in await one.command("sessions")
        assert f"* {first[:8]}" in await one.command("resume")


async def test_commands_tell_and_change_what_the_session_says(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: ok\nusage: input=5 output=7", "one") as (one,):
        await one.chat.send("Hi")
        await one.shows("out")

        assert (await one.command("model")).startswith("scripted/scenario\n")
        await one.chat.next_mode()
        await one.shows("The permission mode is now accept_edits.")
        assert (await one.command("mode")).startswith("accept_edits\n")
        await one.command("title", "New")
        await one.shows("The title is now: New")
        assert await one.command("title") == "New\n"
        assert "output   7 tokens" in await one.command("cost")
        assert "is not trusted. Its project files: none." in await one.command("trust")
        assert "is trusted." in await one.command("trust", "yes")
        assert "/steer" in await one.command("help")
        with pytest.raises(InvalidRequest, match="there is no mode 'yolo'"):
            await one.command("mode", "yolo")


async def test_the_newest_queued_message_of_this_terminal_is_taken_back_and_those_of_others_run(tmp_path: Path) -> None:
    script = 'tool: shell {"command": "make"}\n---\nsay: Fine.\n---\necho'
    async with watchers(tmp_path, script, "one", "two") as (one, two):
        await one.chat.send("Hi")
        await one.shows("Run this command?")
        assert one.chat.session_id is not None
        await one.chat.send("first")
        await two.chat.open(one.chat.session_id)
        assert (len(two.chat.view.state.waiting), two.chat.own_waiting, await two.chat.take_back()) == (1, None, None)
        await one.chat.send("second")
        await two.chat.send("third")

        taken, others = await one.chat.take_back(), await two.chat.take_back()
        assert taken is not None
        assert others is not None
        assert (taken.content, others.content) == ("second", "third")
        [asked] = one.chat.view.questions.values()
        await one.chat.deny(asked.call_id)
        await one.shows("Fine.", "> first", "first\n")
        assert await one.chat.take_back() is None
        state = await one.chat.sessions.dispatch(GetState(one.chat.session_id))
        assert (state.run_counter, state.waiting) == (2, ())


async def test_a_session_tells_its_status_and_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKAI_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    async with watchers(tmp_path, f"{ASKS}usage: input=5 output=7", "one") as (one,):
        before = await one.command("status")
        await one.chat.send("Write it")
        await one.shows("+ hello")
        [asked] = one.chat.view.questions.values()
        await one.chat.allow(asked, "session", "Edit(./new.txt)")
        await one.shows("out")
        status, allowed = await one.command("status"), await one.command("permissions")

    about = [
        f"  folder   {folder} (not trusted)",
        "  agent    scripted/scenario",
        "  mode     ask: asks before it changes files or runs commands",
        "  sandbox  workspace-write: commands write only in the session's folders, without network",
    ]
    ends = f"  makai    {__version__}, files in {tmp_path / 'home'}"
    assert before.splitlines() == ["  session  begins with your first message", *about, ends]
    head = [f"  session  {one.chat.session_id}", "  title    Write it"]
    assert status.splitlines() == [*head, *about, "  used     5 in, 7 out", ends]
    assert allowed.splitlines()[2:3] == ["  allow  Edit(./new.txt)  (in this session)"]


async def test_a_session_is_exported_and_its_answer_copied(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: The **answer**.", "one") as (one,):
        for name in ("export", "copy", "rewind"):
            with pytest.raises(InvalidRequest, match=r"no conversation yet|no answer to copy yet"):
                await one.command(name)
        await one.chat.send("Hi")
        await one.shows("out")
        session_id = one.chat.the_session()
        told = await one.command("export")
        await one.command("export", "log.jsonl")
        for name, problem in (("log.jsonl", "exists already"), ("log.html", "says no format")):
            with pytest.raises(InvalidRequest, match=problem):
                await one.command("export", name)
        await one.command("copy")

    written = tmp_path / "work" / f"makai-{session_id[:8]}.md"
    log = (tmp_path / "work" / "log.jsonl").read_text().splitlines()
    assert told == f"Wrote {len(log)} events to {written}.\n"
    assert "The **answer**." in written.read_text()
    assert one.chat.copied == "The **answer**."


async def test_the_mcp_servers_of_a_session_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKAI_HOME", str(tmp_path / "home"))
    async with watchers(tmp_path, "say: ok", "one") as (one,):
        none = await one.command("mcp")
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / "mcp.json").write_text('{"mcpServers": {"files": {"command": "files-server"}}}')
        (tmp_path / "work" / ".mcp.json").write_text('{"mcpServers": {"web": {"url": "https://mcp.example/x"}}}')
        some = await one.command("mcp")

    assert none == "No MCP server is configured. Add one: `makai mcp add NAME -- COMMAND`.\n"
    assert [row.split()[:2] for row in some.splitlines()[:2]] == [["files", "(user)"], ["web", "(project)"]]


async def test_steering_is_read_by_the_active_run(tmp_path: Path) -> None:
    script = 'tool: shell {"command": "make"}\n---\necho'
    async with watchers(tmp_path, script, "one") as (one,):
        await one.chat.send("Hi")
        await one.shows("Run this command?")
        await one.command("steer", "rather not")
        [asked] = one.chat.view.questions.values()
        await one.chat.deny(asked.call_id)

        await one.shows("> rather not", "rather not\n")
        assert one.chat.view.state.run_counter == 1


@pytest.mark.skipif(detect().backend is None, reason="no sandbox works here")
async def test_a_command_that_only_looks_is_not_asked_about(tmp_path: Path) -> None:
    looks = 'tool: shell {"command": "ls -A | head -5; git status"}\n---\ntool: shell {"command": "cat /etc/passwd"}'
    async with watchers(tmp_path, looks, "one") as (one,):
        await one.chat.send("Hi")
        await one.shows("Run this command?")

        [asked] = one.chat.view.questions.values()
        assert "cat /etc/passwd" in asked.title
        await one.chat.deny(asked.call_id)


async def test_what_needs_a_conversation_says_so(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: ok", "one") as (one,):
        for name in ("fork", "compact", "undo", "redo", "diff"):
            with pytest.raises(InvalidRequest, match="no conversation yet"):
                await one.command(name)
        with pytest.raises(InvalidRequest, match="the message is missing"):
            await one.command("steer")


async def test_a_long_session_opens_with_its_newest_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.cli.terminal.chat_session.FIRST_WINDOW", 12)
    async with watchers(tmp_path, "echo", "one", "two") as (one, two):
        for number in range(5):
            await one.chat.send(f"message {number}")
            await one.shows("out")
        assert one.chat.session_id is not None
        await two.chat.open(one.chat.session_id)

        await two.shows("Earlier messages are not shown here")
        assert "message 0" not in two.text
        await two.shows("> message 4", "message 4\n")


async def test_following_ends_when_the_session_is_deleted(tmp_path: Path) -> None:
    async with watchers(tmp_path, "say: ok", "one") as (one,):
        await one.chat.send("Hi")
        await one.shows("out")
        assert one.chat.session_id is not None
        await one.chat.sessions.dispatch(DeleteSession(one.chat.session_id))

        with pytest.raises(SessionRefused):
            async with asyncio.timeout(WAIT_S):
                await one.following
