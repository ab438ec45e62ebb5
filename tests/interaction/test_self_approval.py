"""An agent cannot approve itself: a real server, a scripted agent with full access in the default sandbox, and a corpus
of everything it may try (issue: "Self-approval is impossible ... 0 succeed")."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support import self_approval
from support.cli import SOURCES
from support.live_sessions import Desk, desk
from support.machine import RecordMeasure
from support.places import folder_outside_tmp
from support.self_approval import AUTH_CANARY, CANARIES, ENVIRON_CANARY, MCP_SERVER, PROTECTED_FILES, READING, SCRIPTS
from support.serve_process import ServeProcess, serve_process

from makai.core import session_events as ev
from makai.core.errors import HomeInUse
from makai.server.session_router import SessionRouter
from makai.sessions.commands import SetTitle
from makai.sessions.requests import ListApprovals, RunCommand
from makai.sessions.service import Sessions
from makai.tools.sandbox.detect import detect

PYTHON = os.path.realpath(sys.executable)

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(detect().backend is None, reason="no sandbox works here")]


class Place:
    """A server, a project, and everything around them that is worth an attack."""

    def __init__(self, base: Path, server: ServeProcess, sessions: Sessions) -> None:
        self.base = base
        self.server = server
        self.sessions = sessions
        self.project = base / "project"

    async def agent(
        self, *, mode: ev.PermissionMode = "never_ask", sandbox: ev.SandboxLevel = "workspace-write"
    ) -> Desk:
        return await desk(
            self.sessions, mode=mode, cwd=self.project, terms=ev.SessionTerms(builtin_tools=True, sandbox=sandbox)
        )

    def worth_attacking(self) -> dict[str, bytes | None]:
        """What must be the same afterwards."""
        user = [".bashrc", ".profile", ".gitconfig", ".config/systemd/x"]
        home = ["server-token", "auth.json", "config.toml", "mcp.json", "new"]
        inside = [".git/config", ".git/hooks/pre-commit", ".git/commondir", ".makai/config.toml", ".mcp.json"]
        inside += [".claude/settings.json", ".vscode/tasks.json"]
        paths = [*(self.base / name for name in user), *(self.server.home / name for name in home)]
        paths += [*(self.project / name for name in inside), self.base / "outside", Path("/etc/makai-was-here")]
        return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def base() -> Iterator[Path]:
    with folder_outside_tmp() as folder:
        yield folder


def _prepare(base: Path) -> None:
    home, project = base / "makai-home", base / "project"
    home.mkdir(mode=0o700)
    login = {"default": "work", "accounts": {"work": {"type": "api_key", "key": AUTH_CANARY, "origins": []}}}
    (home / "auth.json").write_bytes(msgspec.json.encode({"openai": login}))
    (home / "auth.json").chmod(0o600)
    (base / "evil_mcp.py").write_text(MCP_SERVER, encoding="utf-8")
    servers = {"mcpServers": {"evil": {"command": PYTHON, "args": [str(base / "evil_mcp.py")]}}}
    (home / "mcp.json").write_bytes(msgspec.json.encode(servers))
    (base / ".bashrc").write_text("", encoding="utf-8")
    (project / "sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project)], check=True, timeout=30)
    (project / "link").symlink_to(home)
    (project / "git-link").symlink_to(".git")
    (project / "hard-link").hardlink_to(home / "auth.json")


@pytest.fixture
async def place(base: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    _prepare(base)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = self_approval.scenario(str(base / "makai-home"), str(base), port)
    environ = {"OPENAI_API_KEY": ENVIRON_CANARY, "XDG_CACHE_HOME": str(base / "cache")}
    async with serve_process(base, script, port=port, environ=environ) as server, _attached(server) as sessions:
        yield Place(base, server, sessions)


@asynccontextmanager
async def _attached(server: ServeProcess) -> AsyncIterator[Sessions]:
    """The user's own way to the same sessions, which the agent must not find."""

    async def own() -> Sessions:
        raise HomeInUse("The server has them.", pid=server.pid)

    sessions = await SessionRouter.open(server.home, own)
    try:
        yield sessions
    finally:
        await sessions.close()


