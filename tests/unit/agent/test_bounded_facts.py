"""What a model or a tool says is bounded before it becomes an event, and a result says what was replaced in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.agent import FakeTool, run, text

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.sanitize import MAX_TEXT_BYTES, REPLACED
from makai.sessions.log.base import Pending
from makai.sessions.log.encoding import encoded
from makai.tools.base import ToolContext, ToolOutcome, text_outcome

PIECE = "\U0001f389" * 500_000
MARK = "\n[cut here: 1,500,000 of 4,000,000 characters are not kept]"


@pytest.mark.parametrize(("step", "kind"), [("repeat: 8", ev.AssistantText), ("think:", ev.Reasoning)])
async def test_a_text_that_no_event_can_hold_is_cut_and_says_how_much_is_missing(
    step: str, kind: type[ev.AssistantText | ev.Reasoning]
) -> None:
    said = PIECE if step.startswith("repeat") else PIECE * 8
    outcome, host, _ = await run(f"{step} {said}\nsay: Done")

    deltas = "".join(fact.delta for fact in host.facts if isinstance(fact, ev.Delta))
    (cut,) = [fact for fact in host.facts if isinstance(fact, kind) and fact.text != "Done"]
    assert cut.text == PIECE * 5 + MARK
    assert deltas == PIECE * 8 + "Done"
    assert host.facts[-3:-1] == [fact for fact in text("Done", 1) if isinstance(fact, ev.AssistantText)] + [
        ev.TurnEnded(turn=1, stop_reason="end_turn")
    ]
    assert outcome.stop_reason == "end_turn"
    assert len(encoded([Pending(0, None, fact) for fact in host.facts])) > 0


async def test_a_long_text_that_an_event_can_hold_is_whole() -> None:
    said = "x" * (MAX_TEXT_BYTES - 2)
    _, host, _ = await run(f"say: {said}")

    assert [fact.text for fact in host.facts if isinstance(fact, ev.AssistantText)] == [said]
    assert len(encoded([Pending(0, None, fact) for fact in host.facts])) > 0


async def test_a_call_whose_arguments_no_event_can_hold_is_refused() -> None:
    tool = FakeTool("look")
    arguments = '{"at": "' + "x" * MAX_TEXT_BYTES + '"}'
    outcome, host, _ = await run(f"tool: look {arguments}\n---\nsay: Done", tool)

    (answer,) = [fact for fact in host.facts if isinstance(fact, ev.ToolFinished)]
    assert answer.content == (
        Text(text="Not run: The arguments have 15,000,010 characters, more than an event can hold."),
    )
    assert (tool.ran, outcome.stop_reason) == ([], "end_turn")


NOTE = Text(text=REPLACED)


@pytest.mark.parametrize(
    ("said", "logged"),
    [
        ("a\0b", (Text(text="a\ufffdb"), NOTE)),
        ("a\udce9", (Text(text="a\ufffd"), NOTE)),
        ("caf\ufffd", (Text(text="caf\ufffd"), NOTE)),
        ("\ufffd stands for other bytes", (Text(text="\ufffd stands for other bytes"),)),
        ("\ud83c\udf89", (Text(text="\U0001f389"),)),
        ("plain", (Text(text="plain"),)),
    ],
)
async def test_a_result_says_once_that_something_in_it_was_replaced(said: str, logged: tuple[Text, ...]) -> None:
    async def say(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return text_outcome(said)

    _, host, requests = await run("tool: look {}\n---\nsay: Done", FakeTool("look", say))

    (answer,) = [fact for fact in host.facts if isinstance(fact, ev.ToolFinished)]
    assert answer.content == logged
    assert requests[1].context.messages[-1].result.content == logged  # type: ignore[union-attr]
