import asyncio
from contextlib import aclosing

import pytest
from support.streams import ask, done, failed, model

from makai.core.content import Text, Thinking, ToolCall
from makai.core.errors import ParseError
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.request import Context
from makai.core.stream_events import StreamEvent, TextDelta, TextEnd
from makai.core.usage import Usage
from makai.providers.scenario import Scenario, ScriptedAnswer, Step, parse_scenario
from makai.providers.scripted import ScriptedProvider

SCRIPT = """
# The weather, in two answers.
think: The user wants the weather.
signature: opaque
say: Let me look that up.
tool: get_weather {"city": "Paris"}
usage: input=12 output=34
---
say: It is sunny,
  and warm.
stop: max_tokens
---
when: quota
fail: rate_limited retry_after=2s Slow down.
"""


async def perform(script: str, prompt: str = "Hi", history: tuple[AssistantMessage, ...] = ()) -> list[StreamEvent]:
    context = Context(messages=(*history, UserMessage(content=prompt)))
    provider = ScriptedProvider(parse_scenario(script))
    async with asyncio.timeout(60):
        return [event async for event in provider.stream(ask(model("scripted"), context=context))]


def test_a_scenario_reads_as_it_is_written() -> None:
    assert parse_scenario('say: Hi\n---\nwhen: x\ntool: t {"a":1}\nfail: overloaded') == Scenario(
        answers=(
            ScriptedAnswer(steps=(Step("say", "Hi"),)),
            ScriptedAnswer(
                when="x", steps=(Step("tool", '{"a":1}', "t"), Step("fail", "scripted failure", "overloaded"))
            ),
        )
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("sing: la", "unknown step 'sing'"),
        ("wait: 5 minutes", "not a duration"),
        ("tool: t {broken", "line 1"),
        ("stop: tired", "unknown stop reason"),
        ("arguments: {", "must follow `tool`"),
        ("repeat: many x", "line 1"),
        ("usage: tokens=3", "line 1"),
    ],
)
def test_a_mistake_in_a_scenario_names_its_line(line: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_scenario(line)


async def test_an_answer_is_performed_step_by_step() -> None:
    message = done(await perform(SCRIPT))
    call = message.tool_calls()[0]
    assert message.content == (
        Thinking(thinking="The user wants the weather.", thinking_signature="opaque"),
        Text(text="Let me look that up."),
        ToolCall(tool_call_id=call.tool_call_id, name="get_weather", arguments_json='{"city": "Paris"}'),
    )
    assert (message.stop_reason, message.usage) == ("tool_use", Usage(input=12, output=34))


async def test_the_second_model_call_of_a_conversation_gets_the_second_answer() -> None:
    message = done(await perform(SCRIPT, history=(AssistantMessage(content=()),)))
    assert (message.text(), message.stop_reason) == ("It is sunny,\nand warm.", "max_tokens")


async def test_words_of_the_user_choose_an_answer() -> None:
    last = failed(await perform(SCRIPT, "What about my Quota?"))
    assert (last.error_code, last.error_message, last.retry_after_ms) == ("rate_limited", "Slow down.", 2000)


async def test_the_size_of_deltas_can_be_chosen() -> None:
    events = await perform("chunk: 2\nsay: abcde")
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["ab", "cd", "e"]
    events = await perform("repeat: 3 ho")
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["ho", "ho", "ho"]


async def test_words_come_one_by_one_and_join_to_the_text() -> None:
    events = await perform("say: one two  three ")
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["one", " two", "  three"]


async def test_a_broken_connection_keeps_what_had_been_said() -> None:
    last = failed(await perform("say: Hel\ncut"))
    assert (last.error_code, last.message.text()) == ("provider_error", "Hel")


async def test_malformed_arguments_can_be_scripted() -> None:
    (call,) = done(await perform('tool: t {}\narguments: {"a":')).tool_calls()
    assert (call.arguments_json, call.arguments_error is None) == ('{"a":', False)


async def test_echo_says_what_the_user_said_and_requests_are_kept() -> None:
    provider = ScriptedProvider(parse_scenario("echo"))
    request = ask(model("scripted"), "Hello there")
    events = [event async for event in provider.stream(request)]
    assert done(events).text() == "Hello there"
    assert provider.requests == [request]


async def test_a_stall_can_be_left_at_any_moment() -> None:
    provider = ScriptedProvider(parse_scenario("say: Hel\npace: 1ms\nsay: lo\nstall"))
    async with asyncio.timeout(60), aclosing(provider.stream(ask(model("scripted")))) as stream:
        async for event in stream:
            if isinstance(event, TextEnd):
                break
