"""Text of other programs that is not quite Unicode is read nevertheless, however it is cut."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples

from makai.core.sanitize import sanitize_text
from makai.wire import strict_json
from makai.wire.json_repair import JSONRepair, carried, repaired


def in_pieces(data: bytes, cuts: list[int]) -> bytes:
    repair = JSONRepair()
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    pieces = [data[start:end] for start, end in pairwise(places)]
    return b"".join(map(repair.feed, pieces)) + repair.close()


@examples(500)
@given(st.text(st.characters() | st.sampled_from("\\u\ud83d\ude00\ud800d8"), max_size=12), st.lists(st.integers(0, 99)))
def test_any_text_is_read_with_a_replacement_for_each_lone_half(text: str, cuts: list[int]) -> None:
    text = text.replace("\0", "")
    for outer in (text, json.dumps(text)):  # arguments of tools are JSON in JSON
        document = json.dumps(outer).encode()
        assert strict_json.decode(in_pieces(document, cuts)) == sanitize_text(outer)


@examples(300)
@given(st.binary(max_size=20), st.lists(st.integers(0, 99)))
def test_any_bytes_become_utf8(data: bytes, cuts: list[int]) -> None:
    assert in_pieces(data, cuts).decode() == repaired(data).decode()
    assert repaired(data).isascii() or repaired(data).decode()


@pytest.mark.parametrize(
    ("document", "kept"),
    [
        (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
        (rb'"\uD83D"', rb'"\ufffd"'),
        (rb'"\ude00\ud83d"', rb'"\ufffd\ufffd"'),
        (rb'"\\ud83d"', rb'"\\ud83d"'),
        (rb'"\\\ud83d"', rb'"\\\ufffd"'),
        (rb'"\ud83dx\ude00"', rb'"\ufffdx\ufffd"'),
        (rb'"\u00e9\n\\"', rb'"\u00e9\n\\"'),
        (b'"\xff"', '"\ufffd"'.encode()),
        (b"\\", b"\\"),
        (rb"\ud83d", rb"\ufffd"),
        (rb"\ud83", rb"\ud83"),
        (b'"a\x00b\x01\x1f"', rb'"a\u0000b\u0001\u001f"'),
        (b'{\t"a":\r\n1}', b'{\t"a":\r\n1}'),
    ],
    ids=str,
)
def test_only_halves_invalid_bytes_and_control_characters_are_replaced(document: bytes, kept: bytes) -> None:
    for cut in range(len(document) + 1):
        assert in_pieces(document, [cut]) == kept
    assert in_pieces(document, list(range(len(document)))) == kept


@examples(300)
@given(st.text(st.characters() | st.sampled_from("\0\\u\ud83d0"), max_size=12))
def test_any_text_is_carried_as_the_same_replacements(text: str) -> None:
    for outer in (text, json.dumps(text)):
        assert strict_json.decode(carried(json.dumps(outer).encode())) == sanitize_text(outer)


def test_a_line_without_anything_to_replace_costs_about_as_much_as_reading_it() -> None:
    line = b'{"text":"' + b"word, " * 200_000 + b'"}'

    assert carried(line) is line
    assert cpu_s(lambda: carried(line)) <= 30 * cpu_s(lambda: msgspec.json.decode(line))  # 4; as patterns it was 120


def cpu_s(work: Callable[[], object]) -> float:
    """The best of five, since other programs only make it longer."""
    spent = []
    for _ in range(5):
        before = time.process_time()
        work()
        spent.append(time.process_time() - before)
    return min(spent)
