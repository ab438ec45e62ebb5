"""What must hold for agents wherever the server is: in process, as a child, and behind every transport.

Sessions are real and kept on disk; only the model is scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from support.sdk import DEADLINE_S, KINDS, SCENARIO, failure_of, serving
from support.upstream import answers, upstream

import makai

STORY = """
say: Looking.
tool: look {"at": "sea"}
usage: input=12 output=34 cache_read=5
stop: tool_use
---
say: Water.
usage: input=20 output=2 cache_read=6
---
say: As I said, water.
---
when: endless
say: a
stall
---
when: forbidden
say: So far
fail: invalid_request No.
---
when: write
tool: write {"path": "a.txt", "content": "A"}
"""
LOGIN = "test-fixture/scripted@fixture"
START = makai.MessageStartEvent(provider_id="scripted", api="scripted", model_id="scenario")


def look(arguments: dict[str, Any]) -> str:
    return f"I see the {arguments['at']}."


LOOK = makai.AgentTool(name="look", description="Look around", schema={"type": "object"}, execute=look)


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[makai.MakaiClientOptions]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(STORY)
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    environ["MAKAI_TEST_LOGIN"] = "1"
    async with asyncio.timeout(DEADLINE_S), serving(request.param, environ) as options:
        yield options


@pytest.fixture
async def client(server: makai.MakaiClientOptions) -> AsyncIterator[makai.MakaiClient]:
    async with makai.create_makai_client(server) as client:
        yield client


def without_deltas(events: list[makai.AgentStreamEvent]) -> list[makai.AgentStreamEvent]:
    return [event for event in events if not isinstance(event, makai.TextDeltaEvent)]


def text_in(events: list[makai.AgentStreamEvent]) -> str:
    return "".join(event.delta for event in events if isinstance(event, makai.TextDeltaEvent))


@pytest.mark.req("MK-SDK-001", "MK-SDK-035", "MK-AGENT-008", "MK-TOOL-004")
async def test_a_run_is_turns_and_tools_between_one_start_and_one_end(client: makai.MakaiClient) -> None:
    stream = client.agent.stream(model_ref=SCENARIO, messages="What is there?", tools=[LOOK])

    events = [event async for event in stream]

    call_id = next(event.tool_call_id for event in events if isinstance(event, makai.ToolCallEvent))
    assert without_deltas(events) == [
        makai.AgentStartEvent(session_id=stream.session_id),
        makai.TurnStartEvent(),
        START,
        makai.ToolCallEvent(name="look", arguments_json='{"at": "sea"}', tool_call_id=call_id),
        makai.MessageEndEvent(usage=makai.UsageSummary(input=12, output=34, cache_read=5), stop_reason="tool_use"),
        makai.TurnEndEvent(stop_reason="tool_use"),
        makai.ToolExecutionStartEvent(tool_call_id=call_id, tool_name="look"),
        makai.ToolExecutionEndEvent(tool_call_id=call_id),
        makai.TurnStartEvent(),
        START,
        makai.MessageEndEvent(usage=makai.UsageSummary(input=20, output=2, cache_read=6), stop_reason="end_turn"),
        makai.TurnEndEvent(stop_reason="end_turn"),
        makai.AgentEndEvent(stop_reason="end_turn", usage=makai.UsageSummary(input=32, output=36, cache_read=11)),
    ]
    assert text_in(events) == "Looking.Water."
    assert stream.response is not None
    assert stream.response.text == "Water."


@pytest.mark.req("MK-AGENT-013", "MK-AGENT-016")
async def test_run_answers_with_the_completion_shape_and_its_session_goes_on(client: makai.MakaiClient) -> None:
    response = await client.agent.run(model_ref=SCENARIO, messages="What is there?", tools=[LOOK])

    assert response == makai.AgentRunResponse(
        message=makai.ChatMessage(
            role="assistant",
            content=(makai.TextContentPart(text="Water."),),
            provider="scripted",
            api="scripted",
            model="scenario",
            stop_reason="end_turn",
        ),
        usage=makai.UsageSummary(input=32, output=36, cache_read=11, cost_usd=0.0),
        provider_id="scripted",
        api="scripted",
        model_id="scenario",
        stop_reason="end_turn",
        session_id=response.session_id,
        run_id=response.run_id,
    )
    again = await client.agent.run(
        model_ref=SCENARIO,
        messages=["What is there?", response.message, "Again?"],
        options={"session_id": response.session_id},
    )
    assert (again.text, again.session_id) == ("As I said, water.", response.session_id)
    status = await client.agent.status(response.session_id)
    assert (status.status, status.model_ref, status.usage.output) == ("idle", SCENARIO, 36)


@pytest.mark.req("MK-AGENT-022")
async def test_a_new_session_takes_a_conversation_that_was_had_elsewhere(client: makai.MakaiClient) -> None:
    call = makai.ToolCallContentPart(tool_call_id="c1", name="look", arguments_json="{}")
    result = makai.ToolResultContentPart(tool_call_id="c1", tool_name="look", content="Water.")
    asked: list[Any] = ["Hi", {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]

    response = await client.agent.run(model_ref=SCENARIO, messages=asked)

    assert response.text == "Water."  # the second answer: the first one is in the history
    again = await client.agent.run(
        model_ref=SCENARIO, messages=[*asked, response.message, "Again?"], options={"session_id": response.session_id}
    )
    assert (again.text, again.session_id) == ("As I said, water.", response.session_id)


@pytest.mark.req("MK-SDK-035", "MK-TOOL-006")
async def test_a_tool_that_raises_is_an_error_for_the_model_and_the_run_goes_on(client: makai.MakaiClient) -> None:
    async def fail(arguments: dict[str, Any]) -> None:
        raise ValueError("The sea is closed.")

    tool = makai.AgentTool(name="look", execute=fail)
    events = [event async for event in client.agent.stream(model_ref=SCENARIO, messages="Hi", tools=[tool])]

    assert [event.is_error for event in events if isinstance(event, makai.ToolExecutionEndEvent)] == [True]
    assert isinstance(events[-1], makai.AgentEndEvent)


async def test_a_named_session_that_does_not_exist_is_begun_under_its_name(client: makai.MakaiClient) -> None:
    named = str(uuid4())

    response = await client.agent.run(model_ref=SCENARIO, messages="Hi", tools=[LOOK], options={"session_id": named})

    assert (response.session_id, response.text) == (named, "Water.")


async def test_a_session_with_a_name_says_which_id_it_has_elsewhere(client: makai.MakaiClient) -> None:
    await client.agent.run(model_ref=SCENARIO, messages="Hi", tools=[LOOK], options={"session_id": "my session"})

    named = await client.agent.status("my session")
    assert named.log_id == "41e99ed8-4e00-5817-9e88-1b804cf63cdb"
    elsewhere = await client.agent.status(named.log_id)
    assert elsewhere == msgspec.structs.replace(named, session_id=named.log_id, log_id=None)


@pytest.mark.req("MK-AGENT-011", "MK-SDK-026")
async def test_a_failing_run_is_one_error_event_or_one_exception(client: makai.MakaiClient) -> None:
    events = [event async for event in client.agent.stream(model_ref=SCENARIO, messages="forbidden")]
    with pytest.raises(makai.MakaiStreamError, match=r"No\.") as raised:
        await client.agent.run(model_ref=SCENARIO, messages="forbidden")

    assert events[-1] == makai.ErrorEvent(message="No.", code="invalid_request")
    assert [event.type for event in events].count("error") == 1
    assert "agent_end" not in [event.type for event in events]
    assert (raised.value.kind, raised.value.code) == ("unknown", "invalid_request")


@pytest.mark.req("MK-SDK-026")
async def test_a_refused_run_raises_and_yields_nothing(client: makai.MakaiClient) -> None:
    stream = aiter(client.agent.stream(model_ref="scripted/scripted@unknown", messages="Hi"))

    with pytest.raises(makai.MakaiStreamError, match="model not found"):
        await anext(stream)
    assert [event async for event in stream] == []


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "Be brief."}]])
async def test_a_run_without_words_of_the_user_says_what_is_missing(
    client: makai.MakaiClient, messages: list[dict[str, str]]
) -> None:
    with pytest.raises(makai.MakaiStreamError, match="a user message is missing"):
        await client.agent.run(model_ref=SCENARIO, messages=messages)


@pytest.mark.req("MK-SDK-036")
async def test_leaving_a_stream_stops_its_run(client: makai.MakaiClient) -> None:
    stream = client.agent.stream(model_ref=SCENARIO, messages="endless")
    async for event in stream:
        if event.type == "text_delta":
            assert (await client.agent.status(stream.session_id)).status == "running"
            break

    assert (await client.agent.status(stream.session_id)).status == "idle"
    with pytest.raises(makai.MakaiStreamError, match="once"):
        aiter(stream)


@pytest.mark.req("MK-SDK-036")
async def test_a_cancelled_caller_stops_his_run_and_its_tools(client: makai.MakaiClient) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()
    session_id = str(uuid4())

    async def wait(arguments: dict[str, Any]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    tools = [makai.AgentTool(name="look", execute=wait)]
    call = client.agent.run(model_ref=SCENARIO, messages="Hi", tools=tools, options={"session_id": session_id})
    task = asyncio.create_task(call)
    await begun.wait()
    assert (await client.agent.status(session_id)).status == "waiting_for_tool"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert (await client.agent.status(session_id)).status == "idle"
    await cancelled.wait()


@pytest.mark.req("MK-AGENT-017")
async def test_another_client_follows_a_session_and_stops_it(
    client: makai.MakaiClient, server: makai.MakaiClientOptions
) -> None:
    stream = client.agent.stream(model_ref=SCENARIO, messages="endless")
    events = aiter(stream)
    first = [await anext(events) for _ in range(4)]
    async with makai.create_makai_client(server) as other, other.agent.attach(stream.session_id) as follower:
        seen = aiter(follower)
        assert [await anext(seen) for _ in range(4)] == first
        cursor = follower.event_id
        await other.agent.stop(stream.session_id, reason="Enough.")
        rest = [event async for event in seen]

    assert cursor == stream.event_id
    assert rest[-1] == makai.ErrorEvent(message="Enough.", code="aborted")
    assert [event async for event in events] == rest


async def test_a_follower_begins_at_its_cursor_and_sees_run_after_run(
    client: makai.MakaiClient, server: makai.MakaiClientOptions
) -> None:
    first = await client.agent.run(model_ref=SCENARIO, messages="Hi", tools=[LOOK])
    cursor = (await client.agent.status(first.session_id)).event_id
    async with makai.create_makai_client(server) as other:
        async with other.agent.attach(first.session_id, after_event_id=cursor) as follower:
            await client.agent.run(model_ref=SCENARIO, messages="Again?", options={"session_id": first.session_id})
            seen = aiter(follower)
            events = [await anext(seen) for _ in range(7)]
        again = aiter(other.agent.attach(first.session_id, after_event_id=0))
        everything = [event for event in [await anext(again) for _ in range(15)] if event.type == "agent_end"]

    assert (events[0], events[-1]) == (
        makai.AgentStartEvent(session_id=first.session_id),
        makai.AgentEndEvent(stop_reason="end_turn", usage=makai.UsageSummary()),
    )
    assert text_in(events) == "As I said, water."
    assert len(everything) == 1


@pytest.mark.parametrize("decision", [makai.Allow(), makai.Deny(reason="Not today.")])
async def test_the_caller_is_asked_for_permission(
    client: makai.MakaiClient, tmp_path: Path, decision: makai.Allow | makai.Deny
) -> None:
    (folder := tmp_path / "work").mkdir()
    asked: list[makai.PermissionRequest] = []

    def decide(request: makai.PermissionRequest) -> makai.Allow | makai.Deny:
        asked.append(request)
        return decision

    response = await client.agent.run(
        model_ref=SCENARIO,
        messages="write",
        builtin_tools=True,
        cwd=str(folder),
        options={"max_turns": 1},
        on_permission_request=decide,
    )

    assert response.stop_reason == "max_turns"
    assert [(request.tool_name, request.diffs[0].new_text) for request in asked] == [("write", "A")]
    assert (folder / "a.txt").exists() == isinstance(decision, makai.Allow)


async def test_undo_does_what_its_preview_said_and_redo_takes_it_back(
    client: makai.MakaiClient, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    file = folder / "a.txt"
    file.write_text("before\n")
    run = await client.agent.run(
        model_ref=SCENARIO,
        messages="write",
        builtin_tools=True,
        cwd=str(folder),
        mode="accept_edits",
        options={"max_turns": 1},
    )
    session_id = run.session_id or ""

    assert await client.agent.diff(session_id) == (makai.FileChange(path=str(file), old_text="before\n", new_text="A"),)
    plan = await client.agent.undo(session_id, preview=True)
    restored = (makai.FileRestore(path=str(file), kind="change", added=1, removed=1),)
    assert (plan.restored, plan.direction, plan.text, plan.files) == (False, "undo", "write", restored)
    assert file.read_text() == "A"
    refused = await failure_of(client.agent.undo(session_id, plan_id="another"), makai.MakaiStreamError)
    assert (refused.kind, file.read_text()) == ("unknown", "A")

    assert await client.agent.undo(session_id, plan_id=plan.plan_id) == msgspec.structs.replace(plan, restored=True)
    assert (file.read_text(), await client.agent.diff(session_id)) == ("before\n", ())
    assert (await client.agent.redo(session_id, paths=["a.txt"])).files == restored
    await failure_of(client.agent.undo(session_id, paths=["b.txt"]), makai.MakaiStreamError, match="nothing to undo in")
    assert file.read_text() == "A"

    file.write_text("by hand")
    changed = await client.agent.undo(session_id, preview=True)
    assert [file.refusal for file in changed.files] == ["it was changed since"]
    assert changed.is_refused
    await failure_of(client.agent.undo(session_id), makai.MakaiStreamError, match="it was changed since")
    assert file.read_text() == "by hand"


async def test_undo_is_refused_without_changes_and_of_no_session(client: makai.MakaiClient, tmp_path: Path) -> None:
    run = await client.agent.run(model_ref=SCENARIO, messages="Hi", options={"max_turns": 1}, tools=[LOOK])

    await failure_of(client.agent.undo(run.session_id or ""), makai.MakaiStreamError, match="no folder")
    unknown = await failure_of(client.agent.diff(str(uuid4())), makai.MakaiStreamError)
    assert unknown.code == "session_not_found"
    wrong = await failure_of(client.agent.redo(run.session_id or "", count=0), makai.MakaiError)
    assert wrong.code == "invalid_request"
    assert (await client.agent.status(run.session_id or "")).status == "idle"


@pytest.mark.req("MK-AGENT-014", "MK-SDK-028", "MK-SDK-038")
async def test_one_client_logs_in_lists_picks_asks_and_runs(client: makai.MakaiClient) -> None:
    """No line of this knows the provider: everything is what the server listed."""
    needed = [provider for provider in await client.auth.list_providers() if provider.id == "test-fixture"]
    assert [provider.auth_status for provider in needed] == ["login_required"]
    (model,) = (await client.models.list(provider_id=needed[0].id)).models
    refused = await failure_of(client.agent.run(model_ref=model.model_ref, messages="Hi"), makai.MakaiAuthError)
    assert (refused.code, refused.provider_id) == ("auth_required", needed[0].id)

    await client.auth.login(needed[0].id, makai.AuthFlowHandlers(on_prompt=lambda prompt: "ok"))
    answer = await client.provider.complete(model_ref=model.model_ref, messages="Hi")
    run = await client.agent.run(model_ref=model.model_ref, messages="Hi")

    assert run.text == answer.text
    assert "You are logged in" in run.text


@pytest.mark.req("MK-SDK-029")
async def test_auto_once_logs_in_and_the_stream_still_has_one_start_and_one_end(
    server: makai.MakaiClientOptions,
) -> None:
    handlers = makai.AuthFlowHandlers(on_prompt=lambda prompt: "ok")
    options = makai.MakaiClientOptions(
        url=server.url,
        token=server.token,
        command=server.command,
        environ=server.environ,
        auth=makai.AuthOptions(auth_retry_policy="auto_once", handlers=handlers),
    )
    async with makai.create_makai_client(options) as client:
        events = [event async for event in client.agent.stream(model_ref=LOGIN, messages="Hi")]

    types = [event.type for event in events]
    assert (types[0], types[-1]) == ("agent_start", "agent_end")
    assert (types.count("agent_start"), types.count("error")) == (1, 0)
    assert text_in(events).startswith("You are logged in.")


async def test_runs_of_several_sessions_go_on_at_once(client: makai.MakaiClient) -> None:
    async def ask(number: int) -> str:
        def name(arguments: dict[str, Any]) -> str:
            return str(number)

        tools = [makai.AgentTool(name="look", execute=name)]
        return (await client.agent.run(model_ref=SCENARIO, messages=f"I am {number}", tools=tools)).session_id

    assert len(set(await asyncio.gather(*map(ask, range(8))))) == 8


RESPONSE = b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'


@pytest.mark.req("MK-PROV-005")
@pytest.mark.parametrize("kind", ["in_process", "websocket"])
async def test_every_call_tells_which_options_the_vendor_does_not_take(kind: str, tmp_path: Path) -> None:
    environ = {"MAKAI_HOME": str(tmp_path), "HOME": str(tmp_path), "OPENAI_API_KEY": "k"}
    asked: dict[str, Any] = {
        "model_ref": "openai/openai-responses@gpt-5.1",
        "messages": "Hi",
        "options": {"temperature": 0.1, "stop": ["X"]},
    }
    async with (
        asyncio.timeout(DEADLINE_S),
        upstream(answers(RESPONSE)) as vendor,
        serving(kind, environ | {"OPENAI_BASE_URL": vendor.url}) as options,
        makai.create_makai_client(options) as client,
    ):
        streams = client.provider.stream(**asked), client.agent.stream(**asked)
        for stream in streams:
            async for _ in stream:
                pass
        responses: list[Any] = [await client.provider.complete(**asked), await client.agent.run(**asked)]

    warning = "openai does not take `temperature`, `stop` for gpt-5.1 in this request: it was sent without."
    responses += [stream.response for stream in streams]
    assert [response.warnings for response in responses] == [(warning,)] * 4


PROBLEM = b'"error":{"code":"invalid_prompt","message":"No."}'
REFUSED = b'data: {"type":"response.failed","response":{"status":"failed",' + PROBLEM + b"}}\n\n"


@pytest.mark.req("MK-PROV-005")
@pytest.mark.parametrize("kind", ["in_process", "websocket"])
async def test_a_run_that_failed_tells_which_options_the_vendor_does_not_take(kind: str, tmp_path: Path) -> None:
    environ = {"MAKAI_HOME": str(tmp_path), "HOME": str(tmp_path), "OPENAI_API_KEY": "k"}
    async with (
        asyncio.timeout(DEADLINE_S),
        upstream(answers(REFUSED)) as vendor,
        serving(kind, environ | {"OPENAI_BASE_URL": vendor.url}) as options,
        makai.create_makai_client(options) as client,
    ):
        with pytest.raises(makai.MakaiStreamError) as failed:
            await client.agent.run(model_ref="openai/openai-responses@gpt-5.1", messages="Hi", options={"stop": ["X"]})

    warning = "openai does not take `stop` for gpt-5.1 in this request: it was sent without."
    assert failed.value.warnings == (warning,)
