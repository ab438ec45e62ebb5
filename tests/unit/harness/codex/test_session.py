"""Sessions that run Codex: a scripted app-server as a program of its own, well and badly behaved."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import support.live_sessions
from support.live_sessions import Desk, owned_sessions
from support.orphan_trials import processes_with

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.request import StreamOptions
from makai.sessions import commands as cmd
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession

SERVER = Path(support.live_sessions.__file__).with_name("codex_server.py")
MODES: dict[str, Any] = {"mode": "never_ask"}


class CodexLab:
    """A folder with a scripted Codex on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.log = MemoryLog()
        self._program = folder / "bin/codex"
        self._program.parent.mkdir()
        self.settings(**settings)
        monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.delenv("CODEX_HOME", raising=False)

    def settings(self, **settings: Any) -> None:
        """What the next process does."""
        known = {"known": str(self.folder / "known")} | settings
        argv = [sys.executable, "-S", "-P", str(SERVER), json.dumps(known)]
        self._program.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
        self._program.chmod(0o755)

    @asynccontextmanager
    async def session(self, terms: ev.SessionTerms | None = None, **extra: Any) -> AsyncIterator[Desk]:
        async with owned_sessions(self.folder, "say: Hi", self.log) as sessions:
            given: dict[str, Any] = {"model_ref": "", "terms": terms or ev.SessionTerms()} | extra
            wanted = CreateSession(harness="codex", cwd=str(self.work), **given)
            yield Desk(sessions, await sessions.dispatch(wanted))


def said(client: Desk) -> list[str]:
    return [event.text for event in client.events(ev.AssistantText)]


def results(client: Desk) -> list[tuple[bool, str]]:
    found = client.events(ev.ToolFinished)
    return [(event.is_error, "".join(p.text for p in event.content if isinstance(p, Text))) for event in found]


async def failure(client: Desk, prompt: str) -> ev.RunFailed:
    failed = await client.run(prompt)
    assert isinstance(failed, ev.RunFailed), failed
    return failed


FINISHED = ev.RunFinished(stop_reason="end_turn")


async def test_what_codex_says_and_does_becomes_facts_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = CodexLab(tmp_path, monkeypatch)
    async with lab.session() as client:
        await client.send("say Hello\nrun c1 touch x\nsay Bye")
        asked = await client.until_asked()
        await client.approve(asked.call_id)
        assert await client.until_settled() == FINISHED
        assert client.kinds() == [
            "session_created", "run_started", "run_status", "user_message", "run_status", "agent_session",
            "title_changed", "text_delta", "assistant_text", "tool_call", "tool_updated", "approval_requested",
            "run_status", "approval_decided", "run_status", "tool_started", "tool_finished", "text_delta",
            "assistant_text", "text_delta", "assistant_text", "run_status", "run_finished",
        ]  # fmt: skip
        assert said(client) == ["Hello", "decision accept", "Bye"]
        assert results(client) == [(False, "out")]
        called = client.events(ev.ToolCalled)[0]
        assert (called.name, called.kind, called.title) == ("shell", "execute", "touch x")
        assert json.loads(called.arguments_json) == {"command": "touch x", "cwd": str(lab.work)}
        agent = client.events(ev.AgentSession)[0]
        assert (agent.agent, agent.version, agent.model, [model.id for model in agent.models]) == (
            "Codex", "0.166.0", "m1", ["m1"],
        )  # fmt: skip
        assert {"steering", "sessionCapabilities.resume", "promptCapabilities.image"} <= set(agent.capabilities)


@pytest.mark.parametrize(
    ("option", "decision"), [("once", "accept"), ("session", "acceptForSession"), ("decline", "decline")]
)
@pytest.mark.parametrize("word", ["run", "early"])
async def test_each_answer_reaches_codex_whether_it_asks_before_or_after_it_reports_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, option: str, decision: str
) -> None:
    async with CodexLab(tmp_path, monkeypatch).session() as client:
        await client.send(f"{word} c1 touch x")
        asked = await client.until_asked()
        assert [(each.id, each.kind) for each in asked.options] == [
            ("once", "allow_once"), ("session", "allow_always"), ("decline", "reject_once"),
        ]  # fmt: skip
        if option == "decline":
            await client.do(cmd.DenyCall(now=0, call_id=asked.call_id, by="me", option_id=option))
        else:
            await client.do(cmd.ApproveCall(now=0, call_id=asked.call_id, by="me", option_id=option))
        assert await client.until_settled() == FINISHED
        assert said(client) == [f"decision {decision}"]
        assert results(client) == [(True, "The call was declined.") if option == "decline" else (False, "out")]
        assert len(client.events(ev.ToolCalled)) == 1


async def test_the_mode_decides_in_the_log_and_never_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CodexLab(tmp_path, monkeypatch).session(**MODES) as client:
        assert await client.run("run c1 touch x") == FINISHED
        assert [(event.decision, event.by) for event in client.events(ev.ApprovalDecided)] == [("approve", "mode")]
        assert said(client) == ["decision accept"]


