"""partial_json: at every cut a value that the whole document continues, at the end exactly the strict value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_strategies import mutated_json, objects, values
from support.profiles import examples

from makai.core.errors import ParseError
from makai.wire import strict_json
from makai.wire.partial_json import parse_partial


def is_beginning_of(part: Any, whole: Any) -> bool:
    """Whether `part` can grow into `whole`: only what was written last may still be shorter."""
    if isinstance(whole, dict):
        keys = list(whole)[: len(part)] if isinstance(part, dict) else None
        return list(part) == keys and is_beginning_of(list(part.values()), list(whole.values()))
    if isinstance(whole, list):
        if not isinstance(part, list) or len(part) > len(whole):
            return False
        return part[:-1] == whole[: len(part) - 1 if part else 0] and (
            not part or is_beginning_of(part[-1], whole[len(part) - 1])
        )
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(part)
    if isinstance(whole, bool) or whole is None:
        return part is whole
    return isinstance(part, (int, float)) and not isinstance(part, bool)


@pytest.mark.req("MK-PROV-030")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        (" \n", None),
        ("{", {}),
        ('{"', {}),
        ('{"pa', {}),
        ('{"path"', {}),
        ('{"path":', {}),
        ('{"path": "', {"path": ""}),
        ('{"path": "/tm', {"path": "/tm"}),
        ('{"path": "/tmp"', {"path": "/tmp"}),
        ('{"path": "/tmp",', {"path": "/tmp"}),
        ('{"path": "/tmp", "n', {"path": "/tmp"}),
        ('{"path": "/tmp", "n": 1', {"path": "/tmp", "n": 1}),
        ('{"path": "/tmp", "n": 1}', {"path": "/tmp", "n": 1}),
        ('{"a": tru', {}),
        ('{"a": true', {"a": True}),
        ('{"a": nul', {}),
        ('{"a": null', {"a": None}),
        ('{"a": -', {}),
        ('{"a": 1.', {"a": 1}),
        ('{"a": 1.5e', {"a": 1.5}),
        ('{"a": 1e+', {"a": 1}),
        ('{"a": 12', {"a": 12}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\n', {"a": "x\n"}),
        ('{"a": "x\\\\', {"a": "x\\"}),
        ('{"a": "x\\"', {"a": 'x"'}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": "x\\u00e9', {"a": "xé"}),
        ('{"a": "x\\ud83d', {"a": "x"}),
        ('{"a": "x\\ud83d\\', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude0', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude00', {"a": "x😀"}),
        ('{"a": "x\\\\ud83d', {"a": "x\\ud83d"}),
        ('{"a": [1, {"b": [', {"a": [1, {"b": []}]}),
        ('{"a": {"b": 1}, "c', {"a": {"b": 1}}),
        ('[["x", "y', [["x", "y"]]),
        ("[1 , ", [1]),
        ('"text', "text"),
        ("tru", None),
        ("12", 12),
        ("}", None),
        ("[}", None),
        ("hello", None),
        ('{"a": 1 "b": 2', None),
        ('{"a": "\\ud800x', {}),
        ('{"a": "\\q', None),
        ('{"a": "\n', None),
    ],
)
def test_unfinished_text_has_the_value_written_so_far(text: str, value: Any) -> None:
    assert parse_partial(text) == value


@pytest.mark.req("MK-PROV-030")
@examples(150)
@given(objects, st.booleans(), st.sampled_from([None, 1]))
def test_every_cut_of_an_object_is_a_beginning_of_it(
    value: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse_partial(text) == strict_json.decode(text) == value
    for cut in range(1, len(text)):
        assert is_beginning_of(parse_partial(text[:cut]), value)


@pytest.mark.req("MK-PROV-030")
@examples(500)
@given(values)
def test_a_complete_document_has_exactly_its_strict_value(value: Any) -> None:
    text = strict_json.encode(value).decode()
    parsed = parse_partial(text)
    assert (parsed, type(parsed)) == (strict_json.decode(text), type(value))


@examples(1000)
@given(st.text(max_size=40) | mutated_json().map(lambda document: document.decode("utf-8", "replace")))
def test_any_text_gives_a_value_and_what_is_valid_gives_the_strict_one(text: str) -> None:
    parsed = parse_partial(text)
    try:
        assert parsed == strict_json.decode(text)
    except ParseError:
        assert strict_json.decode(strict_json.encode(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        '"' + "\\" * 999_999,
        '{"a":"' + "\\u12" * 250_000,
        "[" * 1_000_000,
        '"' * 999_999,
        "1" * 1_000_000,
        " " * 1_000_000,
    ],
)
def test_a_million_hostile_characters_have_no_value_and_take_one_pass(text: str) -> None:
    assert parse_partial(text) in (None, {}, "\\" * 499_999)
