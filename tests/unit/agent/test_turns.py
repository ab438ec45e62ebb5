"""Turns of a run: what the model says becomes facts, in order, and the run ends when it has nothing more to do."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from support.agent import FakeHost, FakeTool, ScriptedModels, called, finished, info, run, said, text, turn, warning
from support.messages import call, result

from makai.agent.host import Recorder
from makai.agent.settings import AgentOutcome, AgentSettings, Standing
from makai.agent.tool_calls import ToolCalls
from makai.agent.turn import SilenceWatch, answer_of
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import AuthRequired, MakaiError, ProviderError, SessionRefused
from makai.core.messages import AssistantMessage, Message, UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Done, Keepalive, Start, StreamEvent, TextDelta, TextEnd, TextStart
from makai.core.usage import Usage
from makai.providers.base import ProviderRequest
from makai.providers.preparation import NO_RESULT


def spoken(requests: list[ProviderRequest]) -> list[list[str]]:
    """Who spoke in each request."""
    return [[type(message).__name__ for message in request.context.messages] for request in requests]


async def test_words_are_told_as_they_come_and_then_whole() -> None:
    outcome, host, _ = await run("say: Hello there\nusage: input=3 output=2")

    usage = Usage(input=3, output=2)
    assert host.told == turn(1, *text("Hello there"), usage=usage, context_tokens=5)
    assert outcome == AgentOutcome(stop_reason="end_turn", usage=usage)


async def test_thinking_comes_before_words_and_keeps_its_signature() -> None:
    _, host, _ = await run("think: Hm.\nsignature: opaque\nsay: Hello")

    assert host.told == turn(
        1,
        ev.ReasoningDelta(content_index=0, delta="Hm."),
        ev.Reasoning(content_index=0, text="Hm.", signature="opaque"),
        *text("Hello", 1),
    )


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "stop_sequence"])
async def test_the_run_ends_as_its_last_turn_did(reason: str) -> None:
    outcome, _, _ = await run(f"say: No\nstop: {reason}")

    assert outcome == AgentOutcome(stop_reason=reason)  # type: ignore[arg-type]


async def test_a_model_that_says_nothing_ends_the_run() -> None:
    outcome, host, _ = await run("usage: input=1 output=0")

    assert (outcome.stop_reason, outcome.error, len(host.facts)) == ("end_turn", None, 3)


@pytest.mark.req("MK-AGENT-008", "MK-AGENT-020")
async def test_the_run_goes_on_while_the_model_calls_tools_and_adds_up_what_it_used() -> None:
    script = """
