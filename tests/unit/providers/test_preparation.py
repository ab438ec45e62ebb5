"""What adapters may assume about a prepared conversation, whatever it was before."""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import messages
from support.messages import said_by

from makai.core.content import AssistantPart, Image, Text, Thinking, ToolCall, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, StopReason, SystemMessage, ToolMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context, ToolDefinition
from makai.providers.preparation import (
    NO_RESULT,
    ToolIdRule,
    arguments_object,
    arguments_text,
    identity,
    normalised_tool_id,
    prepare,
)

MODEL = Model(id="m-1", api="some-api", provider="acme", base_url="http://127.0.0.1:9")
OTHER = msgspec.structs.replace(MODEL, provider="other")
HELLO = UserMessage(content="Hello")


def said(*content: AssistantPart, own: bool = True, stop: StopReason = "end_turn") -> AssistantMessage:
    return said_by(MODEL if own else OTHER, *content, stop_reason=stop)


def call(tool_id: str, signature: str | None = None) -> ToolCall:
    return messages.call(tool_id, "look", thought_signature=signature)


def result(tool_id: str, content: str = "42", *, is_error: bool = False) -> ToolMessage:
    return messages.result(tool_id, "look", content, is_error=is_error)


def prepared(*messages: Message, tool_id: ToolIdRule = identity) -> tuple[Message, ...]:
    return prepare(Context(messages=messages), MODEL, inline_system=True, tool_id=tool_id).messages


def test_a_sound_conversation_is_left_alone() -> None:
    sound = (
        SystemMessage(content="Be brief."),
        HELLO,
        said(
            Thinking(thinking="hm", thinking_signature="s1"),
            Thinking(thinking="", thinking_signature="opaque", redacted=True),
            Text(text="Looking.", text_signature="s2"),
            call("a", "s3"),
            call("b"),
            stop="tool_use",
        ),
        result("a"),
        result("b", "broken", is_error=True),
        said(Text(text="Done.")),
    )

    assert prepared(*sound) == sound


def test_another_models_thinking_becomes_text_and_its_signatures_go() -> None:
    foreign = said(
        Thinking(thinking="hm", thinking_signature="s1"),
        Thinking(thinking=" "),
        Thinking(thinking="[withheld]", thinking_signature="opaque", redacted=True),
        Text(text="Looking.", text_signature="s2"),
        Text(text="", text_signature="s4"),
        call("a", "s3"),
        own=False,
    )

    assert prepared(foreign, result("a")) == (
        said(Text(text="hm"), Text(text="Looking."), call("a"), own=False),
        result("a"),
    )


@pytest.mark.parametrize("field", ["provider", "api", "model"])
def test_the_same_model_means_the_same_provider_api_and_model(field: str) -> None:
    own = said(Text(text="Hi", text_signature="s"))
    foreign = msgspec.structs.replace(own, **{field: "different"})

    assert prepared(own, foreign) == (own, msgspec.structs.replace(foreign, content=(Text(text="Hi"),)))


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_broken_turn_keeps_its_words_and_loses_calls_nobody_answered(stop: StopReason) -> None:
    broken = said(Thinking(thinking="hm"), Text(text="Well, "), call("a"), call("b"), stop=stop)

    assert prepared(HELLO, broken, result("b"), HELLO) == (
        HELLO,
        said(Thinking(thinking="hm"), Text(text="Well, "), call("b"), stop=stop),
        result("b"),
        HELLO,
    )


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_broken_turn_without_usable_content_is_dropped(stop: StopReason) -> None:
    assert prepared(HELLO, said(Thinking(thinking="hm"), call("a"), stop=stop), HELLO) == (HELLO, HELLO)


def test_empty_turns_and_thinking_that_led_to_nothing_are_dropped() -> None:
    cut_in_thought = said(Text(text="So."), Thinking(thinking="but", thinking_signature="s"), stop="max_tokens")

    assert prepared(said(), said(Text(text=" \n")), said(Thinking(thinking="hm")), cut_in_thought) == (
        said(Text(text="So."), stop="max_tokens"),
    )


def test_missing_results_are_filled_and_results_stand_in_the_order_of_calls() -> None:
    turn = said(call("a"), call("b"), call("c"))

    assert prepared(turn, result("c"), HELLO, result("a")) == (
        turn,
        result("a"),
        result("b", NO_RESULT, is_error=True),
        result("c"),
        HELLO,
    )


def test_orphan_and_second_results_are_removed() -> None:
    turn = said(call("a"))

    assert prepared(result("a"), turn, result("z"), result("a", "first"), result("a", "second")) == (
        turn,
        result("a", "first"),
    )


def test_a_result_gets_the_name_of_its_call() -> None:
    assert prepared(said(call("a")), messages.result("a", "", "42")) == (said(call("a")), result("a"))


