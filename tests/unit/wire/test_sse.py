"""sse: the shared vectors at every cut, an independent reading of the WHATWG rules, limits, and the encoder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples

from makai.core.errors import ParseError
from makai.wire.sse import SSEDecoder

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "vectors" / "sse.json").read_text(encoding="utf-8")
)


def feed_all(decoder: SSEDecoder, chunks: Iterable[bytes]) -> list[bytes]:
    return [data for chunk in chunks for data in decoder.feed_data(chunk)]


def read(*chunks: bytes) -> list[str]:
    return [data.decode("utf-8", "replace") for data in feed_all(SSEDecoder(), chunks)]


def bytewise(stream: bytes) -> list[bytes]:
    return [stream[i : i + 1] for i in range(len(stream))]


def by_the_letter(stream: bytes) -> list[str]:
    """The WHATWG rules word by word on a whole stream: slow and obviously right."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    events, data = [], ""
    for line in re.split("\r\n|\r|\n", text)[:-1]:
        field, _, value = line.partition(":")
        if not line:
            events += [data.removesuffix("\n")] if data else []
            data = ""
        elif field == "data":
            data += value.removeprefix(" ") + "\n"
    return events


@pytest.mark.proof("S1")
@pytest.mark.req("MK-TRANS-007")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_vectors_hold_whole_byte_by_byte_and_at_every_cut(vector: dict[str, Any]) -> None:
    stream = bytes.fromhex(vector["hex"])
    expected = [event["data"] for event in vector["events"]]
    assert by_the_letter(stream) == expected
    assert read(stream) == expected
    assert read(*bytewise(stream)) == expected
    for cut in range(1, len(stream)):
        assert read(stream[:cut], stream[cut:]) == expected


PARTS = [
    *[b"data", b"event", b"id", b"retry", b":", b": ", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\n\n\n"],
    *[b"data: x\n\n", b"event: e\ndata: y\n\n", b"data:z\r\n\r\n", b"event:\ndata: \n\n", b": ping\n\n", b"id: 7\n"],
    *[b"retry: 12\n", b"retry: 1_0\n", b"retry: \xd9\xa3\n", b"\0", b"\xef\xbb\xbf", b"\xef", b"\xff", b"\xe2\x82"],
    *[b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\x0c", b"\x1c", b"7", b"a"],
]
streams = st.lists(st.sampled_from(PARTS), max_size=25).map(b"".join)


@pytest.mark.req("MK-TRANS-007")
@examples(2000)
@given(streams, st.lists(st.integers(0, 60), max_size=4).map(sorted))
def test_any_stream_reads_as_the_standard_says_however_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    expected = by_the_letter(stream)
    assert read(stream) == expected
    assert read(*bytewise(stream)) == expected
    ends = [0, *cuts, len(stream)]
    assert read(*(stream[start:end] for start, end in pairwise(ends) if start <= end)) == expected


def test_invalid_utf8_stays_as_it_was_sent() -> None:
    assert SSEDecoder().feed_data(b"data: a\xe2\x82\n\n") == [b"a\xe2\x82"]


def test_an_event_is_dispatched_at_a_carriage_return_without_waiting_for_a_line_feed() -> None:
    decoder = SSEDecoder()
    assert decoder.feed_data(b"data: a\r\n\r") == [b"a"]
    assert decoder.feed_data(b"\ndata: b\n\n") == [b"b"]


LARGE = b"data: " + b"x" * 94  # one event of exactly 100 bytes


@pytest.mark.proof("S2")
@pytest.mark.parametrize("before", [b"", b"\n", b"\n\n\n", b"data: ok\n\n", b": c\n\n\n", b"\r\n"])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\n\ndata: ok\n\n"])
def test_the_size_limit_is_exact_however_the_stream_is_cut(before: bytes, end: bytes) -> None:
    fits, too_large = before + LARGE + end, before + LARGE + b"x" + end
    for cut in range(len(fits)):
        assert [
            data.decode() for data in feed_all(SSEDecoder(max_event_bytes=100), [fits[:cut], fits[cut:]])
        ] == by_the_letter(fits)
    for chunks in [[too_large], bytewise(too_large)] + [[too_large[:cut], too_large[cut:]] for cut in range(1, 110)]:
        with pytest.raises(ParseError, match="exceeds the limit of 100 bytes"):
            feed_all(SSEDecoder(max_event_bytes=100), chunks)


def test_many_lines_of_one_event_count_together_and_the_error_stays() -> None:
    decoder = SSEDecoder(max_event_bytes=100)
    with pytest.raises(ParseError):
        feed_all(decoder, [b"data: x\n"] * 20)
    with pytest.raises(ParseError):
        decoder.feed_data(b"\n\ndata: y\n\n")


def test_two_megabytes_byte_by_byte_are_one_event() -> None:
    decoder = SSEDecoder()
    for byte in [b"data: ", *[b"x"] * 2_000_000]:
        assert not decoder.feed_data(byte)
    assert decoder.feed_data(b"\n\n") == [b"x" * 2_000_000]


@pytest.mark.proof("S2")
def test_a_million_tiny_lines_are_one_event() -> None:
    decoder = SSEDecoder()
    for chunk in [b"data\n" * 1000] * 1000:
        assert not decoder.feed_data(chunk)
    assert decoder.feed_data(b"\n") == [b"\n" * 999_999]


@pytest.mark.proof("S2")
@pytest.mark.parametrize(
    "line", [b"event: " * 300_000, b"data: " * 300_000, b"event: x\n" * 200_000, b": c\n" * 500_000]
)
def test_megabytes_that_almost_look_plain_are_read_without_backtracking(line: bytes) -> None:
    stream = line + b"\ndata: end\n\n"
    assert read(stream) == by_the_letter(stream)
