"""Compaction: long conversations become short once, and never in a loop."""

from typing import Any

import msgspec
import pytest
from support.agent import MODEL, FakeHost, FakeTool, ScriptedModels, called, finished, info, run, text, turn, warning
from support.messages import call, result

from makai.agent.compaction import NotShorter, cut, summary_message, transcript
from makai.agent.conversation import Conversation
from makai.agent.loop import run_compaction
from makai.agent.settings import AgentOutcome, AgentSettings, Standing
from makai.core.content import Image, Text, Thinking
from makai.core.messages import AssistantMessage, Message, SystemMessage, UserMessage
from makai.core.request import Context
from makai.core.session_events import Compacted, Notice, ToolStarted, TurnEnded, TurnStarted, UsageReported
from makai.core.usage import Usage
from makai.providers.base import ProviderRequest

LONG = "word " * 400


def past(turns: int, words: str = LONG) -> tuple[Message, ...]:
    """A user's question and an answer, so many times, and a last question."""
    messages: list[Message] = []
    for number in range(turns):
        messages += [
            UserMessage(content=f"Question {number}"),
            AssistantMessage(content=(Text(text=f"{words}{number}"),), stop_reason="end_turn"),
        ]
    return (*messages, UserMessage(content="The last question"))


def places(messages: tuple[Message, ...]) -> tuple[int, ...]:
    return tuple(range(10, 10 + 2 * len(messages), 2))


async def run_on(
    messages: tuple[Message, ...],
    script: str | ScriptedModels,
    *tools: FakeTool,
    system: str | None = None,
    **more: Any,
) -> tuple[AgentOutcome, FakeHost, list[ProviderRequest]]:
    """A run that continues this conversation."""
    conversation = Context(messages=messages, system_prompt=system)
    return await run(script, *tools, conversation=conversation, standing=Standing(places=places(messages)), **more)


TOO_LONG = "The conversation is too long for the model (Too long.): its older part is being summarised."
COMPACTING = info("compacting", TOO_LONG)


async def test_an_overflow_is_answered_by_one_compaction_and_the_run_goes_on() -> None:
    messages = past(3)
    script = "fail: context_overflow Too long.\n---\nsay: They talked.\nusage: input=9 output=3\n---\nsay: Fine"
    outcome, host, requests = await run_on(messages, script, system="Be brief.", keep_tokens=600)

    assert host.told == [
        TurnStarted(turn=1),
        TurnEnded(turn=1, stop_reason="error"),
        COMPACTING,
        Compacted(summary="They talked.", through=16),
        *turn(2, *text("Fine"), total=Usage(input=9, output=3)),
    ]
    assert outcome == AgentOutcome(stop_reason="end_turn", usage=Usage(input=9, output=3))
    assert requests[2].context.messages == (summary_message("They talked."), *messages[4:])
    assert requests[2].context.system_prompt == "Be brief."
    (prompt,) = requests[1].context.messages
    assert isinstance(prompt, UserMessage)
    assert isinstance(prompt.content, str)
    assert prompt.content.startswith("<transcript>\nUser: Question 0\n\nAgent: word word")
    assert "The last question" not in prompt.content


async def test_a_second_overflow_soon_after_is_the_error_of_the_run() -> None:
    script = "fail: context_overflow Too long.\n---\nsay: Short.\n---\nfail: context_overflow Too long."
    outcome, host, requests = await run_on(past(3), script)

    assert outcome.error is not None
    assert (outcome.stop_reason, outcome.error.code) == ("error", "context_overflow")
    assert [type(fact) for fact in host.facts].count(Compacted) == 1
    assert len(requests) == 3


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        (f"say: {LONG * 5}", "the summary is about as long as what it stands for"),
        ("usage: input=1 output=0", "the model wrote no summary"),
        ("fail: provider_error Broken.", "the summary failed: Broken."),
    ],
)
async def test_a_summary_that_does_not_help_is_refused_and_the_overflow_is_the_error(summary: str, why: str) -> None:
    script = f"fail: context_overflow Too long.\n---\n{summary}\n---\nsay: never"
    outcome, host, requests = await run_on(past(3), script)

    assert host.told == [
        TurnStarted(turn=1),
        TurnEnded(turn=1, stop_reason="error"),
        COMPACTING,
        warning("compaction_failed", f"The conversation could not be made shorter: {why}."),
    ]
    assert outcome.error is not None
    assert outcome.error.code == "context_overflow"
    assert len(requests) == 2


async def test_a_first_message_that_is_too_long_is_never_summarised() -> None:
    outcome, _, requests = await run("fail: context_overflow Too long.")

    assert outcome.error is not None
    assert (outcome.error.code, len(requests)) == ("context_overflow", 1)


async def test_a_conversation_that_gets_full_is_compacted_before_it_overflows() -> None:
    small = msgspec.structs.replace(MODEL, context_window=1000)
    models = ScriptedModels("tool: look {}\nusage: input=880 output=20\n---\nsay: They talked.\n---\nsay: Done", small)
    messages = past(1)
    outcome, host, requests = await run_on(messages, models, FakeTool("look"))

    usage = Usage(input=880, output=20)
    assert host.told == [
        TurnStarted(turn=1),
        called("look"),
        TurnEnded(turn=1, stop_reason="tool_use", usage=usage),
        UsageReported(total=usage, context_tokens=900, context_window=1000),
        ToolStarted(call_id="c1"),
        finished("c1", "look did it"),
        info("compacting", "The conversation has about 906 of 1,000 tokens: its older part is being summarised."),
        Compacted(summary="They talked.", through=12),
        TurnStarted(turn=2),
        *text("Done"),
        TurnEnded(turn=2, stop_reason="end_turn"),
        UsageReported(total=usage, context_window=1000),
    ]
    assert requests[2].context.messages[:2] == (summary_message("They talked."), messages[-1])
    assert len(requests[2].context.messages) == 4
    assert outcome == AgentOutcome(stop_reason="end_turn", usage=usage)


