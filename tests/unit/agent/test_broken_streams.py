"""An answer that breaks off is asked for again: with every API, wherever and however its stream breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec
import pytest
from support.agent import (
    FakeHost,
    FakeTool,
    HttpModels,
    ScriptedModels,
    asked,
    called,
    finished,
    fixed,
    run,
    text,
    turn,
    warning,
)
from support.streams import model
from support.upstream import Request, Script, answers, dies_after, refuses, starts_then_hangs, upstream

from makai.agent.loop import run_agent, run_compaction
from makai.agent.settings import AgentOutcome, AgentSettings
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import ProviderError
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Keepalive, Retry, StreamEvent
from makai.core.usage import Usage
from makai.providers.http import HttpClient

OPTIONS = StreamOptions(max_retries=2, stall_timeout_s=20.0)
IMPATIENT = msgspec.structs.replace(OPTIONS, stall_timeout_s=0.3)
NOT_USED = "The incomplete answer is not used."


class Wire(msgspec.Struct, frozen=True):
    """How an API says "Hello", calls `look` and ends, in payloads between which a stream can break; the payload with
    which it reports a fault of its own, and the one for a request that is wrong."""

    words: tuple[str, ...]
    call: tuple[str, ...]
    end: tuple[str, ...]
    fault: str
    refusal: str | None = None
    """None: this API says nothing that tells the two apart."""


CHAT_CALL = '{"choices":[{"delta":{"tool_calls":[{"index":0,%s}]}}]}'
CLAUDE_BLOCK = '{"type":"content_block_start","index":%d,"content_block":%s}'
CLAUDE_DELTA = '{"type":"content_block_delta","index":%d,"delta":%s}'
CALL_ITEM = '{"type":"function_call","id":"f","call_id":"v1","name":"look","arguments":"%s"}'
RESPONSES = Wire(
    words=(
        '{"type":"response.created","response":{"id":"r"}}',
        '{"type":"response.output_text.delta","output_index":0,"delta":"Hel"}',
        '{"type":"response.output_text.delta","output_index":0,"delta":"lo"}',
    ),
    call=(
        '{"type":"response.output_item.added","output_index":1,"item":%s}' % (CALL_ITEM % ""),
        '{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{"}',
        '{"type":"response.output_item.done","output_index":1,"item":%s}' % (CALL_ITEM % "{}"),
    ),
    end=('{"type":"response.completed","response":{"status":"completed"}}',),
    fault='{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"Oops"}}}',
    refusal='{"type":"error","code":"invalid_prompt","message":"No such thing"}',
)
GOOGLE = Wire(
    words=(
        '{"candidates":[{"content":{"parts":[{"text":"Hel"}]}}]}',
        '{"candidates":[{"content":{"parts":[{"text":"lo"}]}}]}',
    ),
    call=('{"candidates":[{"content":{"parts":[{"functionCall":{"name":"look","args":{}}}]}}]}',),
    end=('{"candidates":[{"finishReason":"STOP"}]}',),
    fault='{"error":{"code":503,"status":"UNAVAILABLE","message":"Busy"}}',
    refusal='{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"No such thing"}}',
)


def in_response(payloads: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f'{{"response":{payload}}}' for payload in payloads)


WIRES = {
    "anthropic-messages": Wire(
        words=(
            '{"type":"message_start","message":{"id":"m","usage":{"input_tokens":7}}}',
            CLAUDE_BLOCK % (0, '{"type":"text","text":""}'),
            CLAUDE_DELTA % (0, '{"type":"text_delta","text":"Hel"}'),
            CLAUDE_DELTA % (0, '{"type":"text_delta","text":"lo"}'),
            '{"type":"content_block_stop","index":0}',
        ),
        call=(
            CLAUDE_BLOCK % (1, '{"type":"tool_use","id":"v1","name":"look","input":{}}'),
            CLAUDE_DELTA % (1, '{"type":"input_json_delta","partial_json":"{"}'),
            CLAUDE_DELTA % (1, '{"type":"input_json_delta","partial_json":"}"}'),
            '{"type":"content_block_stop","index":1}',
        ),
        end=('{"type":"message_delta","delta":{"stop_reason":"end_turn"}}', '{"type":"message_stop"}'),
        fault='{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        refusal='{"type":"error","error":{"type":"invalid_request_error","message":"No such thing"}}',
    ),
    "openai-responses": RESPONSES,
    "azure-openai-responses": RESPONSES,
    "openai-completions": Wire(
        words=('{"choices":[{"delta":{"content":"Hel"}}]}', '{"choices":[{"delta":{"content":"lo"}}]}'),
        call=(
            CHAT_CALL % '"id":"v1","function":{"name":"look","arguments":""}',
            CHAT_CALL % '"function":{"arguments":"{"}',
            CHAT_CALL % '"function":{"arguments":"}"}',
        ),
        end=('{"choices":[{"delta":{},"finish_reason":"stop"}]}', "[DONE]"),
        fault='{"error":{"code":502,"message":"Bad gateway"}}',
        refusal='{"error":{"code":400,"message":"No such thing"}}',
    ),
    "google-generative-ai": GOOGLE,
    "google-gemini-cli": msgspec.structs.replace(
        GOOGLE, words=in_response(GOOGLE.words), call=in_response(GOOGLE.call), end=in_response(GOOGLE.end)
    ),
    "ollama": Wire(
        words=('{"message":{"content":"Hel"}}', '{"message":{"content":"lo"}}'),
        call=('{"message":{"tool_calls":[{"function":{"name":"look","arguments":{}}}]}}',),
        end=('{"done":true}',),
        fault='{"error":"the runner was overloaded"}',
    ),
}
every_api = pytest.mark.parametrize("api_id", WIRES)


def framed(api_id: str, payloads: tuple[str, ...]) -> bytes:
    before, after = ("", "\n") if api_id == "ollama" else ("data: ", "\n\n")
    return "".join(f"{before}{payload}{after}" for payload in payloads).encode()


def gives_way_to_a_gateway_page_after(body: bytes) -> Script:
    return answers(body + b"\n<html><title>502 Bad Gateway</title></html>\n")


BREAKS: dict[str, Callable[[bytes], Script]] = {
    "connection reset in a chunked body": dies_after,
    "connection closed": answers,
    "gateway page": gives_way_to_a_gateway_page_after,
}


async def run_against(
    api_id: str, *scripts: Script, options: StreamOptions = OPTIONS
) -> tuple[AgentOutcome, FakeHost, list[Request], FakeTool]:
    host, tool = FakeHost(), FakeTool("look")
    async with upstream(*scripts) as server, HttpClient() as client, asyncio.timeout(60):
        models = HttpModels(model(api_id, base_url=server.url), client)
        settings = AgentSettings(model="any", options=options)
        outcome = await run_agent(host, models, asked(), fixed({"look": tool}), host.decide, settings)
    return outcome, host, server.requests, tool


def notices(host: FakeHost) -> list[tuple[str, str]]:
    """What a view shows: a notice that changes counts once."""
    shown = {fact.notice_id or str(at): fact for at, fact in enumerate(host.facts) if isinstance(fact, ev.Notice)}
    return [(fact.level, fact.code) for fact in shown.values()]


def stop_reasons(host: FakeHost) -> list[str]:
    return [fact.stop_reason for fact in host.facts if isinstance(fact, ev.TurnEnded)]


def check_asked_again(outcome: AgentOutcome, host: FakeHost, requests: list[Request], tool: FakeTool) -> None:
    assert (outcome.stop_reason, outcome.error) == ("end_turn", None)
    assert stop_reasons(host) == ["error", "end_turn"]
    assert [fact.text for fact in host.facts if isinstance(fact, ev.AssistantText)][-1] == "Hello"
    assert len(requests) == 2
    assert requests[0].body == requests[1].body, "the broken answer is not sent to the model again"
    assert [code for _, code in notices(host)] == ["stream_broken"]
    assert tool.ran == []
    finished_calls = {fact.call_id for fact in host.facts if isinstance(fact, ev.ToolFinished)}
    assert finished_calls == {fact.call_id for fact in host.facts if isinstance(fact, ev.ToolCalled)}


@every_api
@pytest.mark.parametrize("kind", BREAKS)
async def test_a_stream_that_breaks_between_any_two_events_is_asked_for_again(api_id: str, kind: str) -> None:
    wire = WIRES[api_id]
    good = answers(framed(api_id, (*wire.words, *wire.end)))
    payloads = (*wire.words, *wire.call)

    for count in range(len(payloads) + 1):
        broken = BREAKS[kind](framed(api_id, payloads[:count]))
        check_asked_again(*await run_against(api_id, broken, good))


@every_api
async def test_a_stream_that_breaks_inside_an_event_is_asked_for_again(api_id: str) -> None:
    wire = WIRES[api_id]
    good = answers(framed(api_id, (*wire.words, *wire.end)))
    half = framed(api_id, (*wire.words, *wire.call))[:-20]

    check_asked_again(*await run_against(api_id, dies_after(half), good))


@every_api
@pytest.mark.parametrize("has_call", [False, True], ids=["after words", "after a call"])
async def test_a_stream_that_goes_silent_is_asked_for_again(api_id: str, has_call: bool) -> None:
    wire = WIRES[api_id]
    good = answers(framed(api_id, (*wire.words, *wire.end)))
    silent = starts_then_hangs(framed(api_id, (*wire.words, *(wire.call if has_call else ()))))

    check_asked_again(*await run_against(api_id, silent, good, options=IMPATIENT))


@every_api
async def test_a_fault_that_the_provider_reports_inside_the_stream_is_asked_for_again(api_id: str) -> None:
    wire = WIRES[api_id]
    good = answers(framed(api_id, (*wire.words, *wire.end)))
    for before in ((), wire.words, (*wire.words, *wire.call[:1])):
        broken = answers(framed(api_id, (*before, wire.fault)))
        check_asked_again(*await run_against(api_id, broken, good))


@pytest.mark.parametrize("api_id", [api_id for api_id, wire in WIRES.items() if wire.refusal])
async def test_a_request_that_is_refused_inside_the_stream_is_not_repeated(api_id: str) -> None:
    wire = WIRES[api_id]
    assert wire.refusal is not None
    outcome, host, requests, _ = await run_against(api_id, answers(framed(api_id, (*wire.words, wire.refusal))))

    assert (outcome.stop_reason, len(requests), notices(host)) == ("error", 1, [])


@every_api
async def test_after_the_last_attempt_the_run_ends_with_the_error(api_id: str) -> None:
    wire = WIRES[api_id]
    outcome, host, requests, _ = await run_against(api_id, dies_after(framed(api_id, wire.words)))

    assert isinstance(outcome.error, ProviderError)
    assert "broke in the middle of the answer" in outcome.error.message
    assert (len(requests), notices(host)) == (3, [("warning", "stream_broken")] * 2)
    assert stop_reasons(host) == ["error"] * 3


async def test_refusals_that_the_provider_retried_already_are_not_retried_again() -> None:
    outcome, host, requests, _ = await run_against("openai-completions", refuses(502))

    assert (outcome.stop_reason, len(requests)) == ("error", 3)
    assert [fact for fact in host.facts if isinstance(fact, ev.Notice)] == [
        waits("Attempt 2 follows.", wait_ms=0),
        waits("Attempt 3 follows.", wait_ms=0),
        waits("Given up after 3 attempts in 0 s."),
    ]


def waits(how: str, wait_ms: int | None = None) -> ev.Notice:
    message = f"acme refused the request (HTTP 502): {{}}. {how}"
    return ev.Notice(level="info", code="provider_error", message=message, notice_id="wait-2", wait_ms=wait_ms)


# ---------------------------------------------------------------- what the log and the user get


def retry_notice(number: int, of: int = 3) -> ev.Notice:
    said = f"the connection broke in the middle of the answer. Asking again in 0.0 s ({number} of {of}). {NOT_USED}"
    return warning("stream_broken", said)


async def test_the_incomplete_answer_stays_in_the_log_and_its_use_is_counted() -> None:
    tool = FakeTool("look")
    broken = "say: Half\nusage: input=7 output=2\ntool: look {}\nsay: an\ncut"
    outcome, host, _ = await run(f"{broken}\n---\nsay: Whole\nusage: input=8 output=1", tool)

    used, total = Usage(input=7, output=2), Usage(input=15, output=3)
    assert host.told == [
        ev.TurnStarted(turn=1),
        *text("Half"),
        called("look", content_index=1),
        ev.AssistantTextDelta(content_index=2, delta="an"),
        ev.TurnEnded(turn=1, stop_reason="error", usage=used),
        finished("c1", "Not run: the model's answer broke off.", is_error=True),
        retry_notice(1),
        *turn(2, *text("Whole"), usage=Usage(input=8, output=1), total=total, context_tokens=9),
    ]
    assert outcome == AgentOutcome(stop_reason="end_turn", usage=total)
    assert tool.ran == []


async def test_a_whole_answer_starts_the_count_again() -> None:
    script = "say: a\ncut\n---\nsay: b\ncut\n---\ntool: look {}\n---\nsay: c\ncut\n---\nsay: done"
    outcome, host, _ = await run(script, FakeTool("look"), options=StreamOptions(max_retries=2))

    assert outcome.stop_reason == "end_turn"
    assert [fact for fact in host.facts if isinstance(fact, ev.Notice)] == [
        retry_notice(1, 2), retry_notice(2, 2), retry_notice(1, 2),
    ]  # fmt: skip


async def test_broken_answers_do_not_count_as_turns_of_the_limit() -> None:
    outcome, _, requests = await run("say: a\ncut\n---\nsay: b\ncut\n---\nsay: done", max_turns=1)

    assert (outcome.stop_reason, outcome.limit, len(requests)) == ("end_turn", None, 3)


async def test_what_is_said_while_the_retry_waits_reaches_the_model() -> None:
    words = ev.UserInput(input_id="i2", content="And be quick")
    host = FakeHost(steering=[[], [words]])
    _, _, requests = await run("say: a\ncut\n---\nsay: done", host=host)

    assert requests[1].context.messages == (*asked().messages, UserMessage(content="And be quick"))


async def test_a_run_can_be_aborted_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.providers.retries.FIRST_DELAY_S", 30.0)
    host, waiting = FakeHost(), asyncio.Event()
    host.on_fact = lambda fact: waiting.set() if isinstance(fact, ev.Notice) else None
    task = asyncio.create_task(run("say: a\ncut", host=host))
    await asyncio.wait_for(waiting.wait(), 10)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)


class WaitingModels(ScriptedModels):
    """Its provider waits long before its second attempt."""

    async def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        events = super().stream(model, context, options)
        yield await anext(events)
        for retry in (
            Retry(reason="Busy.", wait_ms=9_000, attempt=2),
            Retry(reason="Busy.", wait_ms=60_000, attempt=3),
        ):
            yield Keepalive("overloaded", retry.note, retry=retry)
        if context == asked("wait"):
            await asyncio.Event().wait()
        async for event in events:
            yield event


def busy(how: str, wait_ms: int | None = None) -> ev.Notice:
    return ev.Notice(level="info", code="overloaded", message=f"Busy. {how}", notice_id="wait-2", wait_ms=wait_ms)


async def test_the_waits_of_a_request_are_one_notice_that_ends_with_the_answer() -> None:
    host, models = FakeHost(), WaitingModels("say: Hello")
    await run_agent(host, models, asked("go"), fixed({}), host.decide, AgentSettings(model="any"))

    assert host.told == [
        *turn(
            1,
            busy("Attempt 2 follows.", 9_000),
            busy("Attempt 3 follows.", 60_000),
            busy("Attempt 3 was answered, after 0 s."),
            *text("Hello"),
        )
    ]


async def test_a_run_that_is_stopped_while_it_waits_settles_its_notice() -> None:
    host, models, waiting = FakeHost(), WaitingModels("say: Hello"), asyncio.Event()
    host.on_fact = lambda fact: waiting.set() if fact == busy("Attempt 3 follows.", 60_000) else None
    task = asyncio.create_task(
        run_agent(host, models, asked("wait"), fixed({}), host.decide, AgentSettings(model="any"))
    )
    await asyncio.wait_for(waiting.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)

    assert host.told[-2:] == [
        busy("Not asked again: the run was aborted."),
        ev.TurnEnded(turn=1, stop_reason="aborted"),
    ]


async def test_a_summary_whose_stream_breaks_is_asked_for_again_too() -> None:
    host, models = FakeHost(), ScriptedModels("say: Part\nusage: input=5 output=1\ncut\n---\nsay: All of it.")
    answer = AssistantMessage(content=(Text(text="y" * 4000),), stop_reason="end_turn")
    conversation = Context(messages=(*asked("x" * 4000).messages, answer))
    outcome = await run_compaction(host, models, conversation, AgentSettings(model="any", keep_tokens=0))

    assert outcome == AgentOutcome(stop_reason="end_turn", usage=Usage(input=5, output=1))
    assert [type(fact) for fact in host.facts] == [ev.Notice, ev.Compacted]
