"""strict_json: every documented decision, a table of what must pass and fail, and no exception but ParseError."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_strategies import mutated_json, values
from support.profiles import examples

from makai.core.errors import ParseError
from makai.wire import strict_json

ACCEPTED: list[tuple[bytes, Any]] = [
    (b"null", None),
    (b"true", True),
    (b"false", False),
    (b"0", 0),
    (b"-0", 0),
    (b"-1", -1),
    (b"123", 123),
    (b"9007199254740993", 2**53 + 1),
    (b"18446744073709551616", 2**64),
    (b"-9223372036854775809", -(2**63) - 1),
    (b"1" * 4300, int("1" * 4300)),
    (b"0.5", 0.5),
    (b"-0.5", -0.5),
    (b"1.0", 1.0),
    (b"1e2", 100.0),
    (b"1E2", 100.0),
    (b"1e+2", 100.0),
    (b"1e-2", 0.01),
    (b"0e0", 0.0),
    (b"1e-400", 0.0),
    (b"1.7976931348623157e308", 1.7976931348623157e308),
    (b'""', ""),
    (b'"a"', "a"),
    (b'"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\/\b\f\n\r\t'),
    (b'"\\u00e9"', "é"),
    (b'"\\u00E9"', "é"),
    (b'"\\ud83d\\ude00"', "😀"),
    (b'"\\uD83D\\uDE00"', "😀"),
    ('"é€😀"'.encode(), "é€😀"),
    ('"\u2028\u2029\u0085\x7f"'.encode(), "\u2028\u2029\u0085\x7f"),
    (b'"\\ufeff"', "\ufeff"),
    (b'"\\u0001"', "\x01"),
    (b'"\\\\u0000"', "\\u0000"),
    (b'"\\\\\\\\u0000"', "\\\\u0000"),
    (b'"[[[{{{"', "[[[{{{"),
    (b"[]", []),
    (b"[ ]", []),
    (b"[1,2]", [1, 2]),
    (b" \t\r\n[ 1 , 2 ] \t\r\n", [1, 2]),
    (b"{}", {}),
    (b'{"":0}', {"": 0}),
    (b'{"a":{"b":[null]}}', {"a": {"b": [None]}}),
    (b'{"a":1,"a":2}', {"a": 2}),
    (b"[" * 64 + b"]" * 64, None),
]

REFUSED: list[bytes] = [
    b"", b" ", b"\xef\xbb\xbf{}", b"\xff\xfe[\x00]\x00", b"NaN", b"Infinity", b"-Infinity", b"nan", b"True", b"nul",
    b"nulll", b"undefined", b"1e400", b"-1e400", b"1" * 4301, b"1" * 5000, b"[" + b"9" * 100_000 + b"]", b"01", b"-01",
    b"+1", b"-", b".5", b"1.", b"1.e1", b"1e", b"1e+", b"0x1", b"1_000", b"1 2", b"1,", b"'a'", b'"a', b'a"', b'"\\"',
    b'"\\x41"', b'"\\u12"', b'"\\u12g4"', b'"\\U0041"', b'"\n"', b'"\t"', b'"\x00"', b'"\\u0000"', b'"a\\u0000b"',
    b'"\\\\\\u0000"', b'{"\\u0000":1}', b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\u0041"', b'"\\ud800\\ud800"',
    b'"\\ude00\\ud83d"', b'{"\\ud800":1}', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"',
    b'"\xe2\x82"', b"[", b"]", b"[1", b"[1,", b"[1,]", b"[,1]", b"[1 2]", b"[1]]", b"[1}", b"{", b"}", b'{"a"}',
    b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}', b'{"a" 1}', b"{a:1}", b"{1:1}", b"{'a':1}", b'{"a":1}}', b"[1]// comment",
    b"/* comment */1", b"[1]\x00", b"\x0c1", b"\xc2\xa01", b"[" * 65 + b"]" * 65, b"[" * 100_000,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000, b'[{"a":' * 50_000,
]  # fmt: skip


@pytest.mark.proof("J1")
@pytest.mark.parametrize(("document", "value"), ACCEPTED, ids=lambda part: repr(part)[:40])
def test_valid_documents_give_their_value(document: bytes, value: Any) -> None:
    decoded = strict_json.decode(document)
    if document.startswith(b"[[[["):
        assert strict_json.encode(decoded) == document
    else:
        assert (decoded, type(decoded)) == (value, type(value))
    assert strict_json.decode(strict_json.encode(decoded)) == decoded


@pytest.mark.proof("J1", "J2")
@pytest.mark.parametrize("document", REFUSED, ids=lambda document: repr(document)[:40])
def test_anything_else_is_a_parse_error(document: bytes) -> None:
    with pytest.raises(ParseError):
        strict_json.decode(document)


def test_text_is_accepted_like_its_utf8_bytes() -> None:
    assert strict_json.decode('{"a":"é"}') == {"a": "é"}


def test_text_with_a_lone_surrogate_is_refused_in_both_directions() -> None:
    with pytest.raises(ParseError):
        strict_json.decode('"\ud800"')
    with pytest.raises(ParseError):
        strict_json.encode({"a": "\ud800"})


@pytest.mark.parametrize("text", [r'"a\ud800b"', r'"\ud800"', r'"\udc00 "', r'{"a": "\ud83d\u0041"}', r'["\ud800\n"]'])
def test_an_escape_of_a_lone_surrogate_is_named(text: str) -> None:
    with pytest.raises(ParseError, match="not valid JSON: a string has a lone surrogate"):
        strict_json.decode(text)


@pytest.mark.parametrize("text", [r'"\ud83d', r'["\ud800"', r'["\ud83d\ude00"'])
def test_a_document_that_ends_too_early_is_not_blamed_on_its_surrogates(text: str) -> None:
    with pytest.raises(ParseError, match=r"not valid JSON: (Input data was truncated|JSON is malformed)"):
        strict_json.decode(text)


@pytest.mark.proof("J2")
def test_negative_zero_keeps_its_sign_only_as_a_float() -> None:
    assert math.copysign(1, strict_json.decode(b"-0.0")) == -1.0
    assert math.copysign(1, strict_json.decode(b"-0")) == 1.0


@pytest.mark.proof("limit-message")
def test_a_document_at_the_size_limit_passes_and_one_byte_more_is_refused() -> None:
    assert strict_json.decode(b'"abc"', max_bytes=5) == "abc"
    with pytest.raises(ParseError, match="6 bytes exceeds the limit of 5 bytes"):
        strict_json.decode(b'"abcd"', max_bytes=5)
    with pytest.raises(ParseError, match="6 bytes exceeds the limit of 5 bytes"):
        strict_json.decode('"éé"', max_bytes=5)


@pytest.mark.proof("limit-depth")
def test_depth_is_counted_outside_strings_and_not_across_siblings() -> None:
    assert strict_json.decode(b'[["]]]"],["[[["],["\\"[["]]', max_depth=2) == [["]]]"], ["[[["], ['"[[']]
    with pytest.raises(ParseError, match="more than 2 levels"):
        strict_json.decode(b'[["]]]",[1]]]', max_depth=2)


@pytest.mark.proof("limit-depth")
def test_a_depth_limit_beyond_the_interpreter_stack_still_gives_a_parse_error() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        strict_json.decode(b"[" * 50_000 + b"]" * 50_000, max_depth=100_000)


@pytest.mark.parametrize(
    "hostile", [b'"' + b'\\"' * 500_000, b"[" * 65 + b'"\\' * 500_000, b"\\" * 1_000_000 + b"u0000"]
)
def test_a_million_hostile_bytes_are_refused_without_backtracking(hostile: bytes) -> None:
    with pytest.raises(ParseError):
        strict_json.decode(b"[" * 65 + hostile, max_depth=64)
    with pytest.raises(ParseError):
        strict_json.decode(hostile)


class Point(msgspec.Struct):
    x: int


POINT = msgspec.json.Decoder(Point)


@pytest.mark.proof("J2")
def test_typed_decoding_ignores_unknown_members_and_takes_the_last_duplicate() -> None:
    assert strict_json.decode_with(POINT, b'{"x":1,"y":[],"x":2}') == Point(x=2)


@pytest.mark.parametrize(
    "document",
    [
        *(b'{"x":"1"}', b'{"x":1.5}', b"{}", b"[]", b'{"x":1,"y":"\xff"}', b'{"x":1,"y":"\\u0000"}'),
        *(b'{"x":1,"y":"\\ud800"}', b'{"x":1,"\xff":2}', b'{"x":1e400}', b'{"x":1,"y":NaN}'),
        b'{"x":1,"y":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=lambda document: repr(document)[:30],
)
def test_typed_decoding_refuses_wrong_types_and_keeps_the_rules_for_skipped_members(document: bytes) -> None:
    with pytest.raises(ParseError):
        strict_json.decode_with(POINT, document)


@pytest.mark.proof("J3")
@examples(5000)
@given(st.binary(max_size=60) | mutated_json())
def test_any_bytes_give_a_storable_value_or_a_parse_error(document: bytes) -> None:
    try:
        value = strict_json.decode(document)
    except ParseError:
        return
    assert strict_json.decode(strict_json.encode(value)) == value
    assert b"\\u0000" not in strict_json.encode(value).replace(b"\\\\", b"")


@pytest.mark.proof("J3")
@examples(500)
@given(values)
def test_every_value_survives_the_round_trip(value: Any) -> None:
    assert strict_json.decode(strict_json.encode(value)) == value


def test_valid_json_of_another_type_is_not_called_invalid() -> None:
    with pytest.raises(ParseError) as caught:
        strict_json.decode_with(msgspec.json.Decoder(dict[str, int]), b'{"version": "1"}')
    assert caught.value.message == "Expected `int`, got `str` - at `$[...]`"
