"""Codex itself, driven by makai through its app-server, on a scripted model on loopback.

`make test-real` installs it and runs this; see tests/agents/package.json for its version.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import struct
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.live_sessions import Desk, owned_sessions
from support.machine import RecordMeasure
from support.orphan_trials import processes_with
from support.plain_mcp import SERVER
from support.responses_model import ResponsesModel, responses_model

from makai.core import session_events as ev
from makai.core.content import Image, Text
from makai.core.request import StreamOptions
from makai.harness.codex import translator
from makai.harness.codex.launching import direct_program
from makai.sessions import commands as cmd
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession

pytestmark = pytest.mark.agents
MODULES = Path(__file__).resolve().parents[2] / "build/agents/node_modules"
WITHIN_S = 120
SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}'
CONFIG = """
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
[features]
plugins = false
apps = false
[model_providers.scripted]
name = "scripted"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codex on PATH, and a home that has none of the developer's logins. The home lies in the folder for temporary
    files, where Codex's sandbox would not work by itself."""
    if not (MODULES / "@openai/codex").is_dir():
        pytest.skip("NOT TESTED: Codex, which `make test-real` installs")
    monkeypatch.setenv("PATH", os.pathsep.join([str(MODULES / ".bin"), os.environ["PATH"]]))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex-home"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-scripted")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")


class Bench:
    """A session of Codex on the scripted model."""

    def __init__(self, sessions: OwnedSessions, model: ResponsesModel, client: Desk) -> None:
        self.sessions = sessions
        self.model = model
        self.client = client

    async def asked(self, text: str) -> ev.ApprovalRequested:
        await self.client.send(text)
        event = (await self.client.until(_is_asked_or_settled)).event
        assert isinstance(event, ev.ApprovalRequested), event
        return event

    def said(self) -> str:
        return "".join(event.text for event in self.client.events(ev.AssistantText))

    def results(self) -> list[tuple[bool, str]]:
        return [(event.is_error, _text(event.content)) for event in self.client.events(ev.ToolFinished)]


@asynccontextmanager
async def codex(
    folder: Path, project: Path, terms: ev.SessionTerms | None = None, **extra: Any
) -> AsyncIterator[Bench]:
    (folder / "codex-home").mkdir(exist_ok=True)
    async with responses_model() as model, asyncio.timeout(WITHIN_S):
        (folder / "codex-home/config.toml").write_text(CONFIG.replace("{url}", model.url))
        async with owned_sessions(folder, "say: Not asked.") as sessions:
            wanted = CreateSession(
                model_ref="", harness="codex", cwd=str(project), terms=terms or ev.SessionTerms(), **extra
            )
            yield Bench(sessions, model, Desk(sessions, await sessions.dispatch(wanted)))


def _is_asked_or_settled(logged: ev.Logged) -> bool:
    return isinstance(logged.event, ev.ApprovalRequested | ev.RunFinished | ev.RunFailed)


def _text(content: Any) -> str:
    return "".join(part.text for part in content if isinstance(part, Text))


def _is_delta(logged: ev.Logged) -> bool:
    return isinstance(logged.event, ev.AssistantTextDelta)


@pytest.mark.usefixtures("_installed")
async def test_text_and_reasoning_stream_once_with_the_usage_of_the_turn(
    tmp_path: Path, project: Path, record_measure: RecordMeasure
) -> None:
    async with codex(tmp_path, project) as bench:
        began = time.monotonic()
        settled = await bench.client.run("Hello there [[think A moment]]")
        record_measure("codex 0.166.0: text", "yes", f"{time.monotonic() - began:.1f} s")
        assert isinstance(settled, ev.RunFinished), settled
        assert (settled.stop_reason, settled.usage.input, settled.usage.cache_read, settled.usage.output) == (
            "end_turn", 80, 20, 7,
        )  # fmt: skip
        assert [event.text for event in bench.client.events(ev.Reasoning)] == ["A moment"]
        assert bench.said() == "echo: Hello there [[think A moment]]"
        assert bench.model.authorized == {"Bearer sk-scripted"}
        agent = bench.client.events(ev.AgentSession)[-1]
        assert (agent.agent, agent.version, agent.model) == ("Codex", "0.166.0", "scripted")
        assert len(agent.models) > 1


@pytest.mark.usefixtures("_installed")
async def test_a_command_runs_after_our_approval_and_not_without(tmp_path: Path, project: Path) -> None:
    command = '[[tool exec_command {"cmd": "touch made.txt && echo ran"}]]'
    async with codex(tmp_path, project) as bench:
        asked = await bench.asked(command)
        assert not (project / "made.txt").exists()
        await bench.client.deny(asked.call_id)
        assert isinstance(await bench.client.until_settled(), ev.RunFinished)
        assert not (project / "made.txt").exists()
        assert bench.results()[-1] == (True, "The call was declined.")
        asked = await bench.asked(command)
        await bench.client.approve(asked.call_id)
        assert isinstance(await bench.client.until_settled(), ev.RunFinished)
        assert (project / "made.txt").exists()
        assert bench.results()[-1] == (False, "ran\n")
        called = bench.client.events(ev.ToolCalled)[-1]
        assert (called.kind, called.title) == ("execute", "touch made.txt && echo ran")
        assert json.loads(called.arguments_json)["cwd"] == str(project)


