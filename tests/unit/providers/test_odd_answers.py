"""Answers that differ from their API and can still be read, from every API alike: gateways add end marks and empty
fields, and write the same thing in other JSON types."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from support.streams import ask, assert_lawful, decode, done, failed, model

from makai.core.content import AssistantPart, Text
from makai.core.stream_events import StreamEvent
from makai.providers.registry import builtin_api

CHAT, GOOGLE = "openai-completions", "google-generative-ai"


def streamed(api_id: str, *events: object) -> list[StreamEvent]:
    """The same whole and byte by byte, and lawful."""
    before, after = (b"", b"\n") if api_id == "ollama" else (b"data: ", b"\n\n")
    payloads = (event if isinstance(event, bytes) else msgspec.json.encode(event) for event in events)
    data = b"".join(before + payload + after for payload in payloads)
    api, request = builtin_api(api_id), ask(model(api_id))
    result = decode(api, request, data)
    assert_lawful(result)
    assert decode(api, request, data, chunk=1) == result
    return result


def content(api_id: str, *events: object) -> tuple[AssistantPart, ...]:
    return done(streamed(api_id, *events)).content


def chat(text: str, reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}


def candidate(text: str, reason: str | None = None) -> dict[str, object]:
    return {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": reason}]}


@pytest.mark.parametrize(("api_id", "said"), [(CHAT, chat), (GOOGLE, candidate)], ids=[CHAT, GOOGLE])
def test_an_empty_finish_reason_is_none(api_id: str, said: Callable[[str, str], object]) -> None:
    end, limit = ("stop", "length") if api_id == CHAT else ("STOP", "MAX_TOKENS")

    assert content(api_id, said("a", ""), said("b", end)) == (Text(text="ab"),)
    assert done(streamed(api_id, said("a", limit), said("", ""))).stop_reason == "max_tokens"
    cut = failed(streamed(api_id, said("a", ""), said("b", "")))
    assert cut.error_message == "ended before it was complete"
    assert cut.message.content == (Text(text="ab"),)
