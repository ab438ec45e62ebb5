"""JSON values in the text of a model, found within bounds of time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.wire.embedded_json import json_values

VALUE = {"name": "Ada", "born": 1815}


@pytest.mark.req("DM-ONE-005")
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a":1}', [{"a": 1}, {"a": 1}]),
        ('Here: {"a":1}.', [{"a": 1}]),
        ('```json\n{"a":1}\n```', [{"a": 1}, {"a": 1}]),
        ('~~~\n"text"\n~~~', ["text"]),
        ("42", [42]),
        ('{x} [see] {"a":"}{\\"\\\\"}', [{"a": '}{"\\'}]),
        ('{"a":1} {"b":2}', [{"a": 1}, {"b": 2}]),
        ('[1, {"a":1}]', [[1, {"a": 1}], [1, {"a": 1}]]),
        ('{"a":1', []),
        ('{"a":NaN} [1e999] ["\\ud800"]', []),
        ("", []),
    ],
)
def test_values_are_found_in_their_order(text: str, values: list[Any]) -> None:
    assert list(json_values(text)) == values


@pytest.mark.parametrize("unit", ["[", '{"a":', "[[]", '{"a":[1,2,3],', "```\n{\n"])
def test_hostile_texts_take_bounded_time(unit: str) -> None:
    began = time.process_time()
    found = list(json_values(unit * 200_000))

    assert time.process_time() - began < 10
    assert len(found) <= 1_001


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    list(json_values(text))
