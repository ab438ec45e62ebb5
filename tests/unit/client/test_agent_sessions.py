"""Sessions on one connection: what is sent when, and what becomes of callers who leave, lose or share them.

The server is played by the test, so that every order of events can happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.sdk import DEADLINE_S, JSON, SCENARIO, TOKEN, FakeServer, failure_of, fake_server, listening, sessions_of

import makai
from makai.providers.runtime import ModelRuntime

RUN = "run-1"


class Stage:
    """A client, and the server that the test plays."""

    def __init__(self, client: makai.MakaiClient, server: FakeServer) -> None:
        self.client = client
        self.server = server
        self.session_id = str(uuid4())

    def run(self, **fields: Any) -> asyncio.Task[makai.AgentRunResponse]:
        call = self.client.agent.run(model_ref="m", messages="Hi", options={"session_id": self.session_id}, **fields)
        return asyncio.create_task(call)

    async def running(self, **fields: Any) -> tuple[asyncio.Task[makai.AgentRunResponse], JSON]:
        """A run that the client has started, and the message that started it."""
        task = self.run(**fields)
        await self.start()
        return task, await self.message()

    async def finished(self) -> makai.AgentRunResponse:
        """The answer of a whole run; the session is not let go of yet."""
        task, message = await self.running()
        await self.settle(message)
        return await task

    async def execute(self, message: JSON, **arguments: Any) -> None:
        call = {"tool_call_id": "c1", "tool_name": "look", "arguments": arguments, "run_id": RUN}
        await self.server.say(message, "tool_execute", call)

    async def start(self, start: JSON | None = None) -> JSON:
        """The client attaches; its `agent_start`."""
        start = start or await self.server.expect("agent_start")
        await self.server.ack(start)
        payload = {"session_id": self.session_id, "model_ref": "m", "event_id": 1, "resumed": True}
        await self.server.say(start, "agent_started", payload, in_reply_to=start["message_id"])
        return start

    async def message(self) -> JSON:
        """The client says something, which is accepted."""
        message = await self.server.accept("agent_message")
        await self.event(message, {"type": "agent_start", "session_id": self.session_id}, event_id=2)
        return message

    async def event(self, request: JSON, event: JSON, run_id: str = RUN, **fields: Any) -> None:
        await self.server.say(request, "agent_event", {"event": event, "run_id": run_id} | fields)

    def stream(self) -> makai.AgentStream:
        options = {"session_id": self.session_id}
        return self.client.agent.stream(model_ref="m", messages="Hi", options=options)

    async def settle(self, message: JSON, task: asyncio.Task[Any] | None = None) -> None:
        """The run ends; `task` is the caller that waits for it."""
        await self.event(message, {"type": "agent_end", "stop_reason": "end_turn", "usage": {"input": 1, "output": 2}})
        result = {
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
            "usage": {"input": 1, "output": 2},
            "provider_id": "acme",
            "api": "x",
            "model_id": "m",
            "stop_reason": "end_turn",
            "run_id": RUN,
        }
        await self.server.say(message, "agent_result", result, in_reply_to=message["message_id"])
        if task is not None:
            await task

    async def let_go(self) -> JSON:
        """The client lets go of the session; the payload of its `agent_stop`."""
        stop = await self.server.accept("agent_stop")
        await self.server.say(stop, "agent_stopped", {"session_id": self.session_id}, in_reply_to=stop["message_id"])
        self.server.restart(stop)
        payload: JSON = stop["payload"]
        return payload

    async def permission(self, message: JSON, **fields: Any) -> None:
        payload = {"tool_call_id": "c1", "tool_name": "write", "arguments": {}, "digest": "d", "run_id": RUN} | fields
        await self.server.say(message, "permission_request", payload)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    channel, server = fake_server()
    async with asyncio.timeout(DEADLINE_S), makai.connect(channel=channel) as client:
        yield Stage(client, server)


def refused(task: asyncio.Task[Any]) -> Awaitable[makai.MakaiStreamError]:
    return failure_of(task, makai.MakaiStreamError)


async def test_a_session_is_let_go_of_when_its_run_is_over_and_taken_up_again_from_one(stage: Stage) -> None:
    for _ in range(2):
        task = stage.run()
        start = await stage.start()
        message = await stage.message()
        await stage.settle(message)
        assert (await task).text == "Done."
        assert [start["sequence"], message["sequence"]] == [1, 2]
        assert (start["payload"]["resume"], message["payload"]["options"]) == (True, {})
        assert await stage.let_go() == {"detach": True}


async def test_the_next_use_of_a_session_waits_until_it_was_let_go_of(stage: Stage) -> None:
    await stage.finished()
    second = asyncio.create_task(stage.client.agent.status(stage.session_id))
    await stage.let_go()
    question = await stage.server.expect("agent_status")
    await stage.server.nack(question, "session_not_found")

    assert (await refused(second)).code == "session_not_found"
    assert question["sequence"] == 1


async def test_a_run_that_waited_for_its_session_lets_go_of_it_too(stage: Stage) -> None:
    await stage.finished()
    second = stage.run()
    await asyncio.sleep(0)
    assert await stage.let_go() == {"detach": True}
    await stage.start()
    await stage.settle(await stage.message())

    assert (await second).text == "Done."
    assert await stage.let_go() == {"detach": True}


async def test_questions_while_attached_are_asked_in_the_same_scope(stage: Stage) -> None:
    task, message = await stage.running()
    asking = asyncio.create_task(stage.client.agent.status(stage.session_id))
    question = await stage.server.expect("agent_status")
    info = {
        "session_id": stage.session_id,
        "status": "dreaming",
        "model_ref": "m",
        "mode": "ask",
        "event_id": 3,
        "created_at": 1,
        "updated_at": 2,
        "usage": {"input": 0, "output": 0},
        "pending_permissions": [],
    }
    await stage.server.ack(question)
    await stage.server.say(question, "session_info", info, in_reply_to=question["message_id"])
    assert (question["sequence"], (await asking).status) == (3, "dreaming")
    await stage.settle(message)
    assert (await task).usage == makai.UsageSummary(input=1, output=2)


async def test_a_session_in_use_by_this_client_is_busy(stage: Stage) -> None:
    task, message = await stage.running()

    assert (await refused(stage.run())).code == "agent_busy"
    await stage.settle(message)
    assert (await task).text == "Done."


@pytest.mark.req("MK-SDK-026")
async def test_a_session_that_is_busy_is_left_alone(stage: Stage) -> None:
    """Stopping it would stop the run of another client."""
    task = stage.run()
    await stage.start()
    message = await stage.server.expect("agent_message")
    busy = {"code": "agent_busy", "message": "A run is active."}
    await stage.server.say(message, "agent_error", busy, in_reply_to=message["message_id"])

    assert (await refused(task)).code == "agent_busy"
    assert await stage.let_go() == {"detach": True}


async def test_who_leaves_before_his_words_are_answered_stops_only_a_run_of_his_own(stage: Stage) -> None:
    for accepted in (True, False):
        task = stage.run()
        await stage.start()
        message = await stage.server.expect("agent_message")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if accepted:
            await stage.server.ack(message)
        else:
            await stage.server.nack(message, "agent_busy")
        assert await stage.let_go() == ({} if accepted else {"detach": True})


async def test_who_leaves_while_the_session_is_opened_lets_go_of_it(stage: Stage) -> None:
    task = stage.run()
    start = await stage.server.expect("agent_start")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = stage.run()
    await stage.start(start)
    assert await stage.let_go() == {"detach": True}
    await stage.start()
    await stage.settle(await stage.message())

    assert (await again).text == "Done."


async def test_events_of_other_runs_and_of_later_versions_are_not_told(stage: Stage) -> None:
    stream = stage.stream()
    task = asyncio.create_task(_collected(stream))
    start = await stage.start()
    await stage.event(start, {"type": "agent_start", "session_id": stage.session_id}, run_id="another")
    message = await stage.server.expect("agent_message")
    await stage.event(start, {"type": "text_delta", "delta": "not ours"}, run_id="another")
    await stage.server.ack(message)
    await stage.event(message, {"type": "agent_start", "session_id": stage.session_id})
    await stage.event(message, {"type": "daydream", "about": "sheep"})
    await stage.event(message, {"type": "text_delta", "delta": "ours"}, event_id=9)
    await stage.settle(message)

    assert await task == [
        makai.AgentStartEvent(session_id=stage.session_id),
        makai.TextDeltaEvent("ours"),
        makai.AgentEndEvent(stop_reason="end_turn", usage=makai.UsageSummary(input=1, output=2)),
    ]
    assert stream.event_id == 9


async def _collected(events: Any) -> list[Any]:
    return [event async for event in events]


@pytest.mark.req("MK-SDK-035", "MK-TOOL-003", "MK-TOOL-007")
@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("Water.", {"content": "Water."}),
        (None, {"content": ""}),
        ({"depth": [1, 2]}, {"content": '{"depth":[1,2]}'}),
        ([makai.TextContentPart(text="a")], {"content": [{"type": "text", "text": "a"}]}),
        (makai.AgentToolResult(content="no", is_error=True, details_json="{}"), {"content": "no", "is_error": True}),
        (ValueError("Storm."), {"content": "ValueError: Storm.", "is_error": True}),
        (KeyError(), {"content": "KeyError", "is_error": True}),
        pytest.param({1, object()}, {"is_error": True}, id="no JSON"),
    ],
    ids=str,
)
async def test_what_a_tool_answers_or_raises_is_its_result(stage: Stage, answer: Any, sent: JSON) -> None:
    def execute(arguments: dict[str, Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    task = stage.run(tools=[{"name": "look", "execute": execute}])
    start = await stage.start()
    message = await stage.message()
    await stage.execute(message, at="sea")
    result = (await stage.server.expect("tool_result"))["payload"]
    await stage.settle(message, task)

    tool = {"name": "look", "description": "", "parameters_schema_json": '{"type":"object"}'}
    assert start["payload"]["tools"] == [tool]
    assert result.items() >= ({"tool_call_id": "c1"} | sent).items()


async def test_a_tool_without_a_function_fails_and_the_run_goes_on(stage: Stage) -> None:
    task, message = await stage.running(tools=[{"name": "look", "description": "", "parameters_schema_json": "{}"}])
    await stage.execute(message)
    result = (await stage.server.expect("tool_result"))["payload"]
    await stage.settle(message)

    assert (result["is_error"], (await task).text) == (True, "Done.")


@pytest.mark.req("MK-TOOL-010")
@pytest.mark.parametrize("ending", ["tool_execution_end", "agent_error", "lost"])
async def test_a_tool_whose_answer_nobody_wants_is_cancelled(stage: Stage, ending: str) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def wait(arguments: dict[str, Any]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    task, message = await stage.running(tools=[makai.AgentTool(name="look", execute=wait)])
    await stage.execute(message)
    await begun.wait()
    if ending == "tool_execution_end":
        await stage.event(message, {"type": ending, "tool_call_id": "c1", "is_error": True})
    elif ending == "agent_error":
        aborted = {"code": "aborted", "message": "stopped", "run_id": RUN}
        await stage.server.say(message, "agent_error", aborted, in_reply_to=message["message_id"])
    else:
        await stage.server.channel.close()
    await over.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("decision", "grant", "sent"),
    [
        (makai.Allow(scope="always"), "Write(a)", {"decision": "approve", "scope": "always", "digest": "d"}),
        (makai.Allow(scope="session"), "", {"decision": "approve", "digest": "d"}),
        (makai.Deny(reason="No."), "Write(a)", {"decision": "deny", "reason": "No."}),
        (ValueError("?"), "", {"decision": "deny", "reason": "the permission handler failed: ValueError: ?"}),
    ],
    ids=str,
)
async def test_what_the_caller_decides_is_answered(stage: Stage, decision: Any, grant: str, sent: JSON) -> None:
    async def decide(request: makai.PermissionRequest) -> Any:
        if isinstance(decision, Exception):
            raise decision
        return decision

    task, message = await stage.running(on_permission_request=decide)
    await stage.permission(message, **({"grant": grant} if grant else {}))
    answer = await stage.server.expect("permission_response")
    await stage.settle(message, task)

    assert answer["payload"] == {"tool_call_id": "c1"} | sent


async def test_a_question_that_others_decide_is_withdrawn_and_none_leaves_it_to_them(stage: Stage) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def decide(request: makai.PermissionRequest) -> makai.Allow | None:
        if request.tool_name == "read":
            return None
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return makai.Allow()

    task, message = await stage.running(on_permission_request=decide)
    await stage.permission(message, tool_call_id="c0", tool_name="read")
    await stage.permission(message)
    await asked.wait()
    settled = {"tool_call_id": "c1", "decision": "deny", "by": "other"}
    await stage.server.say(message, "permission_settled", settled)
    await withdrawn.wait()
    await stage.settle(message, task)

    assert await stage.let_go() == {"detach": True}


async def test_without_a_handler_the_decision_is_left_to_others(stage: Stage) -> None:
    task, message = await stage.running()
    await stage.permission(message)
    await stage.settle(message, task)

    assert await stage.let_go() == {"detach": True}


async def test_a_session_that_is_deleted_ends_its_followers_with_its_reason(stage: Stage) -> None:
    task = asyncio.create_task(_collected(stage.client.agent.attach(stage.session_id)))
    start = await stage.start()
    await stage.event(start, {"type": "agent_start", "session_id": stage.session_id})
    stopped = {"session_id": stage.session_id, "reason": "the session was deleted"}
    await stage.server.say(start, "agent_stopped", stopped)
    failure = await refused(task)

    assert (failure.code, failure.message) == ("session_closed", "the session was deleted")


async def test_a_follower_hears_failures_of_others_as_events_and_leaves_without_stopping(stage: Stage) -> None:
    follower = stage.client.agent.attach(stage.session_id, after_event_id=7)
    starting = asyncio.create_task(stage.start())
    async with follower:
        start = await starting
        await stage.event(start, {"type": "error", "message": "no", "code": "auth_required"}, event_id=8)
        failure = {"code": "auth_required", "message": "Log in.", "provider_id": "acme", "run_id": RUN}
        await stage.server.say(start, "agent_error", failure)
        heard = await anext(aiter(follower))

    assert heard == makai.ErrorEvent(message="Log in.", code="auth_required", provider_id="acme")
    assert (follower.event_id, start["payload"]) == (8, {"resume": True, "after_event_id": 7})
    assert await stage.let_go() == {"detach": True}


@pytest.mark.parametrize("session_id", ["", "x" * 257])
async def test_what_is_no_session_id_is_refused_at_once(stage: Stage, session_id: str) -> None:
    with pytest.raises(makai.InvalidRequest, match="1 to 256 characters"):
        stage.client.agent.attach(session_id)
    with pytest.raises(makai.InvalidRequest, match="1 to 256 characters"):
        stage.client.agent.stream(model_ref="m", messages="Hi", options={"session_id": session_id})


async def test_a_malformed_event_fails_its_run_and_nothing_else(stage: Stage) -> None:
    task, message = await stage.running()
    await stage.event(message, {"type": "text_delta", "delta": 7})

    failure = await refused(task)
    assert (failure.kind, failure.code) == ("transport_error", "parse_error")
    await stage.let_go()
    assert (await refused_status(stage)).code == "session_not_found"


async def test_events_that_nobody_reads_are_bounded_and_the_session_is_let_go_of(stage: Stage) -> None:
    stage.client._connection.unread_bytes = 2000
    stream = stage.stream()
    events = aiter(stream)
    first = asyncio.ensure_future(anext(events))
    await stage.start()
    message = await stage.message()
    assert (await first).type == "agent_start"
    for _ in range(20):
        await stage.event(message, {"type": "text_delta", "delta": "word " * 20})
    assert await stage.let_go() == {"detach": True}

    failure = await refused(asyncio.create_task(_collected(events)))
    assert (failure.kind, failure.code) == ("transport_error", "overloaded")


async def refused_status(stage: Stage) -> makai.MakaiStreamError:
    asking = asyncio.create_task(stage.client.agent.status(stage.session_id))
    await stage.server.nack(await stage.server.expect("agent_status"), "session_not_found")
    return await refused(asking)


async def test_a_server_without_agents_says_so(stage: Stage) -> None:
    task = stage.run()
    await stage.server.nack(await stage.server.expect("agent_start"), "not_implemented")

    assert (await refused(task)).code == "not_implemented"


@pytest.mark.req("MK-AGENT-021", "MK-SDK-027", "MK-TOOL-010")
async def test_a_lost_connection_is_a_typed_error_and_the_session_goes_on(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("tool: look {}\n---\nsay: No answer.\n")
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home")}
    async with asyncio.timeout(DEADLINE_S), ModelRuntime(environ) as runtime, sessions_of(runtime) as sessions:
        async with AsyncExitStack() as stack, AsyncExitStack() as network:
            url = await network.enter_async_context(listening("websocket", runtime, sessions))
            client = await stack.enter_async_context(makai.connect(url, token=TOKEN))
            tools = [makai.AgentTool(name="look", execute=_never)]
            stream = client.agent.stream(model_ref=SCENARIO, messages="Hi", tools=tools)
            events = aiter(stream)
            while (await anext(events)).type != "tool_execution_start":
                pass
            await network.aclose()
            failure = await refused(asyncio.create_task(_collected(events)))
        async with listening("websocket", runtime, sessions) as url, makai.connect(url, token=TOKEN) as client:
            rest = []
            async for event in client.agent.attach(stream.session_id, after_event_id=stream.event_id):
                rest.append(event)
                if event.type == "agent_end":
                    break

    assert failure.kind == "transport_error"
    assert stream.session_id in str(failure)
    assert rest[0].type == "tool_execution_end"
    assert rest[0].is_error
    assert "".join(event.delta for event in rest if event.type == "text_delta") == "No answer."


async def _never(arguments: dict[str, Any]) -> None:
    await asyncio.Event().wait()


async def test_another_agent_is_named_in_the_start_and_needs_no_model(stage: Stage) -> None:
    run = stage.client.agent.run(agent="gemini", messages="Hi", cwd="/work", options={"session_id": stage.session_id})
    task = asyncio.create_task(run)
    start = await stage.server.expect("agent_start")
    assert start["payload"] == {"agent": "gemini", "cwd": "/work", "resume": True}
    await stage.start(start)
    await stage.settle(await stage.message(), task)
    with pytest.raises(makai.MakaiError, match="model_ref is missing"):
        await stage.client.agent.run(messages="Hi")


@pytest.mark.req("MK-SDK-029")
async def test_a_message_that_needs_a_login_is_sent_again_in_the_session_that_was_begun_for_it() -> None:
    channel, server = fake_server()
    auth = makai.AuthOptions(auth_retry_policy="auto_once")
    async with asyncio.timeout(DEADLINE_S), makai.connect(channel=channel, auth=auth) as client:
        stage = Stage(client, server)
        task = asyncio.create_task(client.agent.run(model_ref="m", messages="Hi"))
        begun = await server.expect("agent_start")
        stage.session_id = begun["session_id"]
        await stage.start(begun)
        await server.nack(await server.expect("agent_message"), "auth_required", provider_id="acme")
        await stage.let_go()
        login = await server.accept("auth_login_start")
        result = {"flow_id": login["stream_id"], "provider_id": "acme", "status": "success"}
        await server.say(login, "auth_login_result", result)
        again = await stage.start()
        await stage.settle(await stage.message(), task)

    assert (begun["payload"].get("resume", False), again["payload"]["resume"]) == (False, True)
    assert again["session_id"] == begun["session_id"]
