"""Sessions drive a scripted agent over the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.acp_lab import AcpLab

from makai.core import session_events as ev
from makai.core.content import ResourceLink, Text
from makai.core.errors import SessionRefused
from makai.core.usage import Usage
from makai.harness.acp import agent_run, driven_agent
from makai.sessions import commands as cmd
from makai.sessions.conversation import conversation
from makai.sessions.requests import DeleteSession, GetState


@pytest.mark.req("ACP-CLIENT-001", "ACP-CLIENT-004")
async def test_what_an_agent_says_becomes_facts_of_the_session_in_its_order(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (sessions, client):
        assert await client.run("think Hm\nsay Hello\nsay  there\ntool look\nsay Bye") == ev.RunFinished(
            stop_reason="end_turn"
        )
        assert client.kinds() == [
            "session_created", "run_started", "run_status", "user_message", "run_status", "agent_session",
            "title_changed", "thinking_delta", "reasoning", "text_delta", "assistant_text", "tool_call", "tool_started",
            "tool_finished", "text_delta", "assistant_text", "run_status", "run_finished",
        ]  # fmt: skip
        assert [event.text for event in client.events(ev.AssistantText)] == ["Hello there", "Bye"]
        assert client.events(ev.ToolCalled) == [
            ev.ToolCalled(
                call_id="look",
                name="read",
                arguments_json='{"id":"look"}',
                content_index=2,
                vendor_call_id="look",
                kind="read",
                title="Do look",
            )
        ]
        assert client.events(ev.ToolFinished) == [ev.ToolFinished(call_id="look", content=(Text(text="look done"),))]
        state = await sessions.dispatch(GetState(client.session_id))
        assert state.title == "think Hm say Hello say there tool look say Bye"
        assert state.agent is not None
        assert (state.agent.agent, state.agent.version) == ("Scripted", "7")
        assert len((await conversation(lab.log, client.session_id)).messages()) == 3  # prompt, answer, result
    hello = lab.heard_of("initialize")[0]
    assert hello["protocolVersion"] == 1
    assert hello["clientInfo"]["name"] == "makai"
    assert hello["clientCapabilities"] == {"session": {"compaction": {}, "notices": {}}}
    assert lab.heard_of("session/new") == [{"cwd": str(lab.work), "mcpServers": []}]
    assert [transport.stopped for transport in lab.transports] == [True]


@pytest.mark.req("ACP-CLIENT-004", "ACP-CLIENT-005")
async def test_every_kind_of_update_is_a_fact_in_its_order_and_one_of_a_newer_version_is_skipped(
    tmp_path: Path,
) -> None:
    mode = {"currentModeId": "code", "availableModes": [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}]}
    plan = [{"content": name, "priority": "low", "status": "pending"} for name in ("One", "Two")]
    said: list[dict[str, Any]] = [
        {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "As I said"}},
        {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "Hm"}},
        {"sessionUpdate": "of_a_newer_version", "content": {"type": "text", "text": "?"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hello"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram"}},
        {"sessionUpdate": "plan", "entries": plan},
        {"sessionUpdate": "tool_call", "toolCallId": "a", "title": "A", "kind": "edit", "rawInput": {"x": 1}},
        {"sessionUpdate": "tool_call_update", "toolCallId": "a", "title": "B", "locations": [{"path": "/f"}]},
        {"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed"},
        {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "init", "description": "Go"}]},
        {"sessionUpdate": "plan", "entries": [{**plan[1], "status": "completed"}]},
        {"sessionUpdate": "current_mode_update", "currentModeId": "plan"},
    ]
    lab = AcpLab(tmp_path, session={"modes": mode})
    async with lab.session() as (_, client):
        await client.run("say Hi")
        before = len(client.seen)
        steps = "\n".join(f"update {json.dumps(update)}" for update in said)
        assert await client.run(steps) == ev.RunFinished(stop_reason="end_turn")
        (opened,) = client.events(ev.AgentSession)[:1]
        with_commands = msgspec.structs.replace(opened, commands=(ev.AgentOption(id="init", description="Go"),))
        facts = [
            logged.event
            for logged in client.seen[before:]
            if not isinstance(logged.event, ev.RunStarted | ev.RunStatusChanged | ev.UserInput | ev.RunFinished)
        ]
        assert facts == [
            ev.ReasoningDelta(content_index=0, delta="Hm"),
            ev.Reasoning(content_index=0, text="Hm"),
            ev.AssistantTextDelta(content_index=1, delta="Hello"),
            ev.PlanUpdated(
                entries=tuple(ev.PlanEntry(content=name, status="pending", priority="low") for name in ("One", "Two"))
            ),
            ev.AssistantText(content_index=1, text="Hello"),
            ev.ToolCalled(
                call_id="a",
                name="edit",
                arguments_json='{"x":1}',
                content_index=2,
                vendor_call_id="a",
                kind="edit",
                title="A",
            ),
            ev.ToolUpdated(call_id="a", title="B", locations=(ev.FilePlace("/f"),)),
            ev.ToolStarted(call_id="a"),
            ev.ToolFinished(call_id="a", content=()),
            with_commands,
            ev.PlanUpdated(entries=(ev.PlanEntry(content="Two", status="completed", priority="low"),)),
            msgspec.structs.replace(with_commands, mode="plan"),
        ]


async def test_one_process_answers_all_prompts_of_a_session_and_ends_with_it(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (sessions, client):
        await client.run("say One")
        await client.run("say Two")
        assert [event.text for event in client.events(ev.AssistantText)] == ["One", "Two"]
        assert [method for method, _ in lab.heard] == [
            "initialize", "session/new", "session/prompt", "session/prompt",
        ]  # fmt: skip
        await sessions.dispatch(DeleteSession(client.session_id))
        assert lab.transports[0].stopped
    assert len(lab.transports) == 1


@pytest.mark.req("ACP-CLIENT-001")
async def test_an_agent_of_another_version_is_left_with_a_typed_error(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path, version=2)
    async with lab.session() as (_, client):
        failed = await client.run("say Hi")
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message) == (
            "not_implemented",
            "Scripted speaks version 2 of the Agent Client Protocol; makai speaks version 1.",
        )
        assert lab.transports[0].stopped
    assert [method for method, _ in lab.heard] == ["initialize"]


@pytest.mark.req("ACP-CLIENT-006")
@pytest.mark.parametrize(
    ("command", "chosen"),
    [
        (cmd.ApproveCall(now=0, call_id="rm", by="me"), "yes"),
        (cmd.ApproveCall(now=0, call_id="rm", by="me", scope="always"), "always"),
        (cmd.DenyCall(now=0, call_id="rm", by="me"), "no"),
        (cmd.DenyCall(now=0, call_id="rm", by="me", scope="always"), "no"),
        (cmd.ApproveCall(now=0, call_id="rm", by="me", option_id="always"), "always"),
    ],
)
async def test_a_permission_is_answered_by_the_kind_of_the_option_and_never_by_its_position(
    tmp_path: Path, command: cmd.ApproveCall | cmd.DenyCall, chosen: str
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        await client.send("ask rm execute")
        asked = await client.until_asked()
        assert (asked.call_id, asked.title, asked.arguments_json) == ("rm", "Do rm", '{"command":"rm"}')
        assert [option.id for option in asked.options] == ["always", "no", "yes"]
        await client.do(command)
        assert await client.until_settled() == ev.RunFinished(stop_reason="end_turn")
    assert [event.text for event in client.events(ev.AssistantText)] == [f"chose {chosen}"]
    assert [event.is_error for event in client.events(ev.ToolFinished)] == [chosen == "no"]
    assert len(client.events(ev.ToolStarted)) == (chosen != "no")


async def test_the_title_of_a_session_is_what_the_person_wrote_and_not_the_file_before_it(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (sessions, client):
        said = (ResourceLink(uri="file:///project/app.py", name="app.py"), Text(text="say Hello"))
        await client.do(cmd.Send(now=0, input_id="one", content=said))
        await client.until_settled()
        assert (await sessions.dispatch(GetState(client.session_id))).title == "say Hello"


@pytest.mark.req("ACP-CLIENT-006")
async def test_an_option_that_the_agent_did_not_offer_cannot_be_chosen(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        await client.send("ask rm execute")
        await client.until_asked()
        for wrong in ("invented", "no"):  # an option to reject approves nothing
            with pytest.raises(SessionRefused, match="offers no such option"):
                await client.do(cmd.ApproveCall(now=0, call_id="rm", by="me", option_id=wrong))
        await client.do(cmd.DenyCall(now=0, call_id="rm", by="me"))
        await client.until_settled()
    assert lab.transports[0].agent.chosen == ["no"]


def permission(*options: tuple[str, str]) -> str:
    """A step that asks with options of these ids and kinds, and says what was answered."""
    offered = [{"optionId": name, "name": name, "kind": kind} for name, kind in options]
    return f"call session/request_permission {json.dumps({'toolCall': {'toolCallId': 'a'}, 'options': offered})}"


@pytest.mark.req("ACP-CLIENT-006")
@pytest.mark.parametrize("mode", ["ask", "never_ask"])
async def test_an_option_of_an_unknown_kind_is_never_chosen_and_the_others_are_asked(
    tmp_path: Path, mode: ev.PermissionMode
) -> None:
    lab = AcpLab(tmp_path)
    step = permission(("week", "allow_for_a_week"), ("yes", "allow_once"), ("yes", "allow_once"), ("no", "reject_once"))
    async with lab.session(mode=mode) as (_, client):
        await client.send(step)
        if mode == "ask":
            asked = await client.until_asked()
            assert [(option.id, option.kind) for option in asked.options] == [
                ("yes", "allow_once"),
                ("no", "reject_once"),
            ]
            await client.do(cmd.ApproveCall(now=0, call_id="a", by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="end_turn")
        chosen = {"outcome": {"optionId": "yes", "outcome": "selected"}}
        assert [event.text for event in client.events(ev.AssistantText)] == [json.dumps(chosen)]


@pytest.mark.req("ACP-CLIENT-006")
@pytest.mark.parametrize("mode", ["ask", "never_ask"])
@pytest.mark.parametrize(
    "options",
    [
        (("a", "deny_it"), ("b", "grant")),
        (("a", "reject_once"), ("a", "allow_once")),
        (("a", "allow_once"), ("a", "allow_always"), ("b", "")),
    ],
)
async def test_a_question_whose_options_have_no_single_known_meaning_is_cancelled_with_a_notice(
    tmp_path: Path, options: tuple[tuple[str, str], ...], mode: ev.PermissionMode
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(mode=mode) as (_, client):
        assert await client.run(permission(*options)) == ev.RunFinished(stop_reason="end_turn")
        assert [event.text for event in client.events(ev.AssistantText)] == ['{"outcome": {"outcome": "cancelled"}}']
        kinds = ", ".join(sorted({kind for _, kind in options}))
        said = "makai cancelled a question of Scripted: none of its options has one known meaning"
        assert client.events(ev.Notice) == [
            ev.Notice(level="warning", code="agent_notice", message=f"{said} ({kinds}).")
        ]
        assert client.events(ev.ApprovalRequested) == []


@pytest.mark.req("ACP-CLIENT-006")
@pytest.mark.parametrize(
    ("mode", "step", "chosen"),
    [
        ("never_ask", "ask rm execute", "yes"),
        ("accept_edits", "ask change edit {work}/a.txt", "yes"),
        ("plan", "ask rm execute", "no"),
    ],
)
async def test_the_mode_of_a_session_decides_what_it_covers(
    tmp_path: Path, mode: ev.PermissionMode, step: str, chosen: str
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(mode=mode) as (_, client):
        assert await client.run(step.format(work=lab.work)) == ev.RunFinished(stop_reason="end_turn")
    assert [event.text for event in client.events(ev.AssistantText)] == [f"chose {chosen}"]
    assert [(event.by, event.option_id) for event in client.events(ev.ApprovalDecided)] == [("mode", chosen)]


@pytest.mark.req("DM-SPEC-007")
@pytest.mark.parametrize(
    ("mode", "terms", "step", "chosen", "by"),
    [
        ("never_ask", ev.RunTerms(deny=("Bash(touch:*)",)), "ask touch execute", "no", "rule"),
        ("never_ask", ev.RunTerms(deny=("Bash",)), "ask touch execute", "no", "rule"),
        ("never_ask", ev.RunTerms(deny=("Bash(rm:*)",)), "ask touch execute", "yes", "mode"),
        ("never_ask", ev.RunTerms(deny=("Edit(*.txt)",)), "ask change edit {work}/a.txt", "no", "rule"),
        ("accept_edits", ev.RunTerms(deny=("Edit(*.txt)",)), "ask change edit {work}/a.txt", "no", "rule"),
        ("ask", ev.RunTerms(allow=("Bash(touch:*)",)), "ask touch execute", "yes", "rule"),
        ("ask", ev.RunTerms(allow=("Bash",), deny=("Bash(touch:*)",)), "ask touch execute", "no", "rule"),
        ("plan", ev.RunTerms(allow=("Bash(touch:*)",)), "ask touch execute", "no", "mode"),
    ],
)
async def test_rules_of_a_run_decide_what_an_agent_asks_before_the_mode_does(
    tmp_path: Path, mode: ev.PermissionMode, terms: ev.RunTerms, step: str, chosen: str, by: str
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(mode=mode) as (_, client):
        finished = await client.run(step.format(work=lab.work), terms=terms)
    assert finished == ev.RunFinished(stop_reason="end_turn")
    assert lab.transports[0].agent.chosen == [chosen]
    assert [(event.by, event.option_id) for event in client.events(ev.ApprovalDecided)] == [(by, chosen)]


async def test_a_written_rule_forbids_what_an_agent_asks_and_allows_nothing(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    config = tmp_path / "makai-home" / "config.toml"
    rules = '[permissions]\ndeny = ["Bash(touch:*)"]\nallow = ["Bash(mkdir:*)"]\n'
    config.write_text(config.read_text() + rules)
    async with lab.session(mode="never_ask") as (_, client):
        await client.run("ask touch execute")
        await client.do(cmd.SetMode(now=0, mode="ask"))
        await client.send("ask mkdir execute")
        assert (await client.until_asked()).name == "execute"
        await client.deny("mkdir")
        await client.until_settled()
    assert lab.transports[0].agent.chosen == ["no", "no"]
    assert [event.by for event in client.events(ev.ApprovalDecided)] == ["rule", "tester"]


@pytest.mark.parametrize(
    ("step", "deny"), [("ask change edit", "Edit(src/**)"), (f"ask {'x' * 1_100_000} execute", "Bash(touch:*)")]
)
async def test_a_call_that_a_rule_may_forbid_is_asked_about_when_it_is_not_known_what_it_does(
    tmp_path: Path, step: str, deny: str
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(mode="never_ask") as (_, client):
        await client.send(step, terms=ev.RunTerms(deny=(deny,)))
        await client.deny((await client.until_asked()).call_id)
        await client.until_settled()
    assert lab.transports[0].agent.chosen == ["no"]


async def test_a_protected_file_is_asked_about_although_a_rule_allows_edits(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        terms = ev.RunTerms(allow=("Edit",))
        await client.run(f"ask plain edit {lab.work}/a.txt", terms=terms)
        await client.send(f"ask hook edit {lab.work}/.git/hooks/pre-commit", terms=terms)
        await client.deny((await client.until_asked()).call_id)
        await client.until_settled()
    assert lab.transports[0].agent.chosen == ["yes", "no"]


async def test_it_is_said_that_rules_forbid_only_what_an_agent_asks_about(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(mode="never_ask") as (_, client):
        await client.run("say Hi", terms=ev.RunTerms(deny=("Bash(touch:*)", "AskUserQuestion")))
        await client.run("say Hi", terms=ev.RunTerms(deny=("AskUserQuestion",)))
    assert client.events(ev.Notice) == [
        ev.Notice(
            level="warning",
            code="deny_when_asked",
            message="Scripted decides itself what it asks about; makai can forbid only that: Bash(touch:*).",
        )
    ]


async def test_settings_of_the_session_that_an_agent_does_not_take_are_named_once(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    terms = ev.SessionTerms(system_append="Be brief.", sandbox="read-only")
    async with lab.session(terms=terms) as (_, client):
        await client.run("say Hi", terms=ev.RunTerms(max_turns=2))
        await client.run("say Hi")
    assert client.events(ev.Notice) == [
        ev.Notice(
            level="warning",
            code="setting_ignored",
            message="Scripted does not take these settings: max_turns, system_append, sandbox.",
        )
    ]


@pytest.mark.parametrize("path", ["{work}/.git/config", "/etc/passwd", "{work}/../b.txt", "a.txt"])
async def test_edits_elsewhere_and_of_protected_files_are_asked_in_accept_edits(tmp_path: Path, path: str) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(mode="accept_edits") as (_, client):
        await client.send(f"ask change edit {path.format(work=lab.work)}")
        assert (await client.until_asked()).diffs[0].new_text == "b\n"
        await client.deny("change")
        await client.until_settled()


@pytest.mark.req("ACP-CLIENT-007")
async def test_an_abort_cancels_the_prompt_answers_its_questions_and_keeps_the_session(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        await client.send("say Wait\nask rm execute + mv execute\nwait")
        assert {(await client.until_asked()).call_id for _ in range(2)} == {"rm", "mv"}
        await client.do(cmd.Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert await client.run("say Again") == ev.RunFinished(stop_reason="end_turn")
    assert len(lab.transports) == 1
    assert lab.transports[0].agent.chosen == ["cancelled", "cancelled"]
    assert lab.heard_of("session/cancel") == [{"sessionId": lab.heard_of("session/prompt")[0]["sessionId"]}]
    assert [event.by for event in client.events(ev.ApprovalDecided)] == ["abort", "abort"]


@pytest.mark.req("ACP-CLIENT-007", "ACP-CLIENT-010")
async def test_an_agent_that_ignores_cancel_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_run, "CANCEL_S", 0.05)
    lab = AcpLab(tmp_path, offers={"loadSession": True})
    async with lab.session() as (_, client):
        await client.send("say Wait\nstuck")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await client.do(cmd.Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert lab.transports[0].stopped
        assert await client.run("say Again") == ev.RunFinished(stop_reason="end_turn")
    assert len(lab.transports) == 2


async def test_a_run_that_a_restart_interrupted_costs_what_its_agent_had_reported(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    spent = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD"}}
    async with lab.session() as (_, client):
        await client.run(f"update {json.dumps(spent)}")
        spent["cost"] = {"amount": 0.75, "currency": "USD"}
        await client.send(f"update {json.dumps(spent)}\nwait")
        await client.until(lambda logged: isinstance(logged.event, ev.UsageReported))
    async with lab.open() as sessions:
        state = await sessions.dispatch(GetState(client.session_id))
    assert (state.usage, state.active_run) == (Usage(cost_usd=0.75), None)


@pytest.mark.req("ACP-CLIENT-010")
async def test_an_agent_that_dies_fails_its_run_with_its_last_words(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        failed = await client.run("say Half\ndie 3")
        assert failed == ev.RunFailed(
            code="agent_failed", message="Scripted ended with exit code 3. It said last:\nit broke"
        )
        assert [event.text for event in client.events(ev.AssistantText)] == ["Half"]
        assert lab.transports[0].stopped
        assert await client.run("say Again") == ev.RunFinished(stop_reason="end_turn")
        assert [notice.code for notice in client.events(ev.Notice)] == ["agent_session_lost", "agent_got_transcript"]


@pytest.mark.req("ACP-CLIENT-010")
async def test_other_lines_on_its_output_are_skipped_up_to_a_bound(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path, junk=5)
    async with lab.session() as (_, client):
        assert await client.run('say Hi\njunk 900\nraw {"level":"info"}\nraw [1,2]\nsay  there') == ev.RunFinished(
            stop_reason="end_turn"
        )
        assert [event.text for event in client.events(ev.AssistantText)] == ["Hi there"]
        failed = await client.run("junk 1100\nstuck")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message.startswith(
            "Scripted does not speak the Agent Client Protocol: its output has other lines"
        )


async def test_text_that_no_log_holds_is_replaced(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a\0b\ud800\U0001f600"}}
    line = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "?", "update": update}}
    async with lab.session() as (_, client):
        await client.run("say Hi")
        line["params"]["sessionId"] = lab.heard_of("session/prompt")[0]["sessionId"]  # type: ignore[index]
        await client.run(f"raw {json.dumps(line)}")
    assert client.events(ev.AssistantText)[-1].text == "a\ufffdb\ufffd\U0001f600"


@pytest.mark.parametrize(
    ("said", "logged"),
    [("max_tokens", "max_tokens"), ("max_turn_requests", "max_turns"), ("refusal", "refusal"), ("newer", "end_turn")],
)
async def test_why_an_answer_ended_is_the_end_of_the_run(tmp_path: Path, said: str, logged: str) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        assert await client.run(f"stop {said}") == ev.RunFinished(stop_reason=logged)  # type: ignore[arg-type]


async def test_a_refused_prompt_fails_the_run_and_keeps_the_agent(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        failed = await client.run("say Half\nfail -32603 the model is gone")
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message) == ("agent_failed", "Scripted refused session/prompt: the model is gone.")
        assert await client.run("say Hi") == ev.RunFinished(stop_reason="end_turn")
    assert len(lab.transports) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"details": "API key\nexpired"}, "Internal error: API key expired"),
        ({"message": "No \x1b[31mmoney"}, "Internal error: No \\x1b[31mmoney"),
        ("quota", "Internal error: quota"),
        ("x" * 5_000, f"Internal error: {'x' * 499}…"),
        ({"details": {"code": 5}}, "Internal error"),
        ({"details": "Internal error"}, "Internal error"),
        ([1], "Internal error"),
    ],
)
async def test_the_details_of_a_refusal_are_in_the_reason_of_the_failed_run(
    tmp_path: Path, data: Any, reason: str
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        failed = await client.run(f"fail -32603 Internal error data={json.dumps(data)}")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == f"Scripted refused session/prompt: {reason}."


@pytest.mark.req("ACP-CLIENT-007")
@pytest.mark.parametrize(("step", "chosen"), [("wait", []), ("ask rm execute", ["cancelled"])])
async def test_a_run_ends_at_its_limit_of_time(tmp_path: Path, step: str, chosen: list[str]) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        ended = await client.run(f"say Hi\n{step}", terms=ev.RunTerms(max_seconds=0.2, max_turns=3))
        assert ended == ev.RunFinished(stop_reason="max_turns")
        assert [notice.code for notice in client.events(ev.Notice)] == ["setting_ignored", "limit_seconds"]
        assert lab.transports[0].agent.chosen == chosen
        assert not lab.transports[0].stopped


async def test_an_agent_that_does_not_answer_at_its_start_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driven_agent, "START_S", 0.1)
    lab = AcpLab(tmp_path, silent=("initialize",))
    async with lab.session() as (_, client):
        failed = await client.run("say Hi")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == "Scripted did not answer initialize: No answer to initialize within 0.1 s."
    assert lab.transports[0].stopped


@pytest.mark.req("ACP-EXT-001", "ACP-EXT-002")
@pytest.mark.parametrize("has_tools", [False, True])
async def test_what_a_client_does_not_offer_is_refused_or_ignored_and_the_prompt_continues(
    tmp_path: Path, has_tools: bool
) -> None:
    lab = AcpLab(tmp_path)
    notification = json.dumps({"jsonrpc": "2.0", "method": "_vendor/said", "params": {"any": [1, None]}})
    async with lab.session(terms=ev.SessionTerms(builtin_tools=has_tools)) as (_, client):
        await client.run(
            f'call _vendor/x {{}}\nraw {notification}\ncall elicitation/create {{"message":"?","mode":"form"}}\nsay .'
        )
        assert client.events(ev.AssistantText)[-1].text == (
            "-32601 This client does not offer _vendor/x.-32601 This client does not offer elicitation/create.."
        )
    assert [method for method, _ in lab.heard] == ["initialize", "session/new", "session/prompt"]
    assert lab.transports[0].agent.calls.malformed == 0


async def test_a_call_that_ends_while_its_question_is_open_withdraws_the_question(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    steps = [
        {"sessionUpdate": "tool_call", "toolCallId": "a", "title": "A", "rawInput": {"x": 1}},
        {"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed"},
    ]
    async with lab.session() as (_, client):
        await client.run("say Hi")
        session_id = lab.heard_of("session/prompt")[0]["sessionId"]
        asks = {
            "jsonrpc": "2.0", "id": "q", "method": "session/request_permission",
            "params": {"sessionId": session_id, "toolCall": {"toolCallId": "a"}, "options": [
                {"optionId": "y", "name": "Y", "kind": "allow_once"}]},
        }  # fmt: skip
        lines = [
            f"update {json.dumps(steps[0])}",
            f"raw {json.dumps(asks)}",
            f"update {json.dumps(steps[1])}",
            "say End",
        ]
        assert await client.run("\n".join(lines)) == ev.RunFinished(stop_reason="end_turn")
        assert [(e.call_id, e.is_error) for e in client.events(ev.ToolFinished)] == [("a", False)]


async def test_a_burst_of_updates_keeps_its_order(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        async with asyncio.timeout(30):
            await client.run("\n".join(f"say {number}," for number in range(5_000)))
        assert client.events(ev.AssistantText)[-1].text == "".join(f"{number}," for number in range(5_000))
