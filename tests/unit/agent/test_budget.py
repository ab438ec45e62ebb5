"""Limits of a run: each one ends it, says which it was, and holds inside a turn where that is possible."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from support.agent import MODEL, FakeHost, FakeTool, ScriptedModels, called, finished, run, text, turn, warning

from makai.agent.settings import AgentOutcome, AgentSettings, Standing, capped
from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.core.request import StreamOptions
from makai.core.usage import Price, Usage
from makai.tools.base import ToolContext, ToolOutcome, text_outcome

PRICED = msgspec.structs.replace(MODEL, price=Price(input=1.0, output=2.0), max_output_tokens=1000)


async def test_output_tokens_end_the_run_before_its_calls_are_carried_out() -> None:
    tool = FakeTool("look")
    outcome, host, requests = await run("tool: look {}\nusage: input=1 output=50", tool, max_output_tokens=50)

    usage = Usage(input=1, output=50)
    assert host.told == [
        *turn(1, called("look"), stop="tool_use", usage=usage, context_tokens=51),
        finished("c1", "Not run: the run reached its limit.", is_error=True),
        warning("limit_output_tokens", "The run reached its limit of 50 output tokens (50 used)."),
    ]
    assert outcome == AgentOutcome(stop_reason="max_tokens", usage=usage, limit="output_tokens")
    assert (len(requests), tool.ran) == (1, [])


async def test_money_ends_the_run_and_caches_cost_money_too() -> None:
    models = ScriptedModels("tool: look {}\nusage: input=100 output=100 cache_read=700", PRICED)
    outcome, host, _ = await run(models, FakeTool("look"), max_usd=0.001)

    assert outcome.limit == "usd"
    assert outcome.usage.cost_usd == pytest.approx(0.001)
    assert host.told[-1] == warning("limit_usd", "The run reached its limit of 0.001 USD (0.0010 used).")


async def test_an_answer_that_ended_by_itself_is_no_limit() -> None:
    outcome, _, _ = await run("say: Hi\nusage: input=1 output=50", max_output_tokens=50)

    assert (outcome.stop_reason, outcome.limit) == ("end_turn", None)


async def test_an_answer_that_was_cut_by_the_limit_says_so() -> None:
    outcome, host, requests = await run("say: Hi\nstop: max_tokens\nusage: input=1 output=50", max_output_tokens=50)

    assert requests[0].options.max_tokens == 50
    assert (outcome.stop_reason, outcome.limit) == ("max_tokens", "output_tokens")
    assert isinstance(host.told[-1], ev.Notice)


async def test_a_limit_of_money_for_a_model_without_a_price_is_not_silently_void() -> None:
    outcome, host, requests = await run("say: Hi", max_usd=1.0)

    problem = "The price of scripted-model is unknown: the limit of 1 USD cannot be kept."
    assert (outcome.stop_reason, host.told, requests) == ("error", [], [])
    assert isinstance(outcome.error, InvalidRequest)
    assert outcome.error.message == problem
    assert "--allow-unknown-price" in (outcome.error.hint or "")


async def test_a_limit_that_cannot_be_kept_is_confirmed_and_said() -> None:
    _, host, _ = await run("say: Hi", max_usd=1.0, allow_unknown_price=True)

    assert host.told == [
        warning("price_unknown", "The price of scripted-model is unknown: the limit of 1 USD cannot be kept."),
        *turn(1, *text("Hi")),
    ]


@pytest.mark.parametrize(
    ("options", "settings", "used", "cap"),
    [
        (StreamOptions(), {}, Usage(), None),
        (StreamOptions(max_tokens=10), {}, Usage(), 10),
        (StreamOptions(), {"max_output_tokens": 100}, Usage(output=60), 40),
        (StreamOptions(max_tokens=10), {"max_output_tokens": 100}, Usage(output=60), 10),
        (StreamOptions(), {"max_output_tokens": 5000}, Usage(), None),
        (StreamOptions(), {"max_usd": 0.001}, Usage(cost_usd=0.0008), 99),
        (StreamOptions(), {"max_usd": 0.001}, Usage(cost_usd=0.0009999), 1),
    ],
)
def test_the_next_answer_may_use_what_is_left(
    options: StreamOptions, settings: dict[str, Any], used: Usage, cap: int | None
) -> None:
    assert capped(options, AgentSettings(model=None, **settings), used, PRICED).max_tokens == cap


# ---------------------------------------------------------------- time

TIME_IS_UP = warning("limit_seconds", "The run reached its limit of 0.05 s.")


async def test_time_ends_an_answer_that_does_not() -> None:
    outcome, host, _ = await run("say: Hm\nstall", max_seconds=0.05)

    assert host.told == [
        ev.TurnStarted(turn=1),
        ev.AssistantTextDelta(content_index=0, delta="Hm"),
        ev.TurnEnded(turn=1, stop_reason="aborted"),
        TIME_IS_UP,
    ]
    assert outcome == AgentOutcome(stop_reason="max_turns", limit="seconds")
    assert len(asyncio.all_tasks()) == 1


async def test_time_ends_a_tool_that_does_not() -> None:
    async def for_ever(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        await asyncio.Event().wait()
        return text_outcome("never")

    outcome, host, _ = await run("tool: busy {}", FakeTool("busy", for_ever), max_seconds=0.05)

    said = "Interrupted: the time of the run was up; what the tool did so far is unknown."
    assert host.told[4:] == [
        ev.ToolStarted(call_id="c1"),
        finished("c1", said, is_error=True, interrupted=True),
        TIME_IS_UP,
    ]
    assert outcome == AgentOutcome(stop_reason="max_turns", limit="seconds")


async def test_time_is_looked_at_before_each_turn() -> None:
    host = FakeHost()

    def an_hour_passes(fact: ev.SessionEvent) -> None:
        host.clock += 3600 if isinstance(fact, ev.UsageReported) else 0

    host.on_fact = an_hour_passes
    outcome, _, requests = await run("tool: look {}", FakeTool("look"), host=host, max_seconds=1800.0)

    assert (outcome.limit, len(requests)) == ("seconds", 1)


async def test_a_resumed_run_has_the_limits_it_had() -> None:
    standing = Standing(turns=3, usage=Usage(output=90), seconds=100.0)
    by_turns, _, _ = await run("say: Hi", standing=standing, max_turns=3)
    by_tokens, _, _ = await run("say: Hi", standing=standing, max_output_tokens=90)
    by_time, _, _ = await run("say: Hi", standing=standing, max_seconds=100.0)

    assert [outcome.limit for outcome in (by_turns, by_tokens, by_time)] == ["turns", "output_tokens", "seconds"]


async def test_a_timeout_of_the_host_is_not_taken_for_the_limit() -> None:
    class Slow(FakeHost):
        async def decide(self, *about: Any) -> Any:
            raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database"):
        await run("tool: look {}", FakeTool("look"), host=Slow(), max_seconds=60.0)