def test_ids_that_a_model_uses_again_become_unique_and_stay_with_their_results() -> None:
    first = (said(call("x"), call("x")), result("x", "1"), result("x", "2"))
    second = (said(call("x")), result("x", "3"))

    ready = prepared(*first, *second)

    calls = [
        made.tool_call_id for message in ready if isinstance(message, AssistantMessage) for made in message.tool_calls()
    ]
    results = [(m.result.tool_call_id, m.result.content) for m in ready if isinstance(m, ToolMessage)]
    assert calls[0] == "x"
    assert len(set(calls)) == 3
    assert results == list(zip(calls, ["1", "2", "3"], strict=True))
    assert prepared(*first) == ready[:3], "a growing conversation keeps the ids it had"


def test_calls_without_an_id_get_one() -> None:
    turn, answer = prepared(said(call("")), result(""))

    assert isinstance(turn, AssistantMessage)
    assert isinstance(answer, ToolMessage)
    assert turn.tool_calls()[0].tool_call_id == answer.result.tool_call_id
    assert answer == result(answer.result.tool_call_id)
    assert answer.result.tool_call_id.startswith("call_")


def test_a_rule_that_cannot_tell_ids_apart_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be told apart"):
        prepared(said(call("a"), call("b")), tool_id=lambda tool_id: "same")


def test_images_in_results_survive() -> None:
    picture = messages.result("a", "look", (Image(data="AA==", mime_type="image/png"),))

    assert prepared(said(call("a")), picture) == (said(call("a")), picture)


def test_leading_system_messages_join_the_prompt_and_later_ones_become_user_messages() -> None:
    context = Context(
        system_prompt="One.",
        messages=(
            SystemMessage(content="Two."),
            SystemMessage(content=" "),
            HELLO,
            SystemMessage(content="Three."),
            SystemMessage(content=""),
        ),
    )

    assert prepare(context, MODEL, inline_system=False) == Context(
        system_prompt="One.\n\nTwo.", messages=(HELLO, UserMessage(content="<system>Three.</system>"))
    )


def test_without_any_system_text_there_is_no_system_prompt() -> None:
    context = Context(system_prompt="", messages=(SystemMessage(content=""), HELLO))

    assert prepare(context, MODEL, inline_system=False) == Context(messages=(HELLO,))


@pytest.mark.parametrize("tool_id", ["call_1", "toolu_01-A", "a" * 64])
def test_ids_that_fit_are_kept(tool_id: str) -> None:
    assert normalised_tool_id(64)(tool_id) == tool_id


def test_ids_that_do_not_fit_carry_a_hash() -> None:
    rule = normalised_tool_id(20)

    assert rule("call|item") == "call_item_" + rule("call|item")[-8:]
    assert rule("call|item") != rule("call/item")
    assert rule("a" * 21)[:11] == "a" * 11
    assert rule("a" * 21) != rule("a" * 22)


def test_mistral_ids_are_nine_letters_and_digits() -> None:
    rule = normalised_tool_id(9, alphanumeric=True)

    assert rule("D681PevKs") == "D681PevKs"
    assert rule("call_1") == rule("call_1")
    assert re.fullmatch("[A-Za-z0-9]{9}", rule("call_1"))
    assert rule("call_1") != rule("call_2")


@given(st.text(), st.sampled_from([5, 9, 40, 64]), st.booleans())
def test_normalised_ids_obey_their_rule_and_are_stable(tool_id: str, max_length: int, alphanumeric: bool) -> None:
    rule = normalised_tool_id(max_length, alphanumeric=alphanumeric)
    pattern = f"[A-Za-z0-9]{{{max_length}}}" if alphanumeric else f"[A-Za-z0-9_-]{{1,{max_length}}}"

    assert re.fullmatch(pattern, rule(tool_id))
    assert rule(rule(tool_id)) == rule(tool_id)


@pytest.mark.parametrize(
    ("made_up", "sent"),
    [
        ("look", "look"),
        ("mcp.look", "mcp.look"),
        ("functions.look", "functions_look"),
        ("look<|channel|>json", "look__channel__json"),
        ("", "no_name"),
        ("2 eyes", "_2_eyes"),
        ("-", "_-"),
        ("Füße", "F__e"),
        ("x" * 100, "x" * 64),
        ("1" * 64, "_" + "1" * 63),
    ],
)
def test_a_name_that_is_no_tools_and_that_vendors_refuse_is_sent_in_a_form_they_take(made_up: str, sent: str) -> None:
    tools = (ToolDefinition(name="mcp.look", description="", parameters_schema_json="{}"),)
    asked = Context(messages=(said(messages.call("a", made_up)), messages.result("a", made_up, "none")), tools=tools)

    ready = prepare(asked, MODEL, inline_system=True)
    assert ready.messages == (said(messages.call("a", sent)), messages.result("a", sent, "none"))
    assert prepare(ready, MODEL, inline_system=True) == ready


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"city": "Zürich"}', '{"city": "Zürich"}'),
        ('{"city": ', '{"_malformed_arguments":"{\\"city\\": "}'),
        ("[1]", '{"_malformed_arguments":"[1]"}'),
        ("", '{"_malformed_arguments":""}'),
        ('{"a":"\ud800"}', '{"_malformed_arguments":"{\\"a\\":\\"?\\"}"}'),
    ],
)
def test_malformed_arguments_are_shown_and_never_replaced_by_an_empty_object(arguments: str, sent: str) -> None:
    made = ToolCall(tool_call_id="a", name="look", arguments_json=arguments)

    assert bytes(arguments_object(made)).decode() == arguments_text(made) == sent


