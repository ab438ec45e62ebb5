"""Calls that cannot be run: the model learns why, and the run continues."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from support.agent import FakeTool, called, finished, result_texts, run, text, turn, warning

from makai.agent.settings import AgentOutcome
from makai.agent.tool_calls import MAX_REFUSED_REPEATS
from makai.core.errors import InvalidRequest, ProviderError
from makai.core.session_events import ToolCalled, ToolFinished, ToolStarted
from makai.tools.base import CallDescription, ToolContext, ToolOutcome

CITY = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'


@pytest.mark.req("MK-TOOL-006")
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            'tool: weather {}\narguments: {"city": ',
            "Not run: the model wrote arguments that are not a JSON object: Input data was truncated",
        ),
        (
            "tool: weather {}\narguments: [1]",
            "Not run: the model wrote arguments that are not a JSON object: Expected `object`, got `array`",
        ),
        (
            'tool: weather {"city": 5, "when": "now"}',
            "The arguments do not fit the schema of weather:\n"
            '- at city: 5 is not of type "string"\n'
            "- Additional properties are not allowed ('when' was unexpected)",
        ),
        ("tool: weather {}", 'The arguments do not fit the schema of weather:\n- "city" is a required property'),
        ("tool: sing {}", "There is no tool 'sing'. The tools are: odd, remote, weather."),
        (
            "tool: odd {}",
            "The tool odd has a schema that cannot be used: "
            "7 is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            "tool: remote {}",
            "The tool remote has a schema that cannot be used: Resource 'http://127.0.0.1:9/schema.json' is not "
            "present in a registry and retrieving it failed: ValueError: http://127.0.0.1:9/schema.json is another "
            "document, and none is fetched",
        ),
    ],
)
async def test_a_call_that_cannot_be_meant_is_an_error_the_model_sees(call: str, told: str) -> None:
    tools = (
        FakeTool("weather", schema=CITY),
        FakeTool("odd", schema='{"type": 7}'),
        FakeTool("remote", schema='{"$ref": "http://127.0.0.1:9/schema.json"}'),
    )
    outcome, host, requests = await run(f"{call}\n---\nsay: Sorry", *tools)

    assert result_texts(requests[1]) == [(told, True)]
    assert [type(fact).__name__ for fact in host.facts[1:5]] == [
        "ToolCalled",
        "TurnEnded",
        "UsageReported",
        "ToolFinished",
    ]
    assert [tool.ran for tool in tools] == [[], [], []]
    assert host.questions == []
    assert outcome == AgentOutcome(stop_reason="end_turn")


@pytest.mark.req("MK-TOOL-009")
async def test_a_call_to_an_unknown_tool_gets_the_known_ones_and_the_run_continues() -> None:
    outcome, host, _ = await run("tool: sing {}\n---\nsay: Sorry")

    call = ToolCalled(call_id="c1", name="sing", arguments_json="{}", title="sing")
    assert host.told == [
        *turn(1, call, stop="tool_use"),
        finished("c1", "There is no tool 'sing'. The tools are: none.", is_error=True),
        *turn(2, *text("Sorry")),
    ]
    assert outcome == AgentOutcome(stop_reason="end_turn")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InvalidRequest("No such file.", hint="Look first."), "No such file. Look first."),
        (ValueError("x" * 1000), f"The tool look failed: ValueError: {'x' * 500}"),
        (asyncio.CancelledError(), "The tool look failed: CancelledError: "),
    ],
)
async def test_a_tool_that_raises_is_an_error_the_model_sees(error: BaseException, told: str) -> None:
    async def fail(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        raise error

    outcome, host, _ = await run("tool: look {}\n---\nsay: Oh", FakeTool("look", fail))

    assert host.told == [
        *turn(1, called("look"), stop="tool_use"),
        ToolStarted(call_id="c1"),
        finished("c1", told, is_error=True),
        *turn(2, *text("Oh")),
    ]
    assert outcome == AgentOutcome(stop_reason="end_turn")


async def test_a_tool_that_cannot_describe_a_call_is_not_asked_to_do_it() -> None:
    class Confused(FakeTool):
        async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
            raise InvalidRequest("The path is empty.") if arguments else RuntimeError("boom")

    tool = Confused("look")
    _, _, requests = await run('tool: look {}\ntool: look {"a":1}\n---\nsay: Oh', tool)

    assert result_texts(requests[1]) == [
        ("The tool look failed: RuntimeError: boom", True),
        ("The path is empty.", True),
    ]
    assert tool.ran == []


async def test_the_third_same_call_in_a_row_is_not_carried_out() -> None:
    tool = FakeTool("look")
    script = "tool: look {}\n---\ntool: look { }\n---\ntool: look {}\n---\ntool: look {}\n---\nsay: Fine"
    _, host, requests = await run(script, tool)

    def stuck(times: int) -> str:
        return (
            f"Not run: you made this call, with the same arguments, {times} times in a row. The results you have "
            "stand. Do something else, or say what keeps you from continuing."
        )

    assert host.told[12:] == [
        *turn(3, called("look", "c3"), stop="tool_use"),
        warning("repeated_call", "The model called look 3 times in a row with the same arguments."),
        finished("c3", stuck(3), is_error=True),
        *turn(4, called("look", "c4"), stop="tool_use"),
        finished("c4", stuck(4), is_error=True),
        *turn(5, *text("Fine")),
    ]
    assert len(tool.ran) == 2
    assert [is_error for _, is_error in result_texts(requests[-1])] == [False, False, True, True]


async def test_another_call_in_between_makes_a_call_new() -> None:
    tool = FakeTool("look")
    script = "\n---\n".join(f'tool: look {{"n":{n}}}' for n in (1, 1, 2, 1, 1)) + "\n---\nsay: Done"
    await run(script, tool)

    assert len(tool.ran) == 5


@pytest.mark.parametrize(("call", "runs"), [('tool: look {"path": "a"}', 2), ('tool: sing {"path": "a"}', 0)])
async def test_a_run_ends_when_its_model_repeats_a_refused_call_without_end(call: str, runs: int) -> None:
    tool = FakeTool("look")
    outcome, host, requests = await run(call, tool)  # the last answer of a script repeats

    name, times = call.split()[1], 2 + MAX_REFUSED_REPEATS
    assert isinstance(outcome.error, ProviderError)
    error = (outcome.error.code, outcome.error.provider_id)
    assert (outcome.stop_reason, error) == ("error", ("provider_error", "scripted"))
    assert outcome.error.message == (
        f'scripted-model is stuck. It called {name} {times} times with the same arguments: {{"path": "a"}}'
    )
    assert outcome.error.hint == "Say in other words what to do, or change the model."
    assert (len(requests), len(tool.ran)) == (times, runs)
    ended = [fact for fact in host.facts if isinstance(fact, ToolFinished)]
    assert [fact.is_error for fact in ended] == [False] * runs + [True] * (times - runs)
    assert host.facts[-1] == ended[-1]


async def test_many_same_calls_in_one_answer_all_get_their_results_before_the_run_ends() -> None:
    tool = FakeTool("look")
    outcome, host, requests = await run("\n".join(["tool: look {}"] * 20), tool)

    assert (outcome.stop_reason, len(requests), len(tool.ran)) == ("error", 1, 2)
    assert len([fact for fact in host.facts if isinstance(fact, ToolFinished)]) == 20


async def test_a_model_that_comes_to_its_senses_is_not_ended() -> None:
    tool = FakeTool("look")
    again = ["tool: look {}"] * (1 + MAX_REFUSED_REPEATS)
    script = "\n---\n".join([*again, 'tool: look {"other": 1}', *again, "say: Done"])
    outcome, _, _ = await run(script, tool)

    assert outcome == AgentOutcome(stop_reason="end_turn")
