"""`/prompts` in a chat: the prompts of a real MCP server are listed and sent, and what is missing is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.live_sessions import SCENARIO_MODEL, scripted_models
from support.plain_mcp import PYTHON, SERVER

from makai.catalog.model_ref import ref_of
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.slash_commands import carry_out
from makai.cli.terminal.styled_text import plain
from makai.core.errors import InvalidRequest
from makai.core.session_events import Logged, RunTerms, SessionTerms, UserInput
from makai.sessions.log.encoding import decoded
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, GetPrompt, ReadEvents


@asynccontextmanager
async def chatting(tmp_path: Path, *, with_server: bool = True) -> AsyncIterator[ChatSession]:
    (tmp_path / "home").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/server.py").write_text(SERVER)
    if with_server:
        entry = {"command": PYTHON, "args": ["-I", str(tmp_path / "folder/server.py")]}
        (tmp_path / "home/mcp.json").write_text(json.dumps({"mcpServers": {"docs": entry}}))
    async with scripted_models(tmp_path, "say: Done.") as models:
        sessions = await OwnedSessions.open(tmp_path / "home", models, log=MemoryLog())
        try:
            model = models.resolve(SCENARIO_MODEL)
            terms = SessionTerms(builtin_tools=True, sandbox="full-access")
            wanted = CreateSession(model_ref=ref_of(model), cwd=str(tmp_path / "folder"), terms=terms)
            async with asyncio.timeout(120):
                yield ChatSession(
                    sessions, models, wanted, lambda _: None, me="t", finished_length=len, run_terms=RunTerms()
                )
        finally:
            await sessions.close()


async def test_prompts_are_listed_and_sent_as_a_message(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        shown = plain(await carry_out(chat, "prompts", ""))
        assert shown.splitlines()[0] == "docs/summary topic=… [length=…]  Sum\\x1b[2J up."
        assert await carry_out(chat, "prompts", 'docs/summary topic="two words" length=3') == []
        assert chat.session_id is not None
        events = decoded(await chat.sessions.dispatch(ReadEvents(chat.session_id)))

    said = [logged.event for logged in events if isinstance(logged, Logged)]
    sent = [event.content for event in said if isinstance(event, UserInput)]
    assert sent == ['Summarise {"length": "3", "topic": "two words"}']


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("docs/summary", "docs/summary: topic is missing."),
        ("docs/summary topic=a colour=b", "docs/summary: it has no colour."),
        ("docs/other", "there is no prompt docs/other."),
        ("docs/summary topic='a", "a quotation mark is missing."),
    ],
)
async def test_what_cannot_be_sent_says_why(tmp_path: Path, argument: str, problem: str) -> None:
    async with chatting(tmp_path) as chat:
        with pytest.raises(InvalidRequest) as refused:
            await carry_out(chat, "prompts", argument)

    assert refused.value.message == problem


async def test_without_servers_there_are_no_prompts(tmp_path: Path) -> None:
    async with chatting(tmp_path, with_server=False) as chat:
        assert plain(await carry_out(chat, "prompts", "")).strip() == "No MCP server of this session offers prompts."
        with pytest.raises(InvalidRequest, match="no MCP servers"):
            await chat.sessions.dispatch(GetPrompt(await chat.begun(), "docs", "summary"))