@pytest.mark.usefixtures("_installed")
async def test_a_patch_is_shown_as_a_diff_before_it_is_applied(tmp_path: Path, project: Path) -> None:
    (project / "a.txt").write_text("one\ntwo\n")
    patch = "*** Begin Patch\\n*** Update File: a.txt\\n@@\\n one\\n-two\\n+TWO\\n*** End Patch"
    async with codex(tmp_path, project) as bench:
        asked = await bench.asked(f'[[tool exec_command {{"cmd": "apply_patch <<\'EOF\'\\n{patch}\\nEOF\\n"}}]]')
        assert asked.diffs == (
            ev.FileDiff(path=str(project / "a.txt"), old_text="one\ntwo\n", new_text="one\nTWO\n"),
        )  # fmt: skip
        await bench.client.approve(asked.call_id)
        assert isinstance(await bench.client.until_settled(), ev.RunFinished)
        assert (project / "a.txt").read_text() == "one\nTWO\n"


@pytest.mark.usefixtures("_installed")
async def test_commands_run_although_the_home_of_codex_lies_among_temporary_files(
    tmp_path: Path, project: Path
) -> None:
    """Not a test of Codex's sandbox: Codex runs an approved command again without it when the sandbox stops it."""
    (project / "seen.txt").write_text("x")
    async with codex(tmp_path, project) as bench:
        asked = await bench.asked('[[tool exec_command {"cmd": "ls"}]]')
        await bench.client.approve(asked.call_id)
        assert isinstance(await bench.client.until_settled(), ev.RunFinished)
        assert bench.results() == [(False, "seen.txt\n")]


@pytest.mark.usefixtures("_installed")
async def test_an_interrupted_turn_ends_and_its_command_ends_with_the_session(tmp_path: Path, project: Path) -> None:
    mark = f"4{os.getpid():07}"
    async with codex(tmp_path, project) as bench:
        await bench.client.send("[[slow 200]]")
        await bench.client.until(_is_delta)
        await bench.client.do(cmd.Abort(now=0, by="me"))
        assert await bench.client.until_settled() == ev.RunFinished(stop_reason="aborted")
        asked = await bench.asked(f'[[tool exec_command {{"cmd": "echo on; sleep {mark}", "yield_time_ms": 30000}}]]')
        await bench.client.approve(asked.call_id)
        await bench.client.until(lambda logged: isinstance(logged.event, ev.ToolUpdated | ev.ToolStarted))
        await bench.client.do(cmd.Abort(now=0, by="me"))
        assert isinstance(await bench.client.until_settled(), ev.RunFinished)
        assert isinstance(await bench.client.run("Still there?"), ev.RunFinished)
        assert bench.said().endswith("echo: Still there?")
    assert processes_with(mark) == []


@pytest.mark.usefixtures("_installed")
async def test_input_during_a_turn_steers_it(tmp_path: Path, project: Path) -> None:
    async with codex(tmp_path, project) as bench:
        await bench.client.send("[[slow 100]]")
        await bench.client.until(_is_delta)
        await bench.client.send("Rather this", delivery="steer")
        assert isinstance(await bench.client.until_settled(), ev.RunFinished)
        assert bench.said().endswith("echo: Rather this")
        assert len(bench.client.events(ev.RunStarted)) == 1


@pytest.mark.usefixtures("_installed")
async def test_a_killed_codex_is_started_again_with_its_memory(tmp_path: Path, project: Path) -> None:
    async with codex(tmp_path, project) as bench:
        await bench.client.run("Remember the blue house")
        await bench.client.send("[[slow 200]]")
        await bench.client.until(_is_delta)
        _kill(tmp_path / "codex-home")
        failed = await bench.client.until_settled()
        assert isinstance(failed, ev.RunFailed), failed
        assert isinstance(await bench.client.run("And now?"), ev.RunFinished)
        assert "Remember the blue house" in json.dumps(bench.model.asked[-1])
        assert [notice for notice in bench.client.events(ev.Notice) if notice.code == "agent_session_lost"] == []
        ids = {event.agent_session_id for event in bench.client.events(ev.AgentSession)}
        assert len(ids) == 1


