"""ndjson: lines are the same however the stream is cut, and an oversized line costs only itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples

from makai.core.errors import ParseError
from makai.wire.ndjson import NDJSONDecoder


def lines_of(chunks: list[bytes], *, max_line_bytes: int = 1000) -> list[bytes | str]:
    """Every line that the chunks give, errors by their text, with the unterminated last line."""
    decoder = NDJSONDecoder(max_line_bytes)
    found = [line for chunk in chunks for line in decoder.feed(chunk)]
    return [str(line) if isinstance(line, ParseError) else line for line in [*found, *decoder.close()]]


def test_lines_end_at_lf_only_and_are_trimmed_and_blank_ones_skipped() -> None:
    stream = b'{"a":1}\r\n\n \t\r\n  {"b":"x\xe2\x80\xa8\x0b\x0c\x1cy"}\t\n1\r2\n'
    assert lines_of([stream]) == [b'{"a":1}', b'{"b":"x\xe2\x80\xa8\x0b\x0c\x1cy"}', b"1\r2"]


def test_an_unterminated_last_line_comes_only_from_close_and_only_once() -> None:
    decoder = NDJSONDecoder()
    assert decoder.feed(b"1\n2 ") == [b"1"]
    assert decoder.close() == [b"2"]
    assert decoder.close() == []


def test_an_oversized_line_is_reported_once_between_the_good_ones() -> None:
    limit = "line exceeds the limit of 4 bytes"
    assert lines_of([b"1\n12345678\n2\n"], max_line_bytes=4) == [b"1", limit, b"2"]
    assert lines_of([b"1\n123", b"45", b"678", b"9\n2\n"], max_line_bytes=4) == [b"1", limit, b"2"]


def test_a_line_of_exactly_the_limit_passes() -> None:
    assert lines_of([b"1234\n", b"12", b"34\n"], max_line_bytes=4) == [b"1234", b"1234"]


def test_an_oversized_line_is_reported_before_its_end_and_not_kept() -> None:
    decoder = NDJSONDecoder(4)
    assert [type(line) for line in decoder.feed(b"12345")] == [ParseError]
    assert decoder.feed(b"6" * 1_000_000) == []
    assert decoder.close() == []
    assert decoder.feed(b"1\n") == [b"1"]


def test_two_megabytes_byte_by_byte_are_one_line() -> None:
    decoder = NDJSONDecoder()
    for _ in range(2_000_000):
        decoder.feed(b"x")
    assert decoder.feed(b"\n") == [b"x" * 2_000_000]


@examples(500)
@given(
    st.lists(st.sampled_from([b"{}", b"\n", b"\r", b" ", b"12345678", b"[1]", b"\xff"]), max_size=20).map(b"".join),
    st.integers(0, 100),
)
def test_lines_do_not_depend_on_where_the_stream_is_cut(stream: bytes, cut: int) -> None:
    whole = lines_of([stream], max_line_bytes=6)
    assert lines_of([stream[:cut], stream[cut:]], max_line_bytes=6) == whole
    assert lines_of([stream[i : i + 1] for i in range(len(stream))], max_line_bytes=6) == whole
