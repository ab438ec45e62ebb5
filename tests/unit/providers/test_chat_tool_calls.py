"""Tool calls of chat completions as servers stream them: an id before the name, and parallel calls without ids."""

from __future__ import annotations

import msgspec
import pytest
from support.streams import ask, assert_lawful, decode, done, model

from makai.core.content import ToolCall
from makai.providers.openai_completions import OpenAICompletions

CHAT = model("openai-completions")
F = ToolCall(tool_call_id="c1", name="f", arguments_json='{"a":1}')
G = ToolCall(tool_call_id="c2", name="g", arguments_json='{"b":2}')


def piece(index: int | None = 0, call_id: str | None = None, **function: str) -> dict[str, object]:
    fields = {"index": index, "id": call_id, "function": function or None}
    return {name: value for name, value in fields.items() if value is not None}


def calls(*chunks: list[dict[str, object]]) -> list[ToolCall]:
    """The calls of an answer whose chunks have these pieces; the law of a stream is checked."""
    deltas = [{"choices": [{"delta": {"tool_calls": chunk}}]} for chunk in chunks]
    said = [*deltas, {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}]
    data = b"".join(b"data: " + msgspec.json.encode(one) + b"\n\n" for one in said)
    events = decode(OpenAICompletions(), ask(CHAT), data)
    assert_lawful(events)
    assert decode(OpenAICompletions(), ask(CHAT), data, chunk=1) == events
    return list(done(events).tool_calls())


@pytest.mark.parametrize(
    "chunks",
    [
        ([piece(0, "c1")], [piece(0, name="f")], [piece(0, arguments='{"a"')], [piece(0, arguments=":1}")]),
        ([piece(0, "c1", name="", arguments="")], [piece(0, name="f", arguments='{"a":1}')]),
        ([piece(0, "c1", arguments='{"a"')], [piece(0, "c1", name="f", arguments=":1}")]),
        ([piece(0, "c1")], [piece(0, "c1")], [piece(0, "c1", name="f", arguments='{"a":1}')]),
    ],
    ids=["id, name, arguments", "an empty name", "arguments before the name", "the id twice"],
)
def test_a_name_may_come_after_the_id(chunks: tuple[list[dict[str, object]], ...]) -> None:
    assert calls(*chunks) == [F]


def test_names_of_parallel_calls_may_come_late_and_interleaved() -> None:
    assert calls(
        [piece(0, "c1"), piece(1, "c2")],
        [piece(1, arguments='{"b"')],
        [piece(1, name="g", arguments=":2}")],
        [piece(0, name="f", arguments='{"a":1}')],
    ) == [G, F]


def test_a_call_that_never_gets_a_name_is_not_lost() -> None:
    assert calls([piece(0, "c1")], [piece(0, arguments='{"a":1}')]) == [msgspec.structs.replace(F, name="")]


@pytest.mark.parametrize("call_id", [None, ""], ids=["absent", "empty"])
@pytest.mark.parametrize("index", [None, 0], ids=["no index", "index 0"])
@pytest.mark.parametrize("together", [True, False], ids=["one chunk", "two chunks"])
def test_parallel_calls_without_ids_stay_apart(call_id: str | None, index: int | None, together: bool) -> None:
    first = piece(index, call_id, name="f", arguments='{"a":1}')
    others = [piece(index, call_id, name="f", arguments='{"b":2}'), piece(index, call_id, name="g", arguments="")]
    last = piece(index, call_id, name="h", arguments='{"c":3}')
    pieces = [first, *others, last]

    assert calls(*([pieces] if together else [[one] for one in pieces])) == [
        ToolCall(tool_call_id="made_1", name="f", arguments_json='{"a":1}'),
        ToolCall(tool_call_id="made_2", name="f", arguments_json='{"b":2}'),
        ToolCall(tool_call_id="made_3", name="g", arguments_json="{}"),
        ToolCall(tool_call_id="made_4", name="h", arguments_json='{"c":3}'),
    ]


@pytest.mark.parametrize("call_id", [None, "c1"], ids=["without its id", "with its id"])
def test_a_name_that_is_repeated_with_every_piece_is_one_call(call_id: str | None) -> None:
    pieces = ['{"a"', ":1}", "", "\n"]
    chunks = [[piece(0, "c1", name="f", arguments="")]] + [
        [piece(0, call_id, name="f", arguments=one)] for one in pieces
    ]

    assert calls(*chunks) == [msgspec.structs.replace(F, arguments_json='{"a":1}\n')]
