"""The real Claude Code, driven by its own protocol on a scripted model. `make test-real` installs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.claude_lab import SilentClient
from support.directed_model import DirectedModel, directed_model
from support.live_sessions import Desk, owned_sessions
from support.machine import RecordMeasure
from support.plain_mcp import PYTHON, SERVER

from makai.client.harness.opening import open_harness
from makai.core import session_events as ev
from makai.core.usage import Usage
from makai.harness import complete
from makai.harness.acp.connection import start_process
from makai.harness.acp.known_agents import agent_of
from makai.harness.acp.peer import AgentLaunch
from makai.harness.claude_code.peer import ClaudePeer
from makai.harness.contract.one_shot import OneShotMessage, OneShotRequest
from makai.sessions import commands as cmd
from makai.sessions.requests import CreateSession
from makai.wire.acp import sessions
from makai.wire.acp.common import TextBlock

pytestmark = pytest.mark.agents
MODULES = Path(__file__).resolve().parents[2] / "build/agents/node_modules"
PACKAGE = "@anthropic-ai/claude-code"
WITHIN_S = 120
TOUCH = '[[tool Bash {"command": "touch made.txt", "description": "make a file"}]]'


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program on PATH, without the script of its package that would link it, and a home without logins."""
    programs = list(MODULES.glob(f"{PACKAGE}-linux-*/claude"))
    if not programs:
        pytest.skip("NOT TESTED: Claude Code, which `make test-real` installs")
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs[0].parent), os.environ["PATH"]]))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    for name in ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CLAUDE_CODE_MAX_RETRIES", "1")


@asynccontextmanager
async def claude(
    folder: Path, project: Path, monkeypatch: pytest.MonkeyPatch, *, terms: ev.SessionTerms | None = None
) -> AsyncIterator[tuple[DirectedModel, Desk]]:
    async with directed_model() as model, asyncio.timeout(WITHIN_S):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
        async with owned_sessions(folder, "say: Not asked.") as owned:
            wanted = CreateSession(
                model_ref="", harness="claude-code", cwd=str(project), terms=terms or ev.SessionTerms()
            )
            yield model, Desk(owned, await owned.dispatch(wanted))


def processes_of(option: str) -> list[int]:
    """The programs themselves, not what supervises them."""
    found = list[int]()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        found += [int(pid)] if words[0].endswith("/claude") and option in words else []
    return found


def said(desk: Desk) -> str:
    return "".join(text.text for text in desk.events(ev.AssistantText))


def asked_or_settled(logged: ev.Logged) -> bool:
    return isinstance(logged.event, ev.ApprovalRequested | ev.RunFinished | ev.RunFailed)


async def until_asked(desk: Desk) -> ev.ApprovalRequested:
    event = (await desk.until(asked_or_settled)).event
    assert isinstance(event, ev.ApprovalRequested), event
    return event