tool: look {}
usage: input=10 output=5 cache_read=2
---
tool: look {"again": true}
usage: input=20 output=6 cache_read=2 cache_write=4
---
say: Done
usage: input=30 output=7
"""
    outcome, _, requests = await run(script, FakeTool("look"))

    assert outcome == AgentOutcome(
        stop_reason="end_turn", usage=Usage(input=60, output=18, cache_read=4, cache_write=4)
    )
    assert spoken(requests) == [
        ["UserMessage"],
        ["UserMessage", "AssistantMessage", "ToolMessage"],
        ["UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage", "ToolMessage"],
    ]


async def test_a_run_that_reaches_its_limit_of_turns_says_so_and_its_turns_do_not() -> None:
    tool = FakeTool("look")
    outcome, host, requests = await run("tool: look {}", tool, max_turns=1)

    assert host.told == [
        *turn(1, called("look"), stop="tool_use"),
        ev.ToolStarted(call_id="c1"),
        finished("c1", "look did it"),
        warning("limit_turns", "The run reached its limit of 1 turns."),
    ]
    assert outcome == AgentOutcome(stop_reason="max_turns", limit="turns")
    assert len(requests) == len(tool.ran) == 1


async def test_what_the_session_used_before_is_part_of_what_is_reported() -> None:
    before = Usage(input=100, output=10)
    _, host, _ = await run("say: Hi\nusage: input=1 output=1", standing=Standing(usage_before=before))

    assert host.told == turn(
        1, *text("Hi"), usage=Usage(input=1, output=1), total=Usage(input=101, output=11), context_tokens=2
    )


async def test_words_said_meanwhile_are_read_between_two_turns() -> None:
    host = FakeHost(steering=[[], [said("Faster!")]])
    _, host, requests = await run("tool: look {}\n---\nsay: Yes", FakeTool("look"), host=host)

    assert host.told == [
        *turn(1, called("look"), stop="tool_use"),
        ev.ToolStarted(call_id="c1"),
        finished("c1", "look did it"),
        said("Faster!"),
        *turn(2, *text("Yes")),
    ]
    assert requests[1].context.messages[-1] == UserMessage(content="Faster!")


async def test_words_said_during_the_last_turn_get_an_answer_too() -> None:
    host = FakeHost(steering=[[], [said("One more thing"), said("and this", "i2")]])
    outcome, host, requests = await run("say: Done\n---\nsay: Sure", host=host)

    assert host.told == [
        *turn(1, *text("Done")),
        said("One more thing"),
        said("and this", "i2"),
        *turn(2, *text("Sure")),
    ]
    assert spoken(requests)[1] == ["UserMessage", "AssistantMessage", "UserMessage", "UserMessage"]
    assert outcome.stop_reason == "end_turn"


def error_of(outcome: AgentOutcome) -> tuple[type[MakaiError], str]:
    assert outcome.stop_reason == "error"
    assert outcome.error is not None
    return type(outcome.error), outcome.error.message


async def test_an_answer_that_breaks_off_is_one_error_and_keeps_the_words_that_came() -> None:
    outcome, host, _ = await run("say: Half an\nsay: answer\ncut", options=StreamOptions(max_retries=0))

    assert host.told == [
        ev.TurnStarted(turn=1),
        *text("Half an"),
        ev.AssistantTextDelta(content_index=1, delta="answer"),
        ev.TurnEnded(turn=1, stop_reason="error", is_final=True),
    ]
    assert error_of(outcome) == (ProviderError, "the connection broke in the middle of the answer")


async def test_a_call_of_an_answer_that_broke_off_is_not_carried_out() -> None:
    tool = FakeTool("look")
    outcome, host, _ = await run("tool: look {}\nsay: and\nfail: overloaded Too busy.", tool)

    assert host.told == [
        ev.TurnStarted(turn=1),
        called("look"),
        ev.AssistantTextDelta(content_index=1, delta="and"),
        ev.TurnEnded(turn=1, stop_reason="error", is_final=True),
        finished("c1", "Not run: the model's answer broke off.", is_error=True),
    ]
    assert tool.ran == []
    assert outcome.error is not None
    assert outcome.error.code == "overloaded"


async def test_what_a_broken_turn_used_is_counted() -> None:
    outcome, host, _ = await run("usage: input=7 output=2\nfail: provider_error Oops.")

    assert host.told == [
        ev.TurnStarted(turn=1),
        ev.TurnEnded(turn=1, stop_reason="error", usage=Usage(input=7, output=2)),
    ]
    assert outcome.usage == Usage(input=7, output=2)


@pytest.mark.parametrize("failure", ["rate_limited retry_after=10ms Slow down.", "overloaded Slow down."])
async def test_a_rate_limit_or_an_overload_ends_the_run_for_providers_have_waited(failure: str) -> None:
    outcome, host, requests = await run(f"fail: {failure}\n---\nsay: Hi")

    assert outcome.error is not None
    assert (outcome.error.message, len(requests)) == ("Slow down.", 1)
    assert host.told == [ev.TurnStarted(turn=1), ev.TurnEnded(turn=1, stop_reason="error")]


async def test_a_silent_provider_is_reported_once_and_still_waited_for() -> None:
    _, host, _ = await run("say: Hm\nwait: 80ms\nsay: Yes", quiet_notice_s=0.02)

    # The scripted provider closes a block when the next one begins.
    assert host.told == [
        ev.TurnStarted(turn=1),
        ev.AssistantTextDelta(content_index=0, delta="Hm"),
        info("provider_silent", "scripted-model has said nothing for 0.02 s; still waiting."),
        *text("Hm")[1:],
        *turn(1, *text("Yes", 1))[1:],
    ]


async def test_a_keepalive_is_no_news() -> None:
    class Watch(SilenceWatch):
        heard = 0

        def news(self) -> None:
            self.heard += 1

    async def stream() -> AsyncGenerator[StreamEvent, None]:
        message = AssistantMessage(content=(Text(text="Hi"),), stop_reason="end_turn")
        for event in (Start(AssistantMessage(content=())), Keepalive(), TextStart(0), Keepalive(), TextDelta(0, "Hi")):
            yield event
        yield TextEnd(0, text="Hi")
        yield Done("end_turn", message)

    host = FakeHost()
    recorder = Recorder(host)
    watch = Watch(60.0, lambda: asyncio.sleep(0))
    tool_calls = ToolCalls(host, recorder, host.decide, AgentSettings(model=None))
    answer = await answer_of(stream(), recorder, tool_calls, watch)

    assert host.facts == text("Hi")
    assert (answer.broken, watch.heard) == (None, 5)


class Refusing(ScriptedModels):
    """Models that cannot be asked."""

    def __init__(self, error: Exception, *, at_resolve: bool = False) -> None:
        super().__init__("say: never")
        self._error = error
        self._at_resolve = at_resolve

    def resolve(self, model: str | Model | None) -> Model:
        if self._at_resolve:
            raise self._error
        return super().resolve(model)

    async def stream(self, *request: object) -> object:  # type: ignore[override]
        raise self._error
        yield


@pytest.mark.parametrize("at_resolve", [True, False])
async def test_what_is_refused_before_anything_is_sent_is_the_one_error(at_resolve: bool) -> None:
    error = AuthRequired("no key", provider_id="acme")
    outcome, host, _ = await run(Refusing(error, at_resolve=at_resolve))

    assert outcome == AgentOutcome(stop_reason="error", error=error)
    assert len(host.facts) == (0 if at_resolve else 2)


async def test_a_provider_that_breaks_its_contract_is_an_error_of_the_run() -> None:
    outcome, host, _ = await run(Refusing(KeyError("x")))

    assert error_of(outcome) == (MakaiError, "Internal error in a provider: KeyError.")
    assert host.told == [ev.TurnStarted(turn=1), ev.TurnEnded(turn=1, stop_reason="error")]


class Unfinished(ScriptedModels):
    """Models whose streams just end."""

    async def stream(self, *request: object) -> object:  # type: ignore[override]
        return
        yield


async def test_a_stream_without_an_end_is_an_error() -> None:
    outcome, _, _ = await run(Unfinished("say: never"))

    assert error_of(outcome) == (MakaiError, "The provider ended without an answer.")


async def test_what_the_host_raises_comes_out_as_it_is() -> None:
    host = FakeHost()

    def refuse(fact: object) -> None:
        if isinstance(fact, ev.ToolStarted):
            raise OSError("disk full")

    host.on_fact = refuse
    tool = FakeTool("look")
    with pytest.raises(OSError, match="disk full"):
        await run("tool: look {}", tool, host=host)
    assert tool.ran == []
    assert len(asyncio.all_tasks()) == 1


LOOKED = UserMessage(content="Look")


@pytest.mark.parametrize(
    ("past", "lost"),
    [
        pytest.param(
            (
                LOOKED,
                AssistantMessage(content=(call("a", "look"), call("b", "look")), stop_reason="tool_use"),
                result("b", "look", "seen"),
                UserMessage(content="And?"),
            ),
            "a",
            id="of two calls",
        ),
        pytest.param(
            (
                LOOKED,
                *[AssistantMessage(content=(call("call_0", "look"),), stop_reason="tool_use")] * 2,
                result("call_0", "look", "seen"),
            ),
            "call_0",
            id="of a call whose id the model used again",
        ),
    ],
)
async def test_a_conversation_with_a_lost_result_is_mended_before_it_is_sent(
    past: tuple[Message, ...], lost: str
) -> None:
    _, _, requests = await run("say: Hi", conversation=Context(messages=past))

    mended = (*past[:2], result(lost, "look", NO_RESULT, is_error=True), *past[2:])
    assert requests[0].context.messages == mended


async def test_words_that_the_user_takes_back_while_they_are_read_do_not_reach_the_model() -> None:
    class Session(FakeHost):
        async def emit(self, event: ev.SessionEvent) -> None:
            if isinstance(event, ev.UserInput) and event.input_id == "taken back":
                raise SessionRefused("INPUT_NOT_WAITING", "Taken back.")
            await super().emit(event)

    words = [ev.UserInput(input_id=name, content=name) for name in ("taken back", "kept")]
    host = Session(steering=[[], words[:1], words, [], words[:1]])
    outcome, _, requests = await run("tool: look {}\n---\nsay: done\n---\nsay: more", FakeTool("look"), host=host)

    read = [message.content for message in requests[-1].context.messages if isinstance(message, UserMessage)]
    assert (read, len(requests)) == (["Hi", "kept"], 3)
    assert [fact.content for fact in host.facts if isinstance(fact, ev.UserInput)] == ["kept"]
    assert outcome == AgentOutcome(stop_reason="end_turn")
