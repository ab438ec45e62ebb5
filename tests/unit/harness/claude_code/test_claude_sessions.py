"""Sessions drive a scripted Claude Code: prompts, questions, interrupts, settings, ends."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.claude_lab import ClaudeLab
from support.live_sessions import Desk

from makai.core import session_events as ev
from makai.core.confinement import Confinement
from makai.core.content import Image, Text
from makai.core.lent_variables import LentVariables
from makai.core.request import StreamOptions
from makai.core.secret import Secret
from makai.core.usage import Usage
from makai.harness.acp import agent_run
from makai.harness.claude_code import process
from makai.sessions import commands as cmd
from makai.sessions.requests import GetState, RunCommand

STARTED = {"type": "message_start", "message": {"id": "m", "model": "claude-sonnet-4-5", "usage": {}}}
SPENT = {"type": "message_delta", "usage": {"output_tokens": 100_000}}
SPENDING = "\n".join(f"raw {json.dumps({'type': 'stream_event', 'event': event})}" for event in (STARTED, SPENT))
"""A message that costs $1.50."""
USAGE = Usage(input=10, output=5, cache_read=2, cost_usd=0.25)
DONE = ev.RunFinished(stop_reason="end_turn", usage=USAGE)
TOUCH = 'ask t Bash {"command":"touch a"}'


def notices(desk: Desk) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in desk.events(ev.Notice)]


def words(desk: Desk) -> list[str]:
    return [one.text for one in desk.events(ev.AssistantText)]


async def test_what_it_says_becomes_facts_once_and_in_order(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (sessions, desk):
        assert await desk.run('think Hm\nsay Hello\ncall r Read {"file_path":"/x"}\nsay Bye') == DONE
        kinds = ["reasoning", "assistant_text", "tool_call", "tool_finished"]
        assert [kind for kind in desk.kinds() if kind in kinds] == [*kinds, "assistant_text"]
        assert words(desk) == ["Hello", "Bye"]
        assert "".join(one.delta for one in desk.events(ev.AssistantTextDelta)) == "HelloBye"
        (call,) = desk.events(ev.ToolCalled)
        assert (call.name, call.title, call.kind) == ("Read", "Read /x", "read")
        assert call.locations == (ev.FilePlace("/x"),)
        assert desk.events(ev.ToolFinished) == [ev.ToolFinished(call_id=call.call_id, content=(Text(text="ran"),))]
        assert notices(desk) == []
        state = await sessions.dispatch(GetState(desk.session_id))
        assert state.agent is not None
        assert (state.agent.agent, state.agent.version) == ("Claude Code", "2.1.325")
        assert [mode.id for mode in state.agent.modes] == ["default", "acceptEdits", "plan"]
        assert [model.id for model in state.agent.models] == ["default", "haiku"]
        assert [command.id for command in state.agent.commands] == ["compact"]
        assert await desk.run("say Again") == DONE
    assert len(lab.processes) == 1
    assert lab.processes[0].stopped


async def test_its_command_line_has_the_settings_and_its_environment_no_secret(tmp_path: Path) -> None:
    environ = {
        "ANTHROPIC_API_KEY": "theirs", "OPENAI_API_KEY": "other", "MAKAI_HOME": "/m", "IS_SANDBOX": "1",
        "CLAUDECODE": "1", "HOME": "/home/me",
    }  # fmt: skip
    lab = ClaudeLab(tmp_path, environ)
    options = StreamOptions(reasoning_effort="low")
    terms = ev.RunTerms(
        options=options, max_turns=3, allow=("Read", "--dangerously-skip-permissions"), deny=("Bash(rm:*)",)
    )
    async with lab.session(terms=ev.SessionTerms(system_append="Be brief."), model="haiku") as (_, desk):
        assert await desk.run("argv\nenv", terms=terms) == DONE
        argv, env = (json.loads(text) for text in words(desk))
        folder = env["CLAUDE_CODE_TMPDIR"]
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert notices(desk) == []
    session_id = desk.events(ev.AgentSession)[-1].agent_session_id
    assert argv[1:] == [
        "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
        "--permission-prompt-tool", "stdio", "--include-partial-messages", f"--session-id={session_id}",
        "--model=haiku", "--effort=low", "--max-turns=3", "--append-system-prompt=Be brief.",
        "--allowedTools=Read,--dangerously-skip-permissions", "--disallowedTools=Bash(rm:*)",
    ]  # fmt: skip
    assert {name: env.get(name) for name in (*environ, "DISABLE_AUTOUPDATER", "ENABLE_TOOL_SEARCH")} == {
        "ANTHROPIC_API_KEY": "theirs", "OPENAI_API_KEY": None, "MAKAI_HOME": None, "IS_SANDBOX": None,
        "CLAUDECODE": None, "HOME": "/home/me", "DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": None,
    }  # fmt: skip
    assert env["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] == "1"
    with pytest.raises(FileNotFoundError):
        os.stat(folder)


@pytest.mark.req("DM-SPEC-008", "DM-ONE-004")
@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ('{"type":"object"}', ["--allowedTools=Read,StructuredOutput", '--json-schema={"type":"object"}']),
        ('{"type":"array"}', ["--allowedTools=Read"]),
        ('{"type":"object","anyOf":[]}', ["--allowedTools=Read"]),
        ('{"type":"object","title":"' + "x" * 100_000 + '"}', ["--allowedTools=Read"]),
        ("true", ["--allowedTools=Read"]),
        ("{", ["--allowedTools=Read"]),
    ],
    ids=["object", "array", "choice", "long", "boolean", "broken"],
)
async def test_a_schema_that_can_be_the_arguments_of_a_tool_is_given_to_the_program(
    tmp_path: Path, schema: str, options: list[str]
) -> None:
    terms = ev.RunTerms(options=StreamOptions(json_schema=schema), allow=("Read",))
    async with ClaudeLab(tmp_path).session() as (_, desk):
        await desk.run("argv", terms=terms)
        [argv] = (json.loads(text) for text in words(desk))
    assert argv[11:] == options


@pytest.mark.req("DM-ONE-006")
async def test_the_value_of_a_schema_is_the_last_text_and_a_missing_one_no_failure(tmp_path: Path) -> None:
    async with ClaudeLab(tmp_path).session() as (_, desk):
        assert await desk.run('say Thinking\nresult {"structured_output": {"name": "Ada", "born": [1815]}}') == DONE
        assert words(desk) == ["Thinking", '{"name":"Ada","born":[1815]}']
        missing = {"subtype": "error_max_structured_output_retries", "is_error": True, "errors": ["5 attempts"]}
        assert await desk.run(f"say Sorry\nresult {json.dumps(missing)}") == DONE
        assert words(desk)[2:] == ["Sorry"]


@pytest.mark.req("DM-SPEC-011")
@pytest.mark.parametrize(
    ("owners", "callers", "inherited", "seen"),
    [
        ({}, {"ANTHROPIC_API_KEY": "k"}, ("ANTHROPIC_API_KEY",), "k"),
        ({"AGENT_ENV_BLOCKLIST": "ANTHROPIC_*"}, {"ANTHROPIC_API_KEY": "k"}, ("ANTHROPIC_API_KEY",), None),
        (
            {"ANTHROPIC_API_KEY": "o", "AGENT_ENV_BLOCKLIST": "OTHER"},
            {"AGENT_ENV_BLOCKLIST": "ANTHROPIC_*"},
            ("AGENT_ENV_BLOCKLIST",),
            None,
        ),
        ({"AGENT_ENV_BLOCKLIST": "ANTHROPIC_*"}, {"ANTHROPIC_API_KEY": "k"}, (), "k"),
    ],
)
async def test_blocklists_of_both_processes_hold_for_what_no_caller_chose_for_the_run(
    tmp_path: Path, owners: dict[str, str], callers: dict[str, str], inherited: tuple[str, ...], seen: str | None
) -> None:
    lab = ClaudeLab(tmp_path, owners)
    async with lab.session() as (sessions, desk):
        lent = LentVariables({name: Secret(value) for name, value in callers.items()}, inherited)
        send = cmd.Send(now=0, input_id="i", content="env")
        await sessions.dispatch(RunCommand(desk.session_id, send, lent))
        await desk.until_settled()
        assert json.loads(words(desk)[0]).get("ANTHROPIC_API_KEY") == seen


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (cmd.ApproveCall(now=0, call_id="t", by="me"), {"behavior": "allow", "updatedInput": {"command": "touch a"}}),
        (
            cmd.ApproveCall(now=0, call_id="t", by="me", option_id="allow_always"),
            {
                "behavior": "allow",
                "updatedInput": {"command": "touch a"},
                "updatedPermissions": [
                    {
                        "type": "addRules",
                        "rules": [{"toolName": "Bash", "ruleContent": "x"}],
                        "behavior": "allow",
                        "destination": "session",
                    }
                ],
            },
        ),
        (
            cmd.DenyCall(now=0, call_id="t", by="me"),
            {
                "behavior": "deny",
                "message": "The user rejected this call. Do not try it again in another way; ask what to do instead.",
            },
        ),
    ],
)
async def test_a_question_is_an_approval(tmp_path: Path, command: cmd.ApproveCall | cmd.DenyCall, answer: Any) -> None:
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        await desk.send(TOUCH)
        asked = await desk.until_asked()
        assert (asked.name, asked.title, json.loads(asked.arguments_json), asked.confinement) == (
            "Bash", "touch a", {"command": "touch a"}, Confinement(agent="Claude Code"),
        )  # fmt: skip
        assert [(option.id, option.label) for option in asked.options] == [
            ("allow", "Allow once"), ("allow_always", "Allow for this session: Bash(x)"), ("reject", "Reject"),
        ]  # fmt: skip
        await desk.do(command)
        assert await desk.until_settled() == DONE
        (finished,) = desk.events(ev.ToolFinished)
        assert isinstance(finished.content[0], Text)
        assert json.loads(finished.content[0].text) == answer
        assert finished.is_error == (answer["behavior"] == "deny")


async def test_a_write_shows_what_it_replaces_and_nothing_outside_of_the_folder(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    inside, outside = lab.work / "a.txt", tmp_path / "b.txt"
    inside.write_text("old")
    outside.write_text("secret")
    async with lab.session(mode="never_ask") as (_, desk):
        for path in (inside, outside):
            await desk.run(f"call {path.stem} Write {json.dumps({'file_path': str(path), 'content': 'new'})}")
        assert [one.diffs for one in desk.events(ev.ToolFinished)] == [
            (ev.FileDiff(path=str(inside), old_text="old", new_text="new"),),
            (ev.FileDiff(path=str(outside), old_text=None, new_text="new"),),
        ]


ASK = 'ask q AskUserQuestion {"questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]}]}'


@pytest.mark.parametrize(
    ("mode", "option", "answer"),
    [
        ("ask", "answer-1", {"behavior": "allow", "answers": {"Which?": "B"}}),
        ("ask", "reject", {
            "behavior": "deny", "message": "The user declined to answer. Continue without an answer, or stop.",
        }),
        ("never_ask", None, {
            "behavior": "deny",
            "message": "The user lets you decide: choose the best answer yourself and say which one you chose.",
        }),
    ],
)  # fmt: skip
async def test_a_question_of_the_agent_is_answered_or_declined_and_never_invented(
    tmp_path: Path, mode: ev.PermissionMode, option: str | None, answer: Any
) -> None:
    async with ClaudeLab(tmp_path).session(mode=mode) as (_, desk):
        await desk.send(ASK)
        if option is not None:
            asked = await desk.until_asked()
            assert asked.title == "Which?"
            assert [one.label for one in asked.options] == ["Let the agent decide", "A", "B", "Decline to answer"]
            decide = cmd.DenyCall if option == "reject" else cmd.ApproveCall
            await desk.do(decide(now=0, call_id=asked.call_id, by="me", option_id=option))
        assert await desk.until_settled() == DONE
        (finished,) = desk.events(ev.ToolFinished)
        assert isinstance(finished.content[0], Text)
        given = json.loads(finished.content[0].text)
        given |= {"answers": given.pop("updatedInput")["answers"]} if "updatedInput" in given else {}
        assert given == answer


@pytest.mark.parametrize("states", [True, False])
async def test_an_interrupt_ends_the_turn_and_the_session_stays_usable(tmp_path: Path, states: bool) -> None:
    lab = ClaudeLab(tmp_path, states=states)
    async with lab.session() as (_, desk):
        for steps in ("say Wait\nwait", f"say Wait\n{TOUCH}"):
            await desk.send(steps)
            if "ask" in steps:
                await desk.until_asked()
            else:
                await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
            await desk.do(cmd.Abort(now=0, by="me"))
            assert await desk.until_settled() == ev.RunFinished(stop_reason="aborted", usage=USAGE)
            assert await desk.run("say Still here") == DONE
    assert len(lab.processes) == 1
    assert len(lab.controls("interrupt")) == 2


async def test_a_program_that_ignores_an_interrupt_is_ended_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_run, "CANCEL_S", 0.05)
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        await desk.send("say Wait\ndeaf")
        await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await desk.do(cmd.Abort(now=0, by="me"))
        assert await desk.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert lab.processes[0].stopped
        lab.settings.known = (desk.events(ev.AgentSession)[-1].agent_session_id,)
        assert await desk.run("say Again") == DONE
        assert [code for code, _ in notices(desk)] == ["agent_session_resumed"]
    assert len(lab.processes) == 2


@pytest.mark.req("DM-RES-004")
@pytest.mark.parametrize("end", ["die", "abort"])
async def test_a_run_that_does_not_come_to_its_end_costs_what_it_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(agent_run, "CANCEL_S", 0.05)
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (sessions, desk):
        await desk.send(f"{SPENDING}\n{'die 9' if end == 'die' else 'deaf'}")
        if end == "abort":
            await desk.until(lambda logged: isinstance(logged.event, ev.UsageReported))
            await desk.do(cmd.Abort(now=0, by="me"))
        assert (await desk.until_settled()).usage == Usage(cost_usd=1.5)
        assert (await sessions.dispatch(GetState(desk.session_id))).usage == Usage(cost_usd=1.5)
        await desk.do(cmd.SetTerms(now=0, terms=ev.SessionTerms(max_usd=1.5)))
        refused = await desk.run("say More")
    assert isinstance(refused, ev.RunFailed)
    assert refused.message == "The session's budget of 1.5 USD is used up (1.5000 USD spent)."


@pytest.mark.req("DM-EVT-010")
async def test_a_run_has_as_many_turns_as_its_results_say(tmp_path: Path) -> None:
    async with ClaudeLab(tmp_path).session() as (_, desk):
        settled = await desk.run('say Hi\nresult {"num_turns": 3}')
    assert settled == ev.RunFinished(stop_reason="end_turn", usage=USAGE, turns=3)


async def test_a_turn_that_costs_more_than_the_run_may_is_no_success(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        spent = await desk.run("say Hi", terms=ev.RunTerms(max_usd=0.2))
        assert await desk.run("say Hi", terms=ev.RunTerms(max_usd=0.3)) == DONE
    assert spent == ev.RunFinished(stop_reason="max_tokens", usage=USAGE)
    assert notices(desk) == [("limit_usd", "The run reached its limit of 0.2 USD.")]


async def test_a_limit_that_cannot_be_kept_for_a_model_without_a_price_stops_the_run(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    answers = SPENDING.replace("claude-sonnet-4-5", "own-model")
    async with lab.session() as (_, desk):
        stopped = await desk.run(f"{answers}\nwait", terms=ev.RunTerms(max_usd=2.0))
        accepted = await desk.run(answers, terms=ev.RunTerms(max_usd=2.0, allow_unknown_price=True))
    assert stopped == ev.RunFinished(stop_reason="max_tokens", usage=USAGE)
    assert accepted == DONE
    message = "The price of own-model is not known: a limit in USD needs --allow-unknown-price."
    assert notices(desk) == [("limit_usd", message)]


@pytest.mark.parametrize(("states", "lifecycle"), [(True, True), (True, False), (False, False)])
async def test_input_during_a_turn_is_taken_and_answered_before_the_run_ends(
    tmp_path: Path, states: bool, lifecycle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "QUIET_S", 0.05)
    async with ClaudeLab(tmp_path, states=states, lifecycle=lifecycle).session() as (_, desk):
        await desk.send("say First\nqueue")
        await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await desk.send("say Second", delivery="steer")
        twice = Usage(input=20, output=10, cache_read=4, cost_usd=0.5)
        assert await desk.until_settled() == ev.RunFinished(stop_reason="end_turn", usage=twice)
        assert words(desk) == ["First", "Second"]


async def test_a_program_that_says_nothing_of_its_input_ends_a_prompt_when_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "QUIET_S", 600.0)
    async with ClaudeLab(tmp_path, lifecycle=False).session() as (_, desk):
        assert await desk.run("say One") == DONE
        assert await desk.run("say Two") == DONE


async def test_a_session_is_found_again_after_a_restart_and_a_lost_one_is_replaced(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        await desk.run("say One")
        session_id = desk.events(ev.AgentSession)[-1].agent_session_id
        lab.settings.known = (session_id,)
        failed = await desk.run("die 9")
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message) == (
            "agent_failed", "Claude Code ended with exit code 9. It said last:\nlast words",
        )  # fmt: skip
        assert await desk.run("say Two") == DONE
        assert f"--resume={session_id}" in lab.processes[-1].program.argv
        lab.settings.known = ()
        await desk.run("die 9")
        assert await desk.run("say Three") == DONE
        assert [code for code, _ in notices(desk)] == [
            "agent_session_resumed", "agent_session_lost", "agent_got_transcript",
        ]  # fmt: skip
        assert desk.events(ev.AgentSession)[-1].agent_session_id != session_id


async def test_the_mode_is_set_by_a_control_request(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        await desk.run("say One")
        await desk.do(cmd.SetMode(now=0, mode="ask", agent_mode="plan"))
        assert await desk.run("say Two") == DONE
    assert lab.controls("set_permission_mode") == [{"subtype": "set_permission_mode", "mode": "plan"}]


async def test_an_image_is_part_of_the_prompt(tmp_path: Path) -> None:
    lab = ClaudeLab(tmp_path)
    async with lab.session() as (_, desk):
        content = (Text(text="say Seen"), Image(data="aGk=", mime_type="image/png"))
        await desk.do(cmd.Send(now=0, input_id="i", content=content))
        assert await desk.until_settled() == DONE
    (line,) = [line for line in lab.heard if line["type"] == "user"]
    assert line["message"]["content"] == [
        {"type": "text", "text": "say Seen"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    ]


async def test_a_question_that_the_program_withdraws_is_closed(tmp_path: Path) -> None:
    async with ClaudeLab(tmp_path).session() as (_, desk):
        assert await desk.run(f"withdraw\n{TOUCH}\nsay On") == DONE
        assert words(desk) == ["On"]
        assert all(one.is_error for one in desk.events(ev.ToolFinished))


@pytest.mark.parametrize("number", range(2))
async def test_control_requests_that_makai_does_not_know_are_answered(tmp_path: Path, number: int) -> None:
    kind = ("hook_callback", "hologram")[number]
    request = {"type": "control_request", "request_id": "h", "request": {"subtype": kind}}
    lab = ClaudeLab(tmp_path)
    lab.settings.lines = (json.dumps(request), '{"type":"result","subtype":"success"}')
    async with lab.session() as (_, desk):
        async with asyncio.timeout(10):
            assert (await desk.run("say Hi")).usage.input == 0