async def test_text_and_thinking_are_streamed_once_with_usage_and_cost(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        began = time.monotonic()
        settled = await desk.run("[[think Let me see.]] Hello")
        record_measure("claude-code: text", "yes", f"{time.monotonic() - began:.1f} s")
        assert isinstance(settled, ev.RunFinished), settled
        assert [one.text for one in desk.events(ev.Reasoning)] == ["Let me see."]
        assert said(desk) == "echo: [[think Let me see.]] Hello"
        assert (settled.usage.input, settled.usage.cache_read) == (100, 20)
        assert (settled.usage.cost_usd or 0) > 0
        assert [one.message for one in desk.events(ev.Notice)] == []
        began = time.monotonic()
        assert await desk.run("Again") == ev.RunFinished(stop_reason="end_turn", usage=settled.usage, turns=1)
        record_measure("claude-code: second prompt of a session", "yes", f"{time.monotonic() - began:.2f} s")


async def test_a_tool_runs_after_our_approval_and_not_after_a_denial(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        await desk.send(TOUCH)
        asked = await until_asked(desk)
        assert [option.kind for option in asked.options] == ["allow_once", "allow_always", "reject_once"]
        await desk.deny(asked.call_id)
        assert isinstance(await desk.until_settled(), ev.RunFinished)
        assert not (project / "made.txt").exists()
        await desk.send(TOUCH)
        await desk.approve((await until_asked(desk)).call_id)
        assert isinstance(await desk.until_settled(), ev.RunFinished)
        assert (project / "made.txt").exists()
        assert [one.is_error for one in desk.events(ev.ToolFinished)] == [True, False]
        record_measure("claude-code: tool denied, tool approved", "yes", "yes")


async def test_an_edit_shows_its_difference_and_is_allowed_for_the_session(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    path = project / "a.txt"
    path.write_text("one\ntwo\n")

    def edit(old: str, new: str) -> str:
        change = {"file_path": str(path), "old_string": old, "new_string": new}
        return f"[[tool Read {json.dumps({'file_path': str(path)})}]] [[tool Edit {json.dumps(change)}]]"

    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        await desk.send(edit("two", "2"))
        asked = await until_asked(desk)
        assert asked.diffs == (ev.FileDiff(path=str(path), old_text="two", new_text="2"),)
        always = next(option.id for option in asked.options if option.kind == "allow_always")
        await desk.do(cmd.ApproveCall(now=0, call_id=asked.call_id, by="me", option_id=always))
        assert isinstance(await desk.until_settled(), ev.RunFinished)
        assert isinstance(await desk.run(edit("one", "1")), ev.RunFinished)
        assert path.read_text() == "1\n2\n"
        assert len(desk.events(ev.ApprovalRequested)) == 1
        record_measure("claude-code: edit with difference, allowed for the session", "yes", "yes")


async def test_a_turn_is_interrupted_and_the_session_stays_usable(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        await desk.send("[[slow 400]]")
        await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        began = time.monotonic()
        await desk.do(cmd.Abort(now=0, by="me"))
        # The program counts the turn that it was interrupted in, and the message that says so.
        aborted = ev.RunFinished(stop_reason="aborted", usage=Usage(cost_usd=0.0), turns=2)
        assert await desk.until_settled() == aborted
        record_measure("claude-code: interrupted", "yes", f"{time.monotonic() - began:.2f} s")
        mark = f"--session-id={desk.events(ev.AgentSession)[-1].agent_session_id}"
        pids = processes_of(mark)
        assert isinstance(await desk.run("Still there?"), ev.RunFinished)
        assert said(desk).endswith("echo: Still there?")
        assert processes_of(mark) == pids != []


async def test_input_during_a_turn_reaches_it(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        await desk.send("[[slow 30]]")
        await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await desk.send("and this", delivery="steer")
        assert isinstance(await desk.until_settled(), ev.RunFinished)
        assert said(desk).endswith("echo: and this")
        record_measure("claude-code: input during a turn", "yes", "yes")


async def test_a_session_is_found_again_after_kill_9(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    async with claude(tmp_path, project, monkeypatch) as (model, desk):
        await desk.run("Remember 42")
        session_id = desk.events(ev.AgentSession)[-1].agent_session_id
        for pid in processes_of(f"--session-id={session_id}"):
            os.kill(pid, signal.SIGKILL)
        settled = await desk.run("What was it?")
        if isinstance(settled, ev.RunFailed):  # the prompt was sent before its end was noticed
            settled = await desk.run("What was it?")
        assert isinstance(settled, ev.RunFinished), settled
        assert [one.code for one in desk.events(ev.Notice)] == ["agent_session_resumed"]
        assert "Remember 42" in json.dumps(model.asked[-1]["messages"])
        record_measure("claude-code: resumed after kill -9", "yes", "yes")


async def test_mcp_servers_of_the_session_are_offered_to_the_model(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    terms = ev.SessionTerms(mcp_servers=(ev.McpServer(name="plain", command=PYTHON, args=("-c", SERVER)),))
    async with claude(tmp_path, project, monkeypatch, terms=terms) as (model, desk):
        settled = await desk.run("Which tools?")
        assert isinstance(settled, ev.RunFinished), settled
        names = [tool["name"] for tool in model.asked[-1]["tools"] if tool["name"].startswith("mcp__plain__")]
        assert names
        record_measure("claude-code: MCP server", "yes", ", ".join(names))


async def test_a_server_with_a_secret_works_after_its_file_is_removed(
    project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    env = [{"name": "KEY", "value": "s3cret"}]
    server = {"name": "plain", "command": PYTHON, "args": ["-c", SERVER], "env": env}
    spec = agent_of("claude-code", {})
    async with directed_model() as model, asyncio.timeout(WITHIN_S):
        environ = {**os.environ, "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-none"}
        launch = AgentLaunch(cwd=str(project), allow=("mcp__plain__echo",))
        argv = spec.argv(str(project), environ)
        peer = ClaudePeer(spec, launch, argv, spec.environment(environ), SilentClient(), start_process)
        try:
            servers = (msgspec.Raw(json.dumps(server).encode()),)
            opened = await peer.request(
                "session/new", sessions.NewSessionRequest(cwd=str(project), mcp_servers=servers)
            )
            words = (TextBlock(text='[[tool mcp__plain__echo {"text": "through"}]]'),)
            prompt = sessions.PromptRequest(session_id=opened["sessionId"], prompt=words)
            assert (await peer.request("session/prompt", prompt))["stopReason"] == "end_turn"
            assert "through" in json.dumps(model.asked[-1]["messages"][-1])
            assert peer.drift == {}
        finally:
            await peer.close()
    record_measure("claude-code: MCP call, secret in a removed file", "yes", "yes")


async def test_hooks_of_the_user_run(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    hook = {"hooks": [{"type": "command", "command": f"touch {tmp_path}/hooked"}]}
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text(json.dumps({"hooks": {"UserPromptSubmit": [hook]}}))
    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        assert isinstance(await desk.run("Hello"), ev.RunFinished)
    assert (tmp_path / "hooked").exists()
    record_measure("claude-code: hooks of the user", "yes", "yes")


async def test_a_sub_agent_is_kept_with_its_parent(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    inner = '[[tool Bash {"command": "echo from-below", "description": "d"}]] go'
    task = {"description": "look", "prompt": inner, "subagent_type": "general-purpose"}
    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        await desk.send(f"[[tool Agent {json.dumps(task)}]]")
        while isinstance(event := (await desk.until(asked_or_settled)).event, ev.ApprovalRequested):
            await desk.approve(event.call_id)
        assert isinstance(event, ev.RunFinished), event
        calls = {call.name: call for call in desk.events(ev.ToolCalled)}
        assert calls["Bash"].parent_call_id == calls["Agent"].call_id
        record_measure("claude-code: sub-agent with its parent", "yes", "yes")


async def test_failures_of_the_model_are_failures_of_the_run(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure
) -> None:
    async with claude(tmp_path, project, monkeypatch) as (_, desk):
        failed = await desk.run("[[error 529]]")
        assert isinstance(failed, ev.RunFailed)
        assert failed.code == "agent_failed"
        assert failed.message.startswith("Claude Code could not answer: API Error: 529")
        assert said(desk) == ""
        failed = await desk.run("[[error 401]]")
        assert isinstance(failed, ev.RunFailed)
        assert failed.code == "auth_required"
        assert desk.events(ev.ToolFinished) == []
        assert isinstance(desk.events(ev.Notice)[0], ev.Notice)
        record_measure("claude-code: model errors", "yes", "yes")


@pytest.mark.parametrize(
    ("prompt", "value", "is_ok"),
    [('[[tool StructuredOutput {"city": "Oslo"}]]', {"city": "Oslo"}, True), ("No city.", None, False)],
)
async def test_a_completion_takes_its_schema_to_the_model_and_its_value_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_measure: RecordMeasure,
    prompt: str,
    value: object,
    is_ok: bool,
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    async with directed_model() as model, asyncio.timeout(WITHIN_S):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
        began = time.monotonic()
        request = OneShotRequest(messages=(OneShotMessage(content=prompt),), response_schema=schema)
        result = await complete(open_harness("claude-code", home=tmp_path / "makai"), request)
        record_measure(f"claude-code: one-shot, schema kept: {is_ok}", "yes", f"{time.monotonic() - began:.1f} s")

    assert (result.structured, result.schema_ok) == (value, is_ok)