# Few ids and short texts, so that collisions, duplicates and empty parts are common.
IDS = st.sampled_from(["a", "b", "", "a b", "a/b", "x" * 70])
NAMES = st.sampled_from(["look", "", "a b", "x" * 70, "9"])
WORDS = st.sampled_from(["", " ", "words"])
SIGNATURES = st.sampled_from([None, "sig"])
PARTS = st.one_of(
    st.builds(Text, text=WORDS, text_signature=SIGNATURES),
    st.builds(Thinking, thinking=WORDS, thinking_signature=SIGNATURES, redacted=st.booleans()),
    st.builds(ToolCall, tool_call_id=IDS, name=NAMES, arguments_json=st.just("{}"), thought_signature=SIGNATURES),
)
STOPS: list[StopReason | None] = [None, "end_turn", "tool_use", "error", "aborted"]
MESSAGES = st.one_of(
    st.builds(SystemMessage, content=WORDS),
    st.builds(UserMessage, content=WORDS),
    st.builds(
        AssistantMessage,
        content=st.lists(PARTS, max_size=5).map(tuple),
        provider=st.sampled_from(["acme", "other"]),
        api=st.just("some-api"),
        model=st.just("m-1"),
        stop_reason=st.sampled_from(STOPS),
    ),
    st.builds(
        ToolMessage,
        result=st.builds(
            ToolResult, tool_call_id=IDS, tool_name=st.just("look"), content=WORDS, is_error=st.booleans()
        ),
    ),
)
CONTEXTS = st.builds(
    Context, messages=st.lists(MESSAGES, max_size=12).map(tuple), system_prompt=st.sampled_from([None, "", "Be brief."])
)
RULES = st.sampled_from([identity, normalised_tool_id(), normalised_tool_id(9, alphanumeric=True)])


def assert_tool_results_follow_their_calls(messages: tuple[Message, ...]) -> None:
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.result.tool_call_id
        else:
            assert waiting == []
            waiting = (
                [made.tool_call_id for made in message.tool_calls()] if isinstance(message, AssistantMessage) else []
            )
    assert waiting == []


def assert_is_a_sound_turn(message: AssistantMessage) -> None:
    assert message.content
    assert not isinstance(message.content[-1], Thinking) or message.provider != "acme"
    for part in message.content:
        match part:
            case Text():
                assert part.text.strip() or part.text_signature
                assert message.provider == "acme" or part.text_signature is None
            case Thinking():
                assert message.provider == "acme"
                assert part.thinking.strip() or part.thinking_signature
            case ToolCall():
                assert message.provider == "acme" or part.thought_signature is None
                assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", part.name)


@given(CONTEXTS, st.booleans(), RULES)
def test_any_conversation_becomes_sound(context: Context, inline_system: bool, rule: ToolIdRule) -> None:
    ready = prepare(context, MODEL, inline_system=inline_system, tool_id=rule)

    turns = [message for message in ready.messages if isinstance(message, AssistantMessage)]
    ids = [made.tool_call_id for turn in turns for made in turn.tool_calls()]
    assert len(set(ids)) == len(ids)
    assert all(tool_id and rule(tool_id) == tool_id for tool_id in ids)
    assert_tool_results_follow_their_calls(ready.messages)
    for turn in turns:
        assert_is_a_sound_turn(turn)
    systems = [message for message in ready.messages if isinstance(message, SystemMessage)]
    kept = [message for message in context.messages if isinstance(message, SystemMessage)]
    assert systems == (kept if inline_system else [])
    assert prepare(ready, MODEL, inline_system=inline_system, tool_id=rule) == ready


@given(CONTEXTS, RULES)
def test_a_conversation_that_grows_keeps_its_beginning(context: Context, rule: ToolIdRule) -> None:
    """Prompt caches match by prefix. New results may still fill the gap of a call; nothing before it may change."""
    answered = [m for m in context.messages if not isinstance(m, ToolMessage)]
    lengths = range(len(answered) + 1)
    steps = [
        prepare(Context(messages=tuple(answered[:length])), MODEL, inline_system=True, tool_id=rule).messages
        for length in lengths
    ]

    for before, after in pairwise(steps):
        assert after[: len(before)] == before