@pytest.mark.usefixtures("_installed")
async def test_a_tool_of_an_mcp_server_runs_after_our_approval(tmp_path: Path, project: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    terms = ev.SessionTerms(
        mcp_servers=(ev.McpServer(name="plain", transport="stdio", command=sys.executable, args=(str(server),)),)
    )
    async with codex(tmp_path, project, terms) as bench:
        asked = await bench.asked('[[tool mcp__plain/echo {"text": "from the server"}]]')
        await bench.client.approve(asked.call_id)
        assert isinstance(await bench.client.until_settled(), ev.RunFinished)
        assert bench.results() == [(False, "from the server")]
        called = bench.client.events(ev.ToolCalled)[-1]
        assert (called.name, called.arguments_json) == ("mcp__plain__echo", '{"text":"from the server"}')


@pytest.mark.usefixtures("_installed")
async def test_instructions_pictures_effort_and_an_output_schema_reach_the_model(tmp_path: Path, project: Path) -> None:
    terms = ev.SessionTerms(system_append="Speak like a pirate.")
    picture = base64.b64encode(_png()).decode()
    async with codex(tmp_path, project, terms) as bench:
        options = StreamOptions(json_schema=SCHEMA, reasoning_effort="high")
        content = (Text(text='[[json {"a": 1}]]'), Image(data=picture, mime_type="image/png"))
        command = cmd.Send(now=0, input_id="one", content=content, terms=ev.RunTerms(options=options))
        await bench.client.do(command)
        settled = await bench.client.until_settled()
        assert isinstance(settled, ev.RunFinished), settled
        assert bench.said() == '{"a": 1}'
        sent = bench.model.asked[-1]
        assert sent["text"]["format"]["schema"] == json.loads(SCHEMA)
        assert "Speak like a pirate." in json.dumps(sent)
        assert sent["reasoning"]["effort"] == "high"
        assert "data:image/png;base64," in json.dumps(sent["input"])


@pytest.mark.usefixtures("_installed")
async def test_a_sub_agent_is_shown_inside_the_call_that_started_it(tmp_path: Path, project: Path) -> None:
    async with codex(tmp_path, project) as bench:
        settled = await bench.client.run('[[tool multi_agent_v1/spawn_agent {"message": "Look around"}]]')
        assert isinstance(settled, ev.RunFinished), settled
        called = bench.client.events(ev.ToolCalled)[-1]
        assert called.title == "Start an agent: Look around"
        inner = {delta.parent_call_id for delta in bench.client.events(ev.AssistantTextDelta)}
        assert inner <= {"", called.call_id}


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("code", "check"),
    [
        (401, lambda failed: failed.code == "auth_required"),
        (500, lambda failed: failed.code == "agent_failed"),
    ],
)
async def test_an_error_of_the_model_fails_the_run(
    tmp_path: Path, project: Path, code: int, check: Callable[[ev.RunFailed], bool]
) -> None:
    async with codex(tmp_path, project) as bench:
        failed = await bench.client.run(f"[[error {code}]]")
        assert isinstance(failed, ev.RunFailed)
        assert check(failed), failed
        assert isinstance(await bench.client.run("Again"), ev.RunFinished)


@pytest.mark.usefixtures("_installed")
async def test_without_a_login_the_next_step_is_named(tmp_path: Path, project: Path) -> None:
    async with codex(tmp_path, project) as bench:
        (tmp_path / "codex-home/config.toml").write_text("check_for_update_on_startup = false\n")
        failed = await bench.client.run("Hello")
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message) == ("auth_required", "Codex needs a login: it is not logged in")
        assert "codex login" in (failed.hint or "")


@pytest.mark.usefixtures("_installed")
async def test_every_notification_of_the_schema_is_known(tmp_path: Path) -> None:
    program = direct_program(str(MODULES / ".bin/codex"))
    assert program.endswith("/bin/codex")
    argv = [program, "app-server", "generate-json-schema", "--experimental", "--out", str(tmp_path / "schema")]
    made = await asyncio.create_subprocess_exec(*argv)
    assert await made.wait() == 0
    schema = json.loads((tmp_path / "schema/ServerNotification.json").read_text())
    methods = {method for each in schema["oneOf"] for method in each["properties"]["method"]["enum"]}
    strangers = {method for method in methods if not translator.is_known(method)}
    prefixes = ("thread/realtime/", "fuzzyFileSearch/", "windows")  # makai asks for none of these
    assert {method for method in strangers if not method.startswith(prefixes)} == set()


def _png() -> bytes:
    """A picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")


def _kill(home: Path) -> None:
    """Kill the app-server that uses this home, and no other."""
    found = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit() and _is_server(folder, home)]
    assert found
    for folder in found:
        os.kill(int(folder.name), signal.SIGKILL)


def _is_server(folder: Path, home: Path) -> bool:
    try:
        environ, command = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
    except OSError:
        return False
    return f"CODEX_HOME={home}".encode() in environ.split(b"\0") and command.split(b"\0")[1:2] == [b"app-server"]