async def test_a_question_that_codex_withdraws_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CodexLab(tmp_path, monkeypatch).session() as client:
        await client.send("run c1 touch x")
        asked = await client.until_asked()
        await client.send("Never mind", delivery="steer")
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        decided = [(event.call_id, event.decision, event.by) for event in client.events(ev.ApprovalDecided)]
        assert decided == [(asked.call_id, "deny_continue", "agent")]
        assert said(client) == []


async def test_an_aborted_run_interrupts_the_turn_and_closes_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CodexLab(tmp_path, monkeypatch).session() as client:
        await client.send("slow c1")
        await client.until(lambda logged: isinstance(logged.event, ev.ToolUpdated))
        await client.do(cmd.Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        await client.send("run c2 touch x")
        await client.until_asked()
        await client.do(cmd.Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert await client.run("say Again") == FINISHED
        assert len(client.events(ev.ToolCalled)) == len(client.events(ev.ToolFinished)) == 2
    assert processes_with(str(tmp_path / "known")) == []


async def test_further_input_steers_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CodexLab(tmp_path, monkeypatch).session() as client:
        await client.send("say Ready\nsteered")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await client.send("More", delivery="steer")
        assert await client.until_settled() == FINISHED
        assert said(client) == ["Ready", "steered: More"]


async def test_a_thread_is_found_again_by_its_id_and_a_lost_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = CodexLab(tmp_path, monkeypatch)
    async with lab.session() as client:
        assert await client.run("say One") == FINISHED
        assert (await failure(client, "die 3")).message.startswith("Codex ended with exit code 3")
        assert await client.run("params") == FINISHED
        params = json.loads(said(client)[-1])["thread/resume"]
        assert (params["threadId"], params["excludeTurns"]) == (
            client.events(ev.AgentSession)[0].agent_session_id, True,
        )  # fmt: skip
        assert len({event.agent_session_id for event in client.events(ev.AgentSession)}) == 1
        await failure(client, "die 3")
        (tmp_path / "known").unlink()
        assert await client.run("say New") == FINISHED
        assert len({event.agent_session_id for event in client.events(ev.AgentSession)}) == 2
        assert [notice.code for notice in client.events(ev.Notice)] == [
            "agent_session_resumed", "agent_session_lost", "agent_got_transcript",
        ]  # fmt: skip


@pytest.mark.req("DM-SPEC-012", "DM-SPEC-013")
async def test_settings_of_the_session_and_the_run_reach_codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = ev.SessionTerms(
        sandbox="full-access",
        system_append="Be brief.",
        agent_options_json='{"model_verbosity": "low"}',
        mcp_servers=(ev.McpServer(name="files", transport="stdio", command="/bin/files", args=("-x",)),),
    )
    lab = CodexLab(tmp_path, monkeypatch)
    async with lab.session(terms, model_ref="gpt-x", roots=(str(lab.work), str(tmp_path))) as client:
        options = StreamOptions(reasoning_effort="off", json_schema='{"type":"object"}')
        assert await client.run("params", terms=ev.RunTerms(options=options)) == FINISHED
        thread = json.loads(said(client)[0])["thread/start"]
        assert thread == {
            "cwd": str(lab.work),
            "approvalPolicy": "untrusted",
            "approvalsReviewer": "user",
            "sandbox": "danger-full-access",
            "model": "gpt-x",
            "developerInstructions": "Be brief.",
            "runtimeWorkspaceRoots": [str(lab.work), str(tmp_path)],
            "config": {
                "model_verbosity": "low",
                "mcp_servers": {"files": {"command": "/bin/files", "args": ["-x"], "env": {}}},
            },
        }
        turn = json.loads(said(client)[0])["turn"]
        assert {name: turn[name] for name in ("model", "effort", "outputSchema")} == {
            "model": "gpt-x", "effort": "none", "outputSchema": {"type": "object"},
        }  # fmt: skip
        assert client.events(ev.Notice) == []


async def test_codex_sees_the_variables_that_it_needs_and_no_secret_of_makai(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"ANTHROPIC_API_KEY": "a", "MAKAI_HOME": "/m", "AWS_SECRET_ACCESS_KEY": "s", "OPENAI_API_KEY": "o"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with CodexLab(tmp_path, monkeypatch).session() as client:
        assert await client.run("env") == FINISHED
        seen = json.loads(said(client)[0])
        assert {name: seen.get(name) for name in secrets} == dict.fromkeys(secrets) | {"OPENAI_API_KEY": "o"}
        assert seen["TMPDIR"] == str(tmp_path / ".codex/makai-tmp")  # Codex's home would be below it otherwise


@pytest.mark.parametrize(
    ("settings", "prompt", "code", "message"),
    [
        ({"version": "codex-cli 0.42.0"}, "say Hi", "not_implemented", "Codex 0.42.0 is too old; makai needs 0.166.0"),
        ({"version": "Usage: codex"}, "say Hi", "agent_failed", "Codex did not say its version: Usage: codex"),
        ({"dies": 2}, "say Hi", "agent_failed", "Codex ended with exit code 2. It said last:\nno such option"),
        ({"first": ["Welcome!"] * 1_100}, "say Hi", "agent_failed", "Codex does not speak the protocol of"),
        ({"account": {"account": None, "requiresOpenaiAuth": True}}, "say Hi", "auth_required", "Codex needs a login"),
        ({}, "fail unauthorized Bad key", "auth_required", "Codex needs a login: Bad key"),
        ({}, "fail usageLimitExceeded No more", "agent_failed", "Codex failed: No more"),
        ({}, "hidden Overloaded", "agent_failed", "Codex failed: Overloaded"),
        ({}, "say Hi\ndie 4", "agent_failed", "Codex ended with exit code 4"),
        ({}, 'part {"method":"turn/comp\ndie 0', "spawn_no_result", "Codex ended with exit code 0"),
        ({}, "big 50000000", "agent_failed", "Codex sent a message of 50000035 bytes; at most 16777216 are read"),
        ({}, "\n".join(['raw {"method": nonsense}'] * 101), "agent_failed", "Codex sent 100 malformed messages"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
async def test_a_codex_that_misbehaves_fails_the_run_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, prompt: str, code: str, message: str
) -> None:
    lab = CodexLab(tmp_path, monkeypatch, **settings)
    async with lab.session() as client:
        began = time.monotonic()
        failed = await failure(client, prompt)
        assert failed.code == code
        assert failed.message.startswith(message)
        assert time.monotonic() - began < 30
        lab.settings()
        assert await client.run("say Again") == FINISHED
        assert said(client)[-1] == "Again"
    assert processes_with(str(tmp_path / "known")) == []


async def test_a_codex_that_dies_while_a_question_is_open_ends_the_run_and_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CodexLab(tmp_path, monkeypatch).session() as client:
        prompt = 'raw {"id":7,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","itemId":"c"}}'
        await client.send(f"{prompt}\nsteered\ndie 5")
        asked = await client.until_asked()
        await client.send("Now", delivery="steer")
        failed = await client.until_settled()
        assert isinstance(failed, ev.RunFailed)
        assert failed.message.startswith("Codex ended with exit code 5")
        assert [event.call_id for event in client.events(ev.ApprovalDecided)] == [asked.call_id]
        assert [event.call_id for event in client.events(ev.ToolFinished)] == [asked.call_id]


async def test_noise_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = CodexLab(tmp_path, monkeypatch, first=["Welcome to Codex!", "{not json", ""])
    async with lab.session() as client:
        steps = [
            "junk 500",
            "stray",
            "raw [1]",
            "raw {}",
            'raw {"method": 7}',
            'raw {"method":"new/thing","params":{}}',
        ]
        assert await client.run("\n".join([*steps, "say Still here"])) == FINISHED
        assert said(client) == ["Still here"]
        assert [notice.message for notice in client.events(ev.Notice)] == [
            "Codex said things that this makai does not know: new/thing (1)"
        ]


async def test_a_newer_version_is_used_with_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CodexLab(tmp_path, monkeypatch, version="codex-cli 0.999.0").session() as client:
        assert await client.run("say Hi") == FINISHED
        assert await client.run("say Hi") == FINISHED
        assert [notice.message for notice in client.events(ev.Notice)] == [
            "Codex 0.999.0 is newer than 0.166.0, the newest version that makai was tried with."
        ]


async def test_requests_that_makai_does_not_answer_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CodexLab(tmp_path, monkeypatch).session() as client:
        form = '{"serverName": "s", "mode": "form", "message": "Your name?", "requestedSchema": {}}'
        prompt = f"ask currentTime/read {{}}\nask mcpServer/elicitation/request {form}\nask execCommandApproval {{}}"
        assert await client.run(prompt) == FINISHED
        refused, declined, unreadable = map(json.loads, said(client))
        assert refused == {"code": -32601, "message": "makai does not answer currentTime/read."}
        assert declined == {"_meta": None, "action": "decline", "content": None}
        assert unreadable["code"] == -32602
        assert [notice.message for notice in client.events(ev.Notice)] == [
            "The MCP server 's' asked for input, which was declined: Your name?"
        ]


async def test_a_missing_program_is_explained_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = CodexLab(tmp_path, monkeypatch)
    (tmp_path / "bin/codex").unlink()
    with pytest.raises(InvalidRequest) as refused:
        async with lab.session():
            pass
    assert str(refused.value) == (
        "Codex is not installed: `codex` is not on your PATH. Install it: npm install -g @openai/codex"
    )
