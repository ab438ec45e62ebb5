"""Hypothesis strategies for well-formed conversations, as clients write them in a request."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from support.json_strategies import objects, texts
from support.wire import JSON

words = texts.filter(str.strip)
_signatures = st.none() | st.just("c2ln")
_images = st.fixed_dictionaries({"type": st.just("image"), "data": st.just("AAAA"), "mime_type": st.just("image/png")})
_sounds = st.fixed_dictionaries({"type": st.just("audio"), "data": st.just("AAAA"), "mime_type": st.just("audio/wav")})


def _text(text: str, signature: str | None = None) -> JSON:
    return {"type": "text", "text": text} | ({} if signature is None else {"text_signature": signature})


_text_parts = st.builds(_text, words, _signatures)
_instructions = st.builds(
    lambda role, text: {"role": role, "content": text}, st.sampled_from(["system", "developer"]), words
)
_users = st.builds(
    lambda content: {"role": "user", "content": content},
    words | st.lists(_text_parts | _images | _sounds, min_size=1, max_size=3),
)
_thinking = st.builds(
    lambda text, signature: (
        {"type": "thinking", "thinking": text} | ({"thinking_signature": signature} if signature else {})
    ),
    words,
    _signatures,
)
_result_contents = texts | st.lists(_text_parts, max_size=2)


@st.composite
def _answers(draw: st.DrawFn, number: int) -> list[JSON]:
    """What an assistant says, with the results of the tools it called."""
    if draw(st.booleans()):
        return [{"role": "assistant", "content": draw(words | st.lists(_text_parts, min_size=1, max_size=2))}]
    calls: list[JSON] = [
        {
            "type": "tool_call",
            "tool_call_id": f"call_{number}_{place}",
            "name": draw(st.sampled_from(["look", "go"])),
            "arguments_json": msgspec.json.encode(draw(objects)).decode(),
        }
        for place in range(draw(st.integers(1, 2)))
    ]
    parts = [*draw(st.lists(_thinking, max_size=1)), *draw(st.lists(_text_parts, max_size=1)), *calls]
    return [{"role": "assistant", "content": parts}, *draw(_results(calls))]


@st.composite
def _results(draw: st.DrawFn, calls: list[JSON]) -> list[JSON]:
    """The results of these calls in one of the ways of writing them."""
    contents = [draw(_result_contents) for _ in calls]
    if draw(st.booleans()):
        return [
            {"role": "tool", "tool_call_id": call["tool_call_id"], "content": content}
            for call, content in zip(calls, contents, strict=True)
        ]
    parts: list[JSON] = [
        {
            "type": "tool_result",
            "tool_call_id": call["tool_call_id"],
            "tool_name": call["name"],
            "content": content,
            **draw(st.sampled_from([{}, {"is_error": True}, {"details_json": "{}"}])),
        }
        for call, content in zip(calls, contents, strict=True)
    ]
    return [{"role": draw(st.sampled_from(["tool", "user"])), "content": parts}]


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """A conversation of at least one message. It ends in anything: a question, an answer, or the result of a tool."""
    chat: list[JSON] = draw(st.lists(_instructions, max_size=1))
    for number in range(draw(st.integers(0, 3))):
        chat += draw(st.lists(_users, min_size=0 if chat else 1, max_size=2))
        chat += draw(_answers(number))
        chat += draw(st.lists(_instructions, max_size=1))
    return chat + draw(st.lists(_users, min_size=0 if chat else 1, max_size=2))
