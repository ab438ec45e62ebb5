"""Hypothesis strategies for model answers: what a vendor may push, in any lawful or unlawful order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st

from makai.core.errors import ProviderError
from makai.core.stream_events import StreamEvent
from makai.core.usage import Usage
from makai.providers.parts import Parts
from support.streams import model, new_parts

Push: TypeAlias = Callable[[Parts], None]

words = st.text(max_size=12)
keys = st.integers(min_value=0, max_value=3)


def _text(key: int, delta: str) -> Push:
    return lambda parts: parts.text(("text", key), delta)


def _thinking(key: int, delta: str) -> Push:
    return lambda parts: parts.thinking(("thinking", key), delta)


def _tool(key: int, name: str) -> Push:
    def push(parts: Parts) -> None:
        if not parts.is_open(("tool", key)):
            parts.tool(("tool", key), None, name)

    return push


def _arguments(key: int, delta: str) -> Push:
    return lambda parts: parts.arguments(("tool", key), delta)


def _sign(kind: str, key: int, signature: str) -> Push:
    def push(parts: Parts) -> None:
        if parts.is_open((kind, key)):
            parts.sign((kind, key), signature)

    return push


def _end(kind: str, key: int) -> Push:
    return lambda parts: parts.end((kind, key))


kinds = st.sampled_from(["text", "thinking", "tool"])
pushes: st.SearchStrategy[list[Push]] = st.lists(
    st.one_of(
        st.builds(_text, keys, words),
        st.builds(_thinking, keys, words),
        st.builds(_tool, keys, st.sampled_from(["read", "write"])),
        st.builds(_arguments, keys, st.sampled_from(["{", "}", '"a":1', "", "nonsense", '{"x":"é"}'])),
        st.builds(_sign, kinds, keys, words),
        st.builds(_end, kinds, keys),
        st.just(lambda parts: parts.keepalive()),
    ),
    max_size=30,
)
endings: st.SearchStrategy[Push] = st.sampled_from(
    [
        lambda parts: parts.done("end_turn"),
        lambda parts: parts.done("max_tokens", response_id="resp_1"),
        lambda parts: parts.fail(ProviderError("broke", provider_id="acme")),
    ]
)


def perform(parts: Parts, steps: list[Push], ending: Push) -> None:
    parts.start()
    parts.usage = Usage(input=3, output=5)
    for step in steps:
        step(parts)
    ending(parts)


def _events(steps: list[Push], ending: Push) -> list[StreamEvent]:
    parts = new_parts(model("x"))
    perform(parts, steps, ending)
    return parts.take()


answers = st.builds(_events, pushes, endings)
"""The events of whole answers."""