async def test_a_compaction_that_does_not_help_is_not_tried_again_every_turn() -> None:
    """The death spiral: a full context, a summary that changes nothing, and so on until the quota is gone."""
    full = msgspec.structs.replace(MODEL, context_window=1000)
    answers = [f'tool: look {{"n":{n}}}\nusage: input=990 output=1' for n in range(11)]
    summaries = {1: f"say: {LONG}", 6: f"say: {LONG}", 11: f"say: {LONG}"}
    script = "\n---\n".join(
        part for n, answer in enumerate(answers) for part in ([summaries[n]] if n in summaries else []) + [answer]
    )
    outcome, host, _ = await run(ScriptedModels(script, full), FakeTool("look"), max_turns=11)

    notices = [fact.code for fact in host.facts if isinstance(fact, Notice)]
    assert notices == ["compacting", "compaction_failed"] * 2 + ["limit_turns"]
    assert outcome.limit == "turns"


async def test_the_user_s_request_survives_when_it_is_not_among_what_is_kept() -> None:
    models = ScriptedModels(
        f"say: {LONG}\ntool: look {{}}\n---\nfail: context_overflow Too long.\n---\nsay: It looked.\n---\nsay: Done"
    )
    request = Context(messages=(UserMessage(content="Paint it blue"),))
    _, host, requests = await run(models, FakeTool("look"), conversation=request, keep_tokens=0)

    summary = "It looked.\n\nThe user's last message was:\nPaint it blue"
    compacted = next(fact for fact in host.facts if isinstance(fact, Compacted))
    assert compacted.summary == summary
    last_result = next(place for place, fact in enumerate(host.facts, 1) if fact == finished("c1", "look did it"))
    assert compacted.through == last_result
    assert requests[3].context.messages == (summary_message(summary),)


async def test_a_user_can_ask_for_a_compaction() -> None:
    host, models = FakeHost(), ScriptedModels("say: All of it.\nusage: input=5 output=2")
    messages = past(2)[:-1]
    outcome = await run_compaction(
        host,
        models,
        Context(messages=messages),
        AgentSettings(model=None),
        instructions="Keep the numbers.",
        places=places(messages),
    )

    assert host.facts == [Compacted(summary="All of it.\n\nThe user's last message was:\nQuestion 1", through=16)]
    assert outcome == AgentOutcome(stop_reason="end_turn", usage=Usage(input=5, output=2))
    (prompt,) = models.requests[0].context.messages
    assert isinstance(prompt, UserMessage)
    assert str(prompt.content).endswith("The user adds: Keep the numbers.")


async def test_a_compaction_that_a_user_asked_for_and_that_fails_is_an_error() -> None:
    host = FakeHost()
    outcome = await run_compaction(
        host, ScriptedModels("fail: overloaded Busy."), Context(messages=past(2)), AgentSettings(model=None)
    )

    assert outcome.error is not None
    assert host.facts == []
    assert outcome.error.message == "The conversation was not compacted: there is nothing older to summarise."


# ---------------------------------------------------------------- where it is cut, and what is summarised

CALL = AssistantMessage(content=(Text(text="Let me see. " * 50), call("t", "look", '{"n":1}')), stop_reason="tool_use")
RESULT = result("t", "look", "x" * 4000, is_error=True)


def test_a_call_is_not_parted_from_its_result() -> None:
    messages = (UserMessage(content="Look"), CALL, RESULT, CALL, RESULT)
    conversation = Conversation(messages, (1, 5, 6, 9, 10))

    assert [cut(conversation, keep) for keep in (0, 500, 1100, 1200, 2000, 3000, 10_000)] == [5, 5, 5, 3, 3, 1, 1]


def test_input_without_an_answer_is_not_summarised() -> None:
    messages = (UserMessage(content="A"), CALL, RESULT, UserMessage(content="B"), UserMessage(content="C"))

    assert cut(Conversation(messages, (1, 2, 3, 4, 5)), 0) == 3


def test_messages_of_one_place_stay_together() -> None:
    messages = (UserMessage(content="A"), CALL, RESULT, UserMessage(content="B"))

    with pytest.raises(NotShorter):
        cut(Conversation(messages, (7, 7, 7, 7)), 0)


def test_a_summary_is_not_summarised_alone() -> None:
    conversation = Conversation((UserMessage(content="A"), CALL, RESULT, CALL, RESULT), (3, 5, 6, 8, 9))
    conversation.replace_older(3, summary_message("Short."))

    assert (conversation.messages, conversation.places) == ([summary_message("Short."), CALL, RESULT], [6, 8, 9])
    assert cut(conversation, 0) == 3
    with pytest.raises(NotShorter):
        cut(conversation, 10_000)


def test_a_transcript_is_plain_text_of_bounded_length() -> None:
    messages: tuple[Message, ...] = (
        SystemMessage(content="Be kind."),
        UserMessage(content=(Text(text="Look:"), Image(data="aGk=", mime_type="image/png"))),
        AssistantMessage(content=(Thinking(thinking="Hm."), Text(text="Yes."), call("t", "l"))),
        result("t", "l", "y" * 5000),
    )
    told = transcript(messages, 100_000)

    assert told == "\n\n".join(
        (
            "System: Be kind.",
            "User: Look:\n[image]",
            "Agent: Yes.",
            "Agent calls l: {}",
            f"Result of l: {'y' * 1320}\n[... 1,013 characters left out ...]\n{'y' * 2667}",
        )
    )
    assert len(transcript(messages * 100, 10_000)) < 10_100
