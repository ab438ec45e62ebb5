"""Lines of a server's output, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from makai.tools.mcp.child import LineSplitter, TooLong


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").strip(b"\r"))), st.data())
def test_lines_come_out_as_they_went_in_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"unfinished"
    splitter = LineSplitter(100)
    seen: list[bytes | TooLong] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += splitter.feed(stream[:size])
        stream = stream[size:]

    assert seen == [line for line in lines if line]


@given(st.binary(min_size=1500, max_size=4000).map(lambda line: line.replace(b"\n", b".")), st.integers(1, 999))
def test_of_a_line_that_is_too_long_its_ends_are_kept(line: bytes, step: int) -> None:
    splitter = LineSplitter(1000)
    stream = line + b"\nnext\n"
    seen = [one for start in range(0, len(stream), step) for one in splitter.feed(stream[start : start + step])]

    assert seen == [TooLong(len(line), line[:512], line[-512:]), b"next"]


def test_empty_lines_and_carriage_returns_mean_nothing() -> None:
    assert LineSplitter(100).feed(b"\n\r\na\r\n\n") == [b"a"]
