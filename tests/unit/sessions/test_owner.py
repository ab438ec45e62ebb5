"""Sessions in the process that owns them: commands in, durable events out, and every follower sees the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.live_sessions import Desk, decoded, desk, kind_of, new_session, owned_sessions, refused, whole_log
from support.troubled_log import TroubledLog

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import InvalidRequest, SessionRefused
from makai.core.messages import AssistantMessage, ToolMessage
from makai.core.request import StreamOptions, ToolDefinition
from makai.core.usage import Usage
from makai.harness.base import ToolAnswer, ToolRequest
from makai.providers.runtime import ModelRuntime
from makai.sessions import requests as req
from makai.sessions.commands import Abort, ApproveCall, Compact, DenyCall, SetModel, SetTitle
from makai.sessions.conversation import conversation
from makai.sessions.state import fold

HELLO = "say: Hello to you.\nusage: input=5 output=4\n---\nsay: Hello again.\nusage: input=9 output=2"
LONG = "repeat: 2000 word\n---\nsay: Yes.\n---\nwhen: summary\nsay: They said hello."
TOUCHES = 'tool: shell {"command": "touch made"}\n---\nsay: Then not.'
SLOW = "say: One.\npace: 5ms\nrepeat: 100000 word"
WEATHER = ToolDefinition(name="weather", description="The weather.", parameters_schema_json='{"type":"object"}')
ASKS_WEATHER = 'tool: weather {"city": "Oslo"}\n---\nsay: It is fine.'


@pytest.fixture
def log() -> TroubledLog:
    return TroubledLog()


async def said_in(log: TroubledLog, session_id: str) -> list[object]:
    """What a model is told was said in the session."""
    return [getattr(message, "content", None) for message in (await conversation(log, session_id)).messages()]


async def test_a_message_is_answered_and_everything_about_it_is_in_the_log(tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO) as (sessions, client):
        assert await client.run("Hi") == ev.RunFinished(
            stop_reason="end_turn", usage=Usage(input=5, output=4, cost_usd=0.0)
        )
        assert client.kinds() == [
            "session_created", "run_started", "run_status", "user_message", "run_status", "title_changed",
            "turn_started", "text_delta", "assistant_text", "turn_ended", "usage", "run_status", "run_finished",
        ]  # fmt: skip
        assert client.events(ev.AssistantText) == [ev.AssistantText(content_index=0, text="Hello to you.")]
        assert client.seen == await whole_log(sessions, client.session_id)
        assert fold(client.seen) == await sessions.dispatch(req.GetState(client.session_id))


async def test_the_next_message_continues_the_conversation(log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO, log) as (_, client):
        for words in ("Hi", "Again"):
            await client.run(words)
        said = ["Hi", (Text(text="Hello to you."),), "Again", (Text(text="Hello again."),)]
        assert await said_in(log, client.session_id) == said
        assert client.events(ev.TitleChanged) == [ev.TitleChanged(title="Hi")]


async def test_every_cursor_reads_the_rest_of_the_log_and_nothing_else(tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO) as (sessions, client):
        await client.run("Hi")
        for cursor in range(len(client.seen)):
            follower = sessions.follow(client.session_id, cursor)
            assert decoded(await follower.next()) == client.seen[cursor:]
            follower.close()
            assert await follower.next() == []


async def test_a_follower_that_wants_no_deltas_gets_everything_else(tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO) as (sessions, client):
        await client.run("Hi")
        follower = sessions.follow(client.session_id, deltas=False)
        without = decoded(await follower.next())
        assert without == [
            logged for logged, kind in zip(client.seen, client.kinds(), strict=True) if "delta" not in kind
        ]
        follower.close()


@pytest.mark.proof("limit-runs")
async def test_a_session_with_a_run_is_busy_unless_words_may_wait(tmp_path: Path) -> None:
    async with new_session(tmp_path, "pace: 1ms\nrepeat: 300 word\n---\nsay: Second.") as (_, client):
        await client.send("First")
        with refused("BUSY", match="active"):
            await client.send("Too early")
        await client.send("Later", delivery="queue")
        await client.until_settled()
        assert await client.until_settled() == ev.RunFinished(stop_reason="end_turn", usage=Usage(cost_usd=0.0))
        assert [event.content for event in client.events(ev.UserInput)] == ["First", "Later"]


async def test_steering_words_are_read_between_two_turns_of_the_run(tmp_path: Path) -> None:
    async with new_session(tmp_path, ASKS_WEATHER, terms=ev.SessionTerms(tools=(WEATHER,))) as (sessions, client):
        steered = asyncio.Event()

        async def execute(request: ToolRequest) -> ToolAnswer:
            await client.send("In Celsius, please.", delivery="steer")
            steered.set()
            return ToolAnswer(content=(Text(text="sunny"),))

        await sessions.register_executor(client.session_id, execute)
        await client.run("Weather?")
        assert steered.is_set()
        assert [event.content for event in client.events(ev.UserInput)] == ["Weather?", "In Celsius, please."]
        assert client.kinds().count("run_started") == 1


async def test_a_repeated_client_message_id_has_no_second_effect(tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO) as (sessions, client):
        for _ in range(3):
            await client.send("Hi", client_msg_id="same")
        await client.until_settled()
        await client.send("Hi", client_msg_id="same")
        assert [event.content for event in client.events(ev.UserInput)] == ["Hi"]
        assert len(await whole_log(sessions, client.session_id)) == len(client.seen)


async def test_an_abort_ends_the_run_and_what_was_said_stays(log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, SLOW, log) as (_, client):
        await client.send("Count")
        await client.until(lambda logged: len(client.seen) > 12)
        await client.do(Abort(now=0, by="tester"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert client.events(ev.RunAborted) == [ev.RunAborted(by="tester", token="local")]
        assert client.kinds()[-2:] == ["run_status", "run_finished"]
        spoken = (await conversation(log, client.session_id)).messages()[-1]
        assert isinstance(spoken, AssistantMessage)
        assert isinstance(spoken.content[0], Text)
        assert spoken.content[0].text.startswith("One.")


async def test_an_abort_without_a_run_is_refused(tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO) as (_, client):
        with refused("NOT_RUNNING"):
            await client.do(Abort(now=0))


async def test_what_is_not_there_is_said_to_be_unknown(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, HELLO) as sessions:
        for attempt in (
            sessions.dispatch(req.RunCommand("unknown", Abort(now=0))),
            sessions.dispatch(req.GetState("unknown")),
            sessions.follow("unknown").next(),
        ):
            with refused("UNKNOWN_SESSION"):
                await attempt
        client = await desk(sessions)
        with refused("UNKNOWN_CALL_ID"):
            await client.do(ApproveCall(now=0, call_id="nothing", by="tester"))


async def test_a_taken_id_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO) as (sessions, client):
        with refused("SESSION_EXISTS"):
            await sessions.dispatch(req.CreateSession(model_ref="x/y", session_id=client.session_id))
        missing = req.CreateSession(
            model_ref="x/y", cwd=str(tmp_path / "gone"), terms=ev.SessionTerms(builtin_tools=True)
        )
        with pytest.raises(InvalidRequest, match="is not a folder"):
            await sessions.dispatch(missing)


async def test_a_model_that_does_not_exist_fails_the_run_and_not_the_session(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, HELLO) as sessions:
        client = Desk(sessions, await sessions.dispatch(req.CreateSession(model_ref="unknown/nothing")))
        failed = await client.run("Hi")
        assert isinstance(failed, ev.RunFailed)
        assert failed.code == "invalid_request"
        await client.do(SetModel(now=0, model_ref="scripted/scenario"))
        assert isinstance(await client.run("Hi"), ev.RunFinished)


async def test_a_client_carries_out_the_tools_it_declared(tmp_path: Path) -> None:
    async with new_session(tmp_path, ASKS_WEATHER, terms=ev.SessionTerms(tools=(WEATHER,))) as (sessions, client):
        asked: list[ToolRequest] = []

        async def execute(request: ToolRequest) -> ToolAnswer:
            asked.append(request)
            return ToolAnswer(content=(Text(text="sunny"),), details_json='{"degrees":21}')

        await sessions.register_executor(client.session_id, execute)
        assert (await client.run("Weather?")).usage is not None
        (finished,) = client.events(ev.ToolFinished)
        assert [(request.name, dict(request.arguments)) for request in asked] == [("weather", {"city": "Oslo"})]
        assert finished == ev.ToolFinished(
            call_id=asked[0].call_id, content=(Text(text="sunny"),), details_json='{"degrees":21}'
        )


async def test_a_declared_tool_without_its_client_fails_and_the_run_continues(tmp_path: Path) -> None:
    async with new_session(tmp_path, ASKS_WEATHER, terms=ev.SessionTerms(tools=(WEATHER,))) as (_, client):
        assert isinstance(await client.run("Weather?"), ev.RunFinished)
        (finished,) = client.events(ev.ToolFinished)
        assert finished.is_error
        assert isinstance(finished.content[0], Text)
        assert "tool_unavailable" in finished.content[0].text


async def test_a_client_that_leaves_during_a_call_fails_it_and_the_run_continues(tmp_path: Path) -> None:
    async with new_session(tmp_path, ASKS_WEATHER, terms=ev.SessionTerms(tools=(WEATHER,))) as (sessions, client):
        cancelled = asyncio.Event()

        async def execute(request: ToolRequest) -> ToolAnswer:
            executor.unregister()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

        executor = await sessions.register_executor(client.session_id, execute)
        assert isinstance(await client.run("Weather?"), ev.RunFinished)
        assert cancelled.is_set()
        assert client.events(ev.AssistantText)[-1].text == "It is fine."


async def test_a_limit_of_a_run_ends_it_and_not_the_next_one(tmp_path: Path) -> None:
    async with new_session(tmp_path, ASKS_WEATHER, terms=ev.SessionTerms(tools=(WEATHER,))) as (_, client):
        for terms, reason in ((ev.RunTerms(max_turns=1), "max_turns"), (ev.RunTerms(), "end_turn")):
            settled = await client.run("Weather?", terms=terms)
            assert isinstance(settled, ev.RunFinished)
            assert settled.stop_reason == reason


async def test_the_thinking_level_of_a_session_counts_where_a_run_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    efforts: list[str | None] = []
    stream = ModelRuntime.stream

    def recording(models: ModelRuntime, model: Any, context: Any, options: StreamOptions) -> Any:
        efforts.append(options.reasoning_effort)
        return stream(models, model, context, options)

    monkeypatch.setattr(ModelRuntime, "stream", recording)
    async with new_session(tmp_path, HELLO, terms=ev.SessionTerms(reasoning_effort="low")) as (_, client):
        await client.run("Hi")
        await client.run("Hi", terms=ev.RunTerms(options=StreamOptions(reasoning_effort="high")))
    assert efforts == ["low", "high"]


async def test_a_fork_continues_the_conversation_up_to_its_event_and_leaves_the_origin_alone(
    log: TroubledLog, tmp_path: Path
) -> None:
    async with new_session(tmp_path, HELLO, log) as (sessions, origin):
        await origin.run("Hi")
        at = len(origin.seen)
        await origin.run("Again")
        before = await whole_log(sessions, origin.session_id)
        made = await sessions.dispatch(req.ForkSession(origin=origin.session_id, at=at))
        fork = Desk(sessions, made, after=(await sessions.dispatch(req.GetState(made))).last_event_id)
        await fork.run("Elsewhere")
        said = ["Hi", (Text(text="Hello to you."),), "Elsewhere", (Text(text="Hello again."),)]
        assert await said_in(log, fork.session_id) == said
        assert await whole_log(sessions, origin.session_id) == before


async def test_a_fork_is_whole_by_itself_also_when_its_origin_is_deleted(log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO, log) as (sessions, origin):
        await origin.run("Hi")
        fork = await sessions.dispatch(req.ForkSession(origin=origin.session_id))
        copy = await whole_log(sessions, fork)
        assert [kind_of(logged.event) for logged in copy] == [
            "session_created", "run_started", "run_status", "user_message", "run_status", "turn_started",
            "assistant_text", "turn_ended", "usage", "run_status", "run_finished",
        ]  # fmt: skip
        assert fold(copy) == await sessions.dispatch(req.GetState(fork))
        assert await sessions.dispatch(req.DeleteSession(origin.session_id))
        client = Desk(sessions, fork, after=len(copy))
        await client.run("Again")
        said = ["Hi", (Text(text="Hello to you."),), "Again", (Text(text="Hello again."),)]
        assert await said_in(log, fork) == said


async def test_a_fork_of_a_compacted_session_continues_its_summary(log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, LONG, log) as (sessions, client):
        await client.run("Hi")
        await client.do(Compact(now=0, input_id="c1"))
        await client.until_settled()
        await client.run("And?")
        fork = await sessions.dispatch(req.ForkSession(origin=client.session_id))
        assert await said_in(log, fork) == await said_in(log, client.session_id)


async def test_a_compaction_replaces_the_conversation_for_the_model_only(log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, LONG, log) as (_, client):
        await client.run("Hi")
        await client.do(Compact(now=0, input_id="c1"))
        assert isinstance(await client.until_settled(), ev.RunFinished)
        summary = "They said hello.\n\nThe user's last message was:\nHi"
        assert [event.summary for event in client.events(ev.Compacted)] == [summary]
        assert len(await said_in(log, client.session_id)) == 1
        assert isinstance(await client.run("Still there?"), ev.RunFinished)


async def test_a_deleted_session_ends_its_run_and_its_followers(tmp_path: Path) -> None:
    async with new_session(tmp_path, SLOW) as (sessions, client):
        await client.send("Count")
        await client.until(lambda logged: len(client.seen) > 8)
        assert await sessions.dispatch(req.DeleteSession(client.session_id))
        with refused("UNKNOWN_SESSION"):
            await client.until(lambda logged: False)
        assert await sessions.dispatch(req.ListSessions()) == []
        assert not await sessions.dispatch(req.DeleteSession(client.session_id))


async def test_settings_of_one_client_reach_all_others(tmp_path: Path) -> None:
    async with new_session(tmp_path, HELLO) as (sessions, client):
        other = Desk(sessions, client.session_id)
        await client.do(SetTitle(now=0, title="Ours"))
        await other.until(lambda logged: isinstance(logged.event, ev.TitleChanged))
        assert other.events(ev.TitleChanged) == [ev.TitleChanged(title="Ours")]
        summary = await sessions.dispatch(req.GetSession(client.session_id))
        assert summary is not None
        assert summary.title == "Ours"


async def test_sessions_do_not_hear_each_other(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "echo") as sessions:
        desks = [await desk(sessions) for _ in range(20)]
        await asyncio.gather(*(client.send(f"number {index}") for index, client in enumerate(desks)))
        await asyncio.gather(*(client.until_settled() for client in desks))
        said = [[event.text for event in client.events(ev.AssistantText)] for client in desks]
        assert said == [[f"number {index}"] for index in range(20)]


async def test_a_denied_call_tells_the_model_why(project: Path, log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, TOUCHES, log, cwd=project) as (_, client):
        await client.send("Make it")
        asked = await client.until_asked()
        await client.deny(asked.call_id, "not today")
        assert isinstance(await client.until_settled(), ev.RunFinished)
        result = next(m for m in (await conversation(log, client.session_id)).messages() if isinstance(m, ToolMessage))
        assert result.result.is_error
        assert "not today" in result.result.text()
        assert not (project / "made").exists()
        with refused("APPROVAL_CONFLICT"):
            await client.do(DenyCall(now=0, call_id=asked.call_id, by="other"))


async def test_an_approved_call_runs_once_and_a_second_decision_is_a_conflict(project: Path, tmp_path: Path) -> None:
    script = 'tool: shell {"command": "echo x >> made"}\n---\nsay: Done.'
    async with new_session(tmp_path, script, cwd=project) as (_, client):
        await client.send("Make it")
        asked = await client.until_asked()
        outcomes = await asyncio.gather(
            *(client.approve(asked.call_id, by=f"client {number}") for number in range(5)), return_exceptions=True
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, SessionRefused)]
        assert [error.code for error in refused] == ["APPROVAL_CONFLICT"] * 4
        assert isinstance(await client.until_settled(), ev.RunFinished)
        assert (project / "made").read_text() == "x\n"


async def test_an_unanswered_question_is_denied_at_its_deadline(project: Path, tmp_path: Path) -> None:
    async with new_session(
        tmp_path, TOUCHES, cwd=project, terms=ev.SessionTerms(builtin_tools=True, approval_s=0.05)
    ) as (_, client):
        assert isinstance(await client.run("Make it"), ev.RunFinished)
        assert "approval_decided" in client.kinds()
        assert not (project / "made").exists()
