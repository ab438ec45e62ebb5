"""Pictures and recordings that a model does not take: refused in the newest message, words in earlier ones."""

from __future__ import annotations

import pytest

from makai.catalog.inputs import is_taken
from makai.catalog.resolver import Resolver
from makai.core.content import Audio, Image, Text, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context
from makai.providers.media import check_input, fitted

RESOLVER = Resolver({})
PICTURE = Image(data="QUJD", mime_type="image/png")
RECORDING = Audio(data="QUJD", mime_type="audio/wav")
TAKEN = {
    "anthropic/claude-sonnet-5-5": (True, False),
    "anthropic/claude-of-next-year": (True, False),
    "groq/openai/gpt-oss-120b": (False, False),
    "groq/of-next-year": (True, True),
    "google/gemini-3.8-flash": (True, True),
    "google/gemini-of-next-year": (True, True),
    "openai/gpt-of-next-year": (True, False),
    "openai/openai-completions@gpt-of-next-year": (True, True),
    "ollama/gpt-oss:20b": (False, False),
    "local/smollm2-135m": (False, False),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_catalog_does_not_know_is_left_to_the_vendor(name: str) -> None:
    model = RESOLVER.resolve(name)
    assert (is_taken(RESOLVER, model, PICTURE), is_taken(RESOLVER, model, RECORDING)) == TAKEN[name]


def test_a_caller_that_says_what_its_model_can_do_is_believed() -> None:
    stated = (ModelCapability.CHAT, ModelCapability.TOOLS)
    for provider in ("mine", "groq"):
        mine = Model(id="m", api="openai-completions", provider=provider, base_url="https://mine.example.org/v1")
        assert is_taken(RESOLVER, RESOLVER.resolve_object(mine), PICTURE)
        told = Model(id="m", api=mine.api, provider=provider, base_url=mine.base_url, capabilities=stated)
        assert not is_taken(RESOLVER, RESOLVER.resolve_object(told), PICTURE)


def test_a_recording_in_a_form_that_its_api_cannot_carry_is_not_sent() -> None:
    model = RESOLVER.resolve("openai/openai-completions@gpt-of-next-year")
    assert not is_taken(RESOLVER, model, Audio(data="QUJD", mime_type="audio/ogg"))


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("cerebras/gpt-oss-120b", PICTURE, "gpt-oss-120b takes no pictures; cerebras/qwen-3.8-27b does."),
        ("local/smollm2-135m", PICTURE, "smollm2-135m takes no pictures; anthropic/claude-sonnet-5-5 does."),
        ("anthropic/claude-sonnet-5-5", RECORDING, "claude-sonnet-5-5 takes no audio; google/gemini-3.8-flash does."),
    ],
)
def test_the_refusal_names_the_model_and_one_that_takes_it(name: str, part: Image | Audio, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_input(RESOLVER, RESOLVER.resolve(name), (Text(text="Look"), part))
    assert refused.value.message == message


def test_a_vendor_with_a_key_is_named_before_others() -> None:
    resolver = Resolver({"GEMINI_API_KEY": "k"})
    with pytest.raises(InvalidRequest, match=r"^smollm2-135m takes no pictures; google/gemini-3\.8-flash does\."):
        check_input(resolver, resolver.resolve("local/smollm2-135m"), (PICTURE,))


def conversation(part: Image | Audio, *later: Message) -> Context:
    shot = ToolResult(tool_call_id="c", tool_name="shot", content=(Text(text="done"), PICTURE))
    answer = AssistantMessage(content=(Text(text="I see"),), stop_reason="end_turn")
    look = UserMessage(content=(Text(text="Look"), part))
    return Context(messages=(look, answer, ToolMessage(result=shot), *later))


def test_earlier_parts_become_words_for_a_model_that_does_not_take_them() -> None:
    model = RESOLVER.resolve("local/smollm2-135m")
    found = fitted(conversation(RECORDING, UserMessage(content="And now?")), RESOLVER, model)
    heard = Text(text="[A recording was here (audio/wav). smollm2-135m takes no audio.]")
    seen = Text(text="[A picture was here (image/png). smollm2-135m takes no pictures.]")
    assert [message.content for message in found.messages if isinstance(message, UserMessage)] == [
        (Text(text="Look"), heard), "And now?",
    ]  # fmt: skip
    assert [message.result.content for message in found.messages if isinstance(message, ToolMessage)] == [
        (Text(text="done"), seen)
    ]


def test_a_model_that_takes_everything_gets_the_conversation_as_it_is() -> None:
    context = conversation(RECORDING, UserMessage(content=(PICTURE,)))
    assert fitted(context, RESOLVER, RESOLVER.resolve("google/gemini-3.8-flash")) == context


def test_only_the_newest_message_is_refused() -> None:
    model = RESOLVER.resolve("local/smollm2-135m")
    with pytest.raises(InvalidRequest, match=r"^smollm2-135m takes no pictures; "):
        fitted(conversation(PICTURE, UserMessage(content=(PICTURE,))), RESOLVER, model)
    fitted(conversation(PICTURE, UserMessage(content=(PICTURE,)), UserMessage(content="Go on")), RESOLVER, model)
