"""Lines typed or piped in, while the event loop goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
from collections.abc import Iterator

import pytest

from makai.cli.line_reader import MAX_LINE, LineReader
from makai.core.errors import InvalidRequest


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ours, theirs = os.pipe()
    yield ours, theirs
    for descriptor in (ours, theirs):
        with contextlib.suppress(OSError):  # the test has closed it
            os.close(descriptor)


async def test_lines_come_one_by_one_and_then_the_end(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], "one\r\n\ntwo \u00e9\nthree".encode())
    os.close(pipe[1])
    lines = LineReader(pipe[0])

    assert [await lines.next() for _ in range(5)] == ["one", "", "two \u00e9", "three", None]
    assert await lines.next() is None


async def test_a_wait_that_was_given_up_loses_nothing(pipe: tuple[int, int]) -> None:
    lines = LineReader(pipe[0])
    waiting = asyncio.ensure_future(lines.next())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    os.write(pipe[1], b"late\nlater\n")
    assert [await lines.next(), await lines.next()] == ["late", "later"]


async def test_what_is_typed_after_a_wait_was_given_up_is_left_to_the_next_reader_of_the_terminal(
    pipe: tuple[int, int],
) -> None:
    for _ in range(50):
        waiting = asyncio.ensure_future(LineReader(pipe[0]).next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

        os.write(pipe[1], b"for the chat\n")
        assert await LineReader(pipe[0]).next() == "for the chat"


async def test_a_line_without_end_is_refused(pipe: tuple[int, int]) -> None:
    lines = LineReader(pipe[0])
    os.set_blocking(pipe[1], False)

    async def pour() -> None:
        while True:
            try:
                os.write(pipe[1], b"x" * 4096)
            except BlockingIOError:
                await asyncio.sleep(0.001)

    pouring = asyncio.create_task(pour())
    with pytest.raises(InvalidRequest, match=f"longer than {MAX_LINE} bytes"):
        await lines.next()
    pouring.cancel()


async def test_what_is_hidden_is_not_echoed_and_the_terminal_is_as_before() -> None:
    master, terminal = os.openpty()
    lines = LineReader(terminal)
    before = termios.tcgetattr(terminal)
    try:
        typing = asyncio.ensure_future(lines.next(hidden=True))
        await asyncio.sleep(0)
        assert not termios.tcgetattr(terminal)[3] & termios.ECHO
        os.write(master, b"sk-secret\n")
        assert await typing == "sk-secret"
        assert termios.tcgetattr(terminal) == before

        given_up = asyncio.ensure_future(lines.next(hidden=True))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert termios.tcgetattr(terminal) == before
        os.write(master, b"seen\n")
        assert await lines.next() == "seen"
        os.set_blocking(master, False)
        assert b"sk-secret" not in os.read(master, 1000)
    finally:
        os.close(master)
        os.close(terminal)
