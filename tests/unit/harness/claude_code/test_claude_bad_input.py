"""Programs called `claude` that are missing, old, strange or broken: each run ends once, with a message that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.claude_lab import ClaudeLab, claude_program
from support.live_sessions import Desk, owned_sessions
from support.scripted_claude import ClaudeSettings

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.harness.acp.known_agents import agent_of
from makai.harness.claude_code import process
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession

INIT = '{"type":"system","subtype":"init","session_id":"s"}'
RESULT = '{"type":"result","subtype":"success","result":"ok"}'


async def outcome(lab: ClaudeLab, prompt: str = "say Hi") -> ev.RunFinished | ev.RunFailed:
    async with lab.session() as (_, desk):
        settled = await desk.run(prompt)
        assert len(desk.events(ev.RunFinished)) + len(desk.events(ev.RunFailed)) == 1
        return settled


def test_a_missing_program_is_named_with_the_way_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        agent_of("claude-code", {}).argv("/", {"PATH": str(tmp_path)})
    assert str(refused.value) == (
        "Claude Code is not installed: `claude` is not on your PATH. "
        "Install it: npm install -g @anthropic-ai/claude-code"
    )


@pytest.mark.parametrize(
    ("version", "code", "message"),
    [
        ("1.0.3 (Claude Code)", "not_implemented", "Claude Code 1.0.3 is too old; makai needs 2.1.197 or newer."),
        ("Once upon a time", "agent_failed", "Claude Code did not say its version: Once upon a time"),
    ],
)
async def test_another_program_or_an_old_one_is_refused(tmp_path: Path, version: str, code: str, message: str) -> None:
    failed = await outcome(ClaudeLab(tmp_path, version=version))
    assert isinstance(failed, ev.RunFailed)
    assert (failed.code, failed.message) == (code, message)
    assert "npm install -g @anthropic-ai/claude-code" in (failed.hint or "")


async def test_a_newer_version_works_with_a_notice_and_what_it_says_more_is_counted(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path, version="9.0.0 (Claude Code)")
    async with lab.session() as (_, desk):
        settled = await desk.run('raw {"type":"hologram"}\nraw {"type":"hologram"}\nsay Hi')
        assert isinstance(settled, ev.RunFinished)
        assert [one.message for one in desk.events(ev.Notice)] == [
            "Claude Code 9.0.0 is newer than 2.1.325, the newest version that makai was tried with.",
            "Claude Code said things that this makai does not know: hologram (2)",
        ]
        await desk.run('raw {"type":"hologram"}')
        assert len(desk.events(ev.Notice)) == 2


@pytest.mark.parametrize(
    ("settings", "prompt", "message"),
    [
        ({"dies_at_once": True}, "say Hi", "Claude Code ended with exit code 3. It said last:\nit broke"),
        ({}, "say Hi\nhalf", "Claude Code ended with exit code 0."),
        ({}, "die 4", "Claude Code ended with exit code 4. It said last:\nlast words"),
        (
            {},
            "junk 1200",
            "Claude Code does not speak Claude Code's stream of JSON: its output has other lines. It said last:\n",
        ),
        (
            {},
            "huge 50000000",
            "Claude Code sent a message of 50000045 bytes; at most 16777216 are read.",
        ),
        ({"lines": (INIT,)}, "say Hi", "Claude Code ended with exit code 0."),
    ],
)  # fmt: skip
async def test_a_broken_program_fails_the_run_with_its_last_words(
    tmp_path: Path, settings: Any, prompt: str, message: str
) -> None:
    lab = ClaudeLab(tmp_path, **settings)
    failed = await outcome(lab, prompt)
    assert isinstance(failed, ev.RunFailed)
    assert failed.code == ("spawn_no_result" if "exit code 0" in message else "agent_failed")
    assert failed.message == message if not message.endswith("\n") else failed.message.startswith(message)
    assert all(one.stopped for one in lab.processes)


async def test_a_program_that_dies_while_a_question_is_open_withdraws_it(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        await desk.send('ask t Bash {"command":"touch a"}')
        await desk.until_asked()
        await lab.processes[0].stop()
        failed = await desk.until_settled()
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == "Claude Code ended with exit code 0."
        assert [one.decision for one in desk.events(ev.ApprovalDecided)] == ["deny_continue"]


@pytest.mark.parametrize(
    "lines",
    [
        (INIT, INIT, RESULT),
        (INIT, RESULT, RESULT),
        (RESULT,),
        ("prose", '{"type":', '{"type":"assistant","message":3}', "[]", INIT, RESULT),
        ('{"type":"system","subtype":"init","session_id":"another"}', RESULT),
        (INIT, '{"type":"control_response","response":{"request_id":"never-sent"}}', RESULT),
        (INIT, '{"type":"control_cancel_request","request_id":"never-asked"}', RESULT),
        (INIT, '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"never-called"}]}}', RESULT),
    ],
)
async def test_strange_lines_do_not_keep_a_turn_from_its_end(tmp_path: Path, lines: tuple[str, ...]) -> None:
    settled = await outcome(ClaudeLab(tmp_path, lines=lines))
    assert isinstance(settled, ev.RunFinished)
    assert settled.stop_reason == "end_turn"


@pytest.mark.parametrize("states", [True, False])
async def test_two_results_of_one_prompt_settle_it_once(
    tmp_path: Path, states: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "QUIET_S", 0.02)
    lab = ClaudeLab(tmp_path, states=states)
    async with lab.session() as (_, desk):
        await desk.run(f"raw {RESULT}\nsay Hi")
        await desk.run("say Again")
        assert [one.stop_reason for one in desk.events(ev.RunFinished)] == ["end_turn", "end_turn"]


async def test_a_result_without_the_word_that_it_is_idle_ends_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "IDLE_S", 0.02)
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        await desk.send(f"raw {RESULT}\ndeaf")
        assert await desk.until_settled() == ev.RunFinished(stop_reason="end_turn")


async def test_the_word_that_it_is_idle_ends_a_prompt_whose_result_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "QUIET_S", 0.02)
    idle = '{"type":"system","subtype":"session_state_changed","state":"idle"}'
    async with ClaudeLab(tmp_path).session() as (_, desk):
        await desk.send(f"raw {idle}\ndeaf")
        assert await desk.until_settled() == ev.RunFinished(stop_reason="end_turn")


@pytest.mark.parametrize(
    ("result", "code", "message", "hint"),
    [
        (
            {"is_error": True, "result": "API Error: 529 overloaded", "api_error_status": 529},
            "agent_failed",
            "Claude Code could not answer: API Error: 529 overloaded",
            "Try again in a moment.",
        ),
        (
            {
                "is_error": False,
                "result": "API Error: 500 boom",
                "terminal_reason": "api_error",
                "api_error_status": 500,
            },
            "agent_failed",
            "Claude Code could not answer: API Error: 500 boom",
            "Try again in a moment.",
        ),
        (
            {"is_error": True, "result": "Not logged in · Please run /login"},
            "auth_required",
            "Claude Code needs a login: Not logged in · Please run /login",
            "Run `claude` once and log in with /login, or set ANTHROPIC_API_KEY.",
        ),
    ],
)
async def test_an_error_that_calls_itself_a_success_is_a_failure(
    tmp_path: Path, result: Any, code: str, message: str, hint: str
) -> None:
    failed = await outcome(ClaudeLab(tmp_path), f"result {json.dumps(result)}")
    assert isinstance(failed, ev.RunFailed)
    assert (failed.code, failed.message, failed.hint) == (code, message, hint)


async def test_a_program_that_answers_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.harness.claude_code.peer.OPEN_S", 0.05)
    failed = await outcome(ClaudeLab(tmp_path, silent=True))
    assert isinstance(failed, ev.RunFailed)
    assert failed.message == "Claude Code did not answer initialize within 0.05 s."


async def test_a_program_of_its_own_is_started_and_ended_as_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = claude_program(tmp_path / "bin", ClaudeSettings())
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("MAKAI_SECRET", "secret")
    project = tmp_path / "project"
    project.mkdir()  # no program of the session's own folder is started
    async with owned_sessions(tmp_path, "say: Hi", MemoryLog()) as sessions:
        wanted = CreateSession(model_ref="", harness="claude-code", cwd=str(project))
        desk = Desk(sessions, await sessions.dispatch(wanted))
        assert isinstance(await desk.run("env"), ev.RunFinished)
        assert "MAKAI_SECRET" not in json.loads(desk.events(ev.AssistantText)[-1].text)
        failed = await desk.run("stderr it is broken\nhuge 50000000\nsay no")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message.startswith("Claude Code sent a message of 50000045 bytes")
