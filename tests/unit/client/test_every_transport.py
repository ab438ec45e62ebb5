"""What must hold wherever the server is: in process, as a child, and behind every transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.sdk import DEADLINE_S, ECHO, KINDS, SCENARIO, failure_of, serving

import makai

STORY = """
think: The user wants the weather.
signature: proof
say: Let me look.
tool: get_weather {"city": "Paris"}
usage: input=12 output=34 cache_read=5
stop: tool_use
---
say: It is sunny.
---
when: quota
say: So far
fail: rate_limited retry_after=2s Slow down.
---
when: endless
say: a b c
stall
"""


@pytest.fixture(params=KINDS)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[makai.MakaiClient]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(STORY)
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path), "HOME": str(tmp_path)}
    environ["MAKAI_TEST_LOGIN"] = "1"
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(request.param, environ) as options,
        makai.create_makai_client(options) as client,
    ):
        yield client


@pytest.mark.req("MK-SDK-001", "MK-SDK-023", "MK-SDK-025")
async def test_a_stream_is_deltas_whole_tool_calls_and_one_end(client: makai.MakaiClient) -> None:
    stream = client.provider.stream(model_ref=SCENARIO, messages="Weather?")

    events = [event async for event in stream]

    words = ["The", " user", " wants", " the", " weather."]
    assert stream.response is not None
    call = stream.response.tool_calls[0]
    usage = makai.UsageSummary(input=12, output=34, cache_read=5, cost_usd=0.0)
    assert events == [
        makai.MessageStartEvent(provider_id="scripted", api="scripted", model_id="scenario"),
        *(makai.ThinkingDeltaEvent(word) for word in words),
        makai.TextDeltaEvent("Let"),
        makai.TextDeltaEvent(" me"),
        makai.TextDeltaEvent(" look."),
        makai.ToolCallEvent(name="get_weather", arguments_json='{"city": "Paris"}', tool_call_id=call.tool_call_id),
        makai.MessageEndEvent(usage=usage, stop_reason="tool_use"),
    ]


@pytest.mark.req("MK-SDK-021")
async def test_complete_answers_with_message_usage_and_who_made_it(client: makai.MakaiClient) -> None:
    response = await client.provider.complete(model_ref=SCENARIO, messages="Weather?")

    assert (response.provider_id, response.api, response.model_id) == ("scripted", "scripted", "scenario")
    assert response.stop_reason == "tool_use"
    assert response.usage == makai.UsageSummary(input=12, output=34, cache_read=5, cost_usd=0.0)
    assert response.message.role == "assistant"
    assert response.text == "Let me look."


async def test_complete_and_stream_give_the_same_message(client: makai.MakaiClient) -> None:
    whole = await client.provider.complete(model_ref=ECHO, messages="Hello there")
    stream = client.provider.stream(model_ref=ECHO, messages="Hello there")
    async for _ in stream:
        pass

    assert stream.response is not None
    assert stream.response.message.content == whole.message.content


async def test_an_answer_can_be_sent_back(client: makai.MakaiClient) -> None:
    first = await client.provider.complete(model_ref=SCENARIO, messages="Weather?")
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].tool_call_id, "content": "sunny"}

    second = await client.provider.complete(model_ref=SCENARIO, messages=["Weather?", first.message, result])

    assert second.text == "It is sunny."


@pytest.mark.req("MK-SDK-023", "MK-SDK-026")
async def test_a_failure_after_acceptance_is_one_terminal_event(client: makai.MakaiClient) -> None:
    events = [event async for event in client.provider.stream(model_ref=SCENARIO, messages="quota")]

    assert events == [
        makai.MessageStartEvent(provider_id="scripted", api="scripted", model_id="scenario"),
        makai.TextDeltaEvent("So"),
        makai.TextDeltaEvent(" far"),
        makai.ErrorEvent(message="Slow down.", code="rate_limited", provider_id="scripted", retry_after_ms=2000),
    ]


@pytest.mark.req("MK-SDK-027")
async def test_complete_raises_what_the_upstream_said(client: makai.MakaiClient) -> None:
    with pytest.raises(makai.MakaiStreamError, match=r"Slow down\.") as raised:
        await client.provider.complete(model_ref=SCENARIO, messages="quota")

    error = raised.value
    assert (error.kind, error.code, error.retry_after_ms) == ("provider_error", "rate_limited", 2000)


@pytest.mark.req("MK-SDK-026")
async def test_a_refused_stream_raises_and_yields_nothing(client: makai.MakaiClient) -> None:
    stream = aiter(client.provider.stream(model_ref="scripted/scripted@unknown", messages="Hi"))

    raised = await failure_of(anext(stream), makai.MakaiStreamError, "model not found")
    assert (raised.kind, raised.code) == ("unknown", "invalid_request")
    assert [event async for event in stream] == []


@pytest.mark.req("MK-SDK-028")
async def test_a_missing_login_is_an_error_that_names_the_provider(client: makai.MakaiClient) -> None:
    with pytest.raises(makai.MakaiAuthError) as raised:
        await client.provider.complete(model_ref="mistral/openai-completions@mistral-large-latest", messages="Hi")

    assert (raised.value.code, raised.value.provider_id) == ("auth_required", "mistral")


@pytest.mark.req("MK-SDK-036")
async def test_streams_that_are_left_do_not_stay_open(client: makai.MakaiClient) -> None:
    """A connection may have 100 streams: the 101st would be refused if leaving did not abort."""
    heard = 0

    for _ in range(110):
        async for event in client.provider.stream(model_ref=SCENARIO, messages="endless"):
            if event.type == "text_delta":
                heard += 1
                break

    assert heard == 110


async def test_many_streams_run_at_once_and_keep_their_words_apart(client: makai.MakaiClient) -> None:
    async def ask(number: int) -> str:
        stream = client.provider.stream(model_ref=ECHO, messages=f"I am number {number}")
        return "".join([event.delta async for event in stream if event.type == "text_delta"])

    assert await asyncio.gather(*map(ask, range(30))) == [f"I am number {number}" for number in range(30)]


async def test_models_are_listed_and_resolved(client: makai.MakaiClient) -> None:
    listed = await client.models.list(provider_id="scripted")
    resolved = await client.models.resolve(provider_id="scripted", model_id="echo")

    assert {ECHO, SCENARIO} <= {model.model_ref for model in listed.models}
    assert [model for model in listed.models if model.model_ref == ECHO] == [resolved.model]


@pytest.mark.req("MK-SDK-018")
async def test_resolving_an_unknown_model_says_so(client: makai.MakaiClient) -> None:
    with pytest.raises(makai.MakaiStreamError, match="model not found") as raised:
        await client.models.resolve(provider_id="scripted", model_id="unknown")

    assert raised.value.code == "invalid_request"


@pytest.mark.req("MK-SDK-024")
async def test_the_model_is_named_when_its_answer_begins_although_it_was_not_listed(client: makai.MakaiClient) -> None:
    events = [event async for event in client.provider.stream(model_ref="scripted/scripted@echo", messages="Hi")]

    assert events[0] == makai.MessageStartEvent(provider_id="scripted", api="scripted", model_id="echo")


@pytest.mark.req("MK-SDK-007", "MK-SDK-008", "MK-SDK-013", "MK-AUTH-016")
async def test_one_login_opens_a_provider_for_listing_and_for_requests(client: makai.MakaiClient) -> None:
    fixture = "test-fixture/scripted@fixture"

    async def status() -> str:
        return {provider.id: provider.auth_status for provider in await client.auth.list_providers()}["test-fixture"]

    assert await status() == "login_required"
    refused = await failure_of(client.provider.complete(model_ref=fixture, messages="Hi"), makai.MakaiAuthError)
    assert (refused.code, refused.provider_id) == ("auth_required", "test-fixture")
    result = await client.auth.login("test-fixture", makai.AuthFlowHandlers(on_prompt=lambda prompt: "ok"))
    assert (result.status, await status()) == ("success", "authenticated")
    answer = await client.provider.complete(model_ref=fixture, messages="Hi")
    assert "You are logged in" in str(answer.message.content)


@pytest.mark.req("MK-SDK-009", "MK-AUTH-013")
async def test_a_login_at_an_unknown_provider_fails_with_its_reason(client: makai.MakaiClient) -> None:
    failed = await failure_of(client.auth.login("unknown"), makai.MakaiAuthError, "no provider of that name")
    assert failed.kind == "provider_error"


@pytest.mark.req("MK-SDK-037")
async def test_closing_fails_what_is_pending_and_may_be_repeated(client: makai.MakaiClient) -> None:
    stream = aiter(client.provider.stream(model_ref=SCENARIO, messages="endless"))
    while (await anext(stream)) != makai.TextDeltaEvent(" c"):
        pass
    pending = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)

    await client.close()
    await client.close()

    raised = await failure_of(pending, makai.MakaiStreamError, "closed")
    assert raised.kind == "aborted"
    with pytest.raises(makai.MakaiStreamError, match="closed"):
        await client.models.list()
