"""A list to choose from in the terminal, with the arrow keys or by number."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Final, Literal, TypeAlias

from makai.cli.console import clip, note, styled

Left: TypeAlias = Literal["left"]
"""The person chose nothing."""

_UP: Final = (b"\x1b[A", b"\x1bOA", b"k", b"\x10")
_DOWN: Final = (b"\x1b[B", b"\x1bOB", b"j", b"\x0e", b"\t")
_ENTER: Final = (b"\r", b"\n")
_LEAVE: Final = (b"\x1b", b"q", b"\x04")
_MAX_KEYS: Final = 64


class Menu:
    """Which option is marked, and what keys do. `at` is its index."""

    def __init__(self, options: Sequence[str]) -> None:
        assert options, "there is something to choose from"
        self.options = options
        self.at = 0

    def press(self, key: bytes) -> int | Left | None:
        """The index of the chosen option, "left", or None while the choice is open. An unknown key does nothing."""
        if key in _ENTER:
            return self.at
        if key in _LEAVE:
            return "left"
        if key.isdigit() and 1 <= int(key) <= len(self.options):
            self.at = int(key) - 1
            return self.at
        step = -1 if key in _UP else 1 if key in _DOWN else 0
        self.at = (self.at + step) % len(self.options)
        return None

    def lines(self, width: int) -> list[str]:
        """One for each option, at most `width` columns wide."""
        rows = []
        for number, option in enumerate(self.options):
            is_marked = number == self.at
            row = clip(f"{'>' if is_marked else ' '} {number + 1}. {option}", width)
            rows.append(styled(row, sys.stderr, bold=True) if is_marked else row)
        return rows


def keys_of(data: bytes) -> Iterator[bytes]:
    """What was read from a terminal, key by key: an arrow is three bytes."""
    at = 0
    while at < len(data):
        length = 3 if data[at : at + 2] in (b"\x1b[", b"\x1bO") else 1
        yield data[at : at + length]
        at += length


async def choose(question: str, options: Sequence[str]) -> int | None:
    """Ask on the terminal; None when the person leaves. Ctrl-C cancels as everywhere. At most nine options have a
    number to press; the others are reached with the arrow keys."""
    menu = Menu(options)
    can_move = os.environ.get("TERM", "dumb") != "dumb"
    with single_keys(0) as keys:
        note(question, bold=True)
        _draw(menu, "Arrows, Enter or a number. Esc leaves." if can_move else "Press a number. q leaves.")
        while True:
            try:
                data = await keys.get()
            except asyncio.CancelledError:
                note("")
                raise
            if not data:
                return None
            for key in keys_of(data):
                chosen = menu.press(key)
                if can_move:
                    _redraw(menu)
                if chosen is not None:
                    return None if chosen == "left" else chosen


def _draw(menu: Menu, keys: str) -> None:
    """Each option and the keys are one line, which `_redraw` relies on."""
    width = get_terminal_size().columns - 1
    lines = [*menu.lines(width), styled(clip(keys, width), sys.stderr, dim=True)]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


def _redraw(menu: Menu) -> None:
    height = len(menu.options) + 1
    rows = "".join(f"\x1b[2K{line}\n" for line in menu.lines(get_terminal_size().columns - 1))
    sys.stderr.write(f"\x1b[{height}A{rows}\x1b[1B")
    sys.stderr.flush()


@contextmanager
def single_keys(descriptor: int) -> Iterator[asyncio.Queue[bytes]]:
    """Read a terminal key by key, without echo, for the time of the block. An empty text is the end of the input."""
    import termios
    import tty

    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue(_MAX_KEYS)

    def read() -> None:
        if not keys.full():
            try:
                keys.put_nowait(os.read(descriptor, 1024))
            except OSError:
                keys.put_nowait(b"")

    before, was_blocking = termios.tcgetattr(descriptor), os.get_blocking(descriptor)
    tty.setcbreak(descriptor, termios.TCSADRAIN)  # what was typed ahead counts
    loop.add_reader(descriptor, read)
    try:
        yield keys
    finally:
        loop.remove_reader(descriptor)
        os.set_blocking(descriptor, was_blocking)  # an event loop may have changed it for all that share the terminal
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