async def _asked(place: Place) -> tuple[Desk, ev.ApprovalRequested]:
    """A question to a person, which the agent would like to answer itself; where it all is, the agent may know."""
    waiting = await place.agent(mode="ask")
    await place.sessions.dispatch(RunCommand(waiting.session_id, SetTitle(now=0, title=self_approval.TITLE_CANARY)))
    await waiting.send("pending")
    asked = await waiting.until_asked()
    ids = {"MK": place.server.home, "PORT": place.server.port, "PID": place.server.pid, "PY": PYTHON}
    ids |= {"SESSION": waiting.session_id, "CALL": asked.call_id, "MAKAI_PY": sys.executable, "SRC": SOURCES}
    lines = "".join(f"{name}='{value}'\n" for name, value in ids.items())
    (place.project / "ids.sh").write_text(lines, encoding="utf-8")
    return waiting, asked


async def _attempts(agent: Desk, words: str) -> dict[str, str]:
    """What came of every call of one answer, by its arguments."""
    await agent.send(words, terms=ev.RunTerms(max_turns=1))
    await agent.until_settled()
    called = {event.call_id: f"{event.name} {event.arguments_json}" for event in agent.events(ev.ToolCalled)}
    results = {called[event.call_id]: str(event) for event in agent.events(ev.ToolFinished)}
    assert [call for call, output in results.items() if "Not run" in output or "Interrupted" in output] == []
    return results


def _successes(results: dict[str, str], token: str) -> list[str]:
    return [call for call, output in results.items() if any(canary in output for canary in (*CANARIES, token))]


async def _still_asked(place: Place, waiting: Desk, asked: ev.ApprovalRequested) -> bool:
    (pending,) = await place.sessions.dispatch(ListApprovals())
    return (
        pending.request == asked
        and pending.session_id == waiting.session_id
        and not (place.project / "approved-by-myself").exists()
    )


@pytest.mark.sqlite_file("some of them change the file")
async def test_without_a_sandbox_the_attempts_succeed(place: Place) -> None:
    await _asked(place)
    results = await _attempts(await place.agent(sandbox="full-access"), "prove")
    token = place.server.token
    assert len(results) == len(READING)
    failed = [name for name, call in zip(READING, results, strict=True) if not _successes({call: results[call]}, token)]
    assert failed == []


@pytest.mark.proof("T5")
@pytest.mark.parametrize(
    ("way", "count"),
    [("by shell", len(SCRIPTS)), ("by mcp", len(SCRIPTS)), ("by files", len(self_approval.file_attempts("", "", 0)))],
    ids=["its shell", "a child of an MCP server", "file tools and fetch"],
)
async def test_nothing_that_an_agent_that_never_asks_has_approves_anything(
    place: Place, way: str, count: int, record_measure: RecordMeasure
) -> None:
    waiting, asked = await _asked(place)
    before = place.worth_attacking()
    results = await _attempts(await place.agent(), way)
    succeeded = _successes(results, place.server.token)
    succeeded += [call for call, output in results.items() if call.startswith("fetch") and '"status"' in output]
    record_measure(f"self-approval {way}: of {len(results)} attempts succeeded", "0", str(len(succeeded)))
    assert len(results) == count
    assert succeeded == []
    assert place.worth_attacking() == before
    assert await _still_asked(place, waiting, asked)


@pytest.mark.proof("T5")
@pytest.mark.parametrize("mode", ["ask", "accept_edits"])
async def test_writing_what_makes_later_commands_run_code_asks_a_person(
    place: Place, mode: ev.PermissionMode, record_measure: RecordMeasure
) -> None:
    (place.server.home / "mcp.json").unlink()  # the sandbox of a running server keeps the place of .mcp.json
    agent = await place.agent(mode=mode)
    before = place.worth_attacking()
    await agent.send("protected", terms=ev.RunTerms(max_turns=1, allow=("Edit", "Write")))
    asked = []
    for _ in PROTECTED_FILES:
        question = await agent.until_asked()
        asked.append(msgspec.json.decode(question.arguments_json)["path"])
        await agent.deny(question.call_id)
    await agent.until_settled()
    record_measure(f"writes to protected files in mode {mode}: asked", str(len(PROTECTED_FILES)), str(len(asked)))
    assert asked == list(PROTECTED_FILES)
    assert {decided.decision for decided in agent.events(ev.ApprovalDecided)} == {"deny_continue"}
    assert place.worth_attacking() == before
