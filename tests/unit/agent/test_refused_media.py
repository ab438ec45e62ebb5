"""Pictures that a vendor refuses although the catalog did not know: their run fails, and later ones do without them."""

from __future__ import annotations

import pytest
from support.agent import FakeHost, HttpModels, ScriptedModels, asked, fixed
from support.streams import model
from support.upstream import answers, chat_stream, refuses, upstream

from makai.agent.loop import run_agent
from makai.agent.settings import AgentSettings
from makai.core import session_events as ev
from makai.core.content import Image, Text
from makai.core.messages import UserMessage
from makai.core.request import Context
from makai.providers.http import HttpClient

REFUSES = "fail: provider_error This model does not support image input."
PICTURE = Image(data="aGk=", mime_type="image/png")


def with_picture(*later: UserMessage) -> Context:
    return Context(messages=(UserMessage(content=(Text(text="Look"), PICTURE)), *later))


def notices(host: FakeHost) -> list[tuple[str, str]]:
    return [(fact.level, fact.code) for fact in host.facts if isinstance(fact, ev.Notice)]


async def test_a_picture_that_a_vendor_refuses_is_named_and_the_run_fails() -> None:
    host, models = FakeHost(), ScriptedModels(REFUSES)
    outcome = await run_agent(host, models, with_picture(), fixed({}), host.decide, AgentSettings(model="any"))

    assert len(models.requests) == 1
    assert outcome.error is not None
    assert outcome.error.message == "This model does not support image input."
    assert outcome.error.hint == (
        "If scripted-model takes no pictures or audio, send the message without them or change the model. "
        "Your next message continues without them."
    )


async def test_an_earlier_picture_that_a_vendor_refuses_becomes_words() -> None:
    host, models = FakeHost(), ScriptedModels(f"{REFUSES}\n---\nsay: Hello")
    later = UserMessage(content="And now?")
    outcome = await run_agent(host, models, with_picture(later), fixed({}), host.decide, AgentSettings(model="any"))

    assert outcome.stop_reason == "end_turn"
    words = Text(text="[A picture was here (image/png). scripted-model did not take it.]")
    assert models.requests[1].context.messages == (UserMessage(content=(Text(text="Look"), words)), later)
    assert notices(host) == [("warning", "media_refused")]


async def test_a_conversation_without_pictures_is_not_asked_for_again_when_it_is_refused() -> None:
    host, models = FakeHost(), ScriptedModels(REFUSES)
    outcome = await run_agent(host, models, asked("Hi"), fixed({}), host.decide, AgentSettings(model="any"))

    assert (len(models.requests), notices(host)) == (1, [])
    assert outcome.error is not None
    assert outcome.error.hint is None


REFUSALS = {
    "openai": (400, b'{"error":{"message":"Invalid content type. image_url is only supported by certain models."}}'),
    "deepseek": (400, b'{"error":{"message":"unknown variant `image_url`, expected `text`","type":"invalid_request"}}'),
    "groq": (400, b'{"error":{"message":"messages.0.content: value must be a string","type":"invalid_request_error"}}'),
    "openrouter": (404, b'{"error":{"message":"No endpoints found that support image input","code":404}}'),
    "llama.cpp": (500, b'{"error":{"message":"image input is not supported - hint: provide the mmproj","code":500}}'),
    "anthropic": (
        400,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"Could not process image"}}',
    ),
}


@pytest.mark.parametrize("vendor", REFUSALS)
async def test_every_vendors_refusal_of_an_earlier_picture_is_understood(vendor: str) -> None:
    status, body = REFUSALS[vendor]
    host, client = FakeHost(), HttpClient()
    context = with_picture(UserMessage(content="And now?"))
    async with upstream(refuses(status, body), answers(chat_stream("Hello"))) as server:
        models = HttpModels(model("openai-completions", base_url=server.url), client)
        outcome = await run_agent(host, models, context, fixed({}), host.decide, AgentSettings(model="any"))
        sent = [b"image_url" in request.body for request in server.requests]
    await client.close()

    assert (outcome.stop_reason, sent) == ("end_turn", [True, False])
