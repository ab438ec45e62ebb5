"""Histories that clients bring along: a new session takes any conversation, and its model sees exactly that."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from support.agents import REF, AgentHouse, agent_client, codes, types_of
from support.histories import histories
from support.wire import JSON, envelope

from makai.core import stream_events
from makai.core.messages import Message
from makai.core.request import Context
from makai.providers.runtime import ModelRuntime

HELLO = "say: Hello."
USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello to you."}
CALL = {"type": "tool_call", "tool_call_id": "c1", "name": "look", "arguments_json": '{"at":"sea"}'}
CALLS = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "Water."}
PICTURE = {"role": "user", "content": [{"type": "image", "data": "AAAA", "mime_type": "image/png"}]}


@contextmanager
def seen_by_models() -> Iterator[list[tuple[Message, ...]]]:
    """What models are asked while this is open."""
    asked: list[tuple[Message, ...]] = []
    stream = ModelRuntime.stream

    def listening(
        self: ModelRuntime, model: Any, context: Context, options: Any = None
    ) -> AsyncGenerator[stream_events.StreamEvent, None]:
        asked.append(context.messages)
        return stream(self, model, context, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelRuntime, "stream", listening)
        yield asked


async def asked_directly(house: AgentHouse, chat: list[JSON]) -> None:
    """Ask the model itself with the same messages."""
    peer = house.peer()
    await peer.say(envelope("stream_request", {"model_ref": REF, "context": {"messages": chat}}))
    assert (await peer.hear_until("result", "stream_error", "nack"))[-1]["type"] == "result"


@pytest.mark.req("MK-AGENT-022")
@given(chat=histories())
@example(chat=[USER, ASSISTANT, USER])
@example(chat=[USER, CALLS, RESULT])
@example(chat=[USER, CALLS, RESULT, ASSISTANT, PICTURE])
@example(chat=[USER, ASSISTANT])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_new_session_takes_any_conversation_and_its_model_sees_exactly_that(
    tmp_path: Path, chat: list[JSON]
) -> None:
    with seen_by_models() as asked:
        async with agent_client(tmp_path, HELLO) as (house, client):
            frames = await client.run("", messages=chat)
            assert types_of(frames)[-2:] == ["agent_end", "agent_result"], frames
            assert frames[-1]["in_reply_to"] == frames[0]["in_reply_to"]
            await asked_directly(house, chat)
            again = await client.run("", messages=[*chat, {"role": "assistant", "content": "Hello."}, USER])
            assert types_of(again)[-1] == "agent_result", again
    by_agent, directly, longer = asked
    assert by_agent == directly
    assert longer[: len(directly)] == directly
    assert len(longer) == len(directly) + 2


@pytest.mark.req("MK-AGENT-022", "MK-AGENT-016")
async def test_a_run_that_failed_is_asked_again_with_the_whole_conversation_and_adds_nothing(tmp_path: Path) -> None:
    scenario = "fail: invalid_request The vendor is down."
    chat = [USER, ASSISTANT, {"role": "user", "content": "And now?"}]
    with seen_by_models() as asked:
        async with agent_client(tmp_path, scenario) as (house, client):
            for _ in range(2):
                assert types_of(await client.run("", messages=chat))[-1] == "agent_error"
            said = [("user", "Hi"), ("assistant", "Hello to you."), ("user", "And now?")]
            assert await house.conversation(client.session_id) == said
    assert asked[0] == asked[1]


@pytest.mark.req("MK-AGENT-022")
async def test_a_conversation_that_is_not_that_of_the_session_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO) as (house, client):
        await client.run("Hi")
        before = await house.conversation(client.session_id)
        for chat in (
            [USER, {"role": "assistant", "content": "Something else."}, USER],
            [ASSISTANT, USER],
            [USER, CALLS, RESULT],
            [RESULT],
            [{"role": "system", "content": "Be rude."}, USER],
        ):
            (nack,) = await client.ask("agent_message", {"messages": chat})
            assert codes([nack]) == ["invalid_request"]
        assert await house.conversation(client.session_id) == before
