"""The question whether a folder is trusted: the answer is about what was shown."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.live_sessions import owned_sessions

from makai.cli.line_reader import LineReader
from makai.cli.terminal import folder_trust
from makai.cli.terminal.slash_commands import COMMANDS
from makai.cli.terminal.styled_text import Lines
from makai.sessions.requests import GetTrust, IsTrusted

GOOD, EVIL = (json.dumps({"mcpServers": {"a": {"command": name}}}) for name in ("good", "evil"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".mcp.json").write_text(GOOD)
    return folder


async def test_files_that_change_while_a_person_reads_are_asked_about_again(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    asked = 0

    async def next_line(_: object) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.to_thread((project / ".mcp.json").write_text, EVIL)
        return "y" if asked == 1 else "n"

    monkeypatch.setattr(folder_trust, "sys", SimpleNamespace(stdin=_Terminal(), stdout=_Terminal()))
    monkeypatch.setattr(folder_trust, "tell", lambda text, end="": said.append(text))
    monkeypatch.setattr(LineReader, "next", next_line)
    async with owned_sessions(tmp_path, "echo") as sessions:
        is_trusted = await folder_trust.ask_about_trust(sessions, str(project))
        known = await sessions.dispatch(GetTrust(str(project)))

    question = "They can instruct the agent and start programs. Do you trust this folder? [y/N] "
    files = "\nThis folder has project files: .mcp.json."
    assert said == [
        *(files, "  MCP server a: runs good", question, folder_trust.CHANGED_MEANWHILE),
        *(files, "  MCP server a: runs evil", question, folder_trust.NOT_TRUSTED),
    ]
    assert (is_trusted, known.trusted) == (False, False)


async def test_trust_yes_counts_for_what_the_command_showed_before(tmp_path: Path, project: Path) -> None:
    async with owned_sessions(tmp_path, "echo") as sessions:
        chat = SimpleNamespace(sessions=sessions, cwd=str(project), seen_project_files={})
        unseen = await _trust(chat, "yes")
        (project / ".mcp.json").write_text(EVIL)
        changed = await _trust(chat, "yes")
        decided = [await sessions.dispatch(IsTrusted(str(project)))]
        await _trust(chat, "yes")
        decided.append(await sessions.dispatch(IsTrusted(str(project))))

    assert "  MCP server a: runs good" in unseen
    assert "  MCP server a: runs evil" in changed
    assert [lines[-1].startswith("Nothing was decided") for lines in (unseen, changed)] == [True, True]
    assert decided == [False, True]


class _Terminal:
    def isatty(self) -> bool:
        return True


async def _trust(chat: SimpleNamespace, argument: str) -> list[str]:
    command = next(each for each in COMMANDS if each.name == "trust")
    pieces = await command.action(chat, argument)  # type: ignore[arg-type]
    return [
        "".join(span.text for span in line)
        for piece in pieces or ()
        if isinstance(piece, Lines)
        for line in piece.lines
    ]
