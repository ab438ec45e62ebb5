"""The prompt that is shown while a chat is loaded: what it draws, keeps and restores on a pseudo-terminal."""

from __future__ import annotations

import os
import select
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.terminal_screen import screen_html

from makai.cli.early_prompt import EarlyPrompt, typed_text, visible

DEADLINE_S = 20.0


class PseudoTerminal:
    """The side of the person at a terminal."""

    def __init__(self) -> None:
        self._master, self.descriptor = os.openpty()
        termios.tcsetwinsize(self.descriptor, (24, 20))
        self.output = ""

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self.descriptor)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def shows(self, line: str) -> None:
        """Wait until this line is on the screen, and nothing else."""
        ends_at = time.monotonic() + DEADLINE_S
        while screen_html(self.output) != line:
            left = max(0.0, ends_at - time.monotonic())
            assert select.select([self._master], [], [], left)[0], f"{self.output!r} does not show {line!r}"
            self.output += os.read(self._master, 4096).decode()

    def typed_line(self) -> bytes | None:
        """What a program that asks a question would read now."""
        return os.read(self.descriptor, 4096) if select.select([self.descriptor], [], [], 0)[0] else None

    def close(self) -> None:
        os.close(self._master)
        os.close(self.descriptor)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[PseudoTerminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    opened = PseudoTerminal()
    yield opened
    opened.close()


@pytest.fixture
def prompt(terminal: PseudoTerminal) -> Iterator[EarlyPrompt]:
    with EarlyPrompt(terminal.descriptor, terminal.descriptor) as made:
        yield made


def test_what_is_typed_appears_behind_the_prompt_and_is_taken_once(
    terminal: PseudoTerminal, prompt: EarlyPrompt
) -> None:
    prompt.show()
    terminal.shows("&gt;")
    terminal.press("helo")
    terminal.shows("&gt; helo")
    terminal.press("\x7flo\r")
    terminal.shows("&gt; hello")

    assert (prompt.taken(), prompt.taken()) == (b"helo\x7flo\r", b"")
    terminal.shows("")


def test_keys_of_before_the_prompt_come_first_and_enter_stays_enter(
    terminal: PseudoTerminal, prompt: EarlyPrompt
) -> None:
    terminal.press("one\rtw")
    terminal.shows("one\ntw")  # the terminal itself still echoes
    prompt.show()
    terminal.shows("one\n&gt; one")
    terminal.press("o")
    with prompt.set_aside():  # everything was read
        pass

    assert prompt.taken() == b"one\rtwo"


def test_the_terminal_is_as_before_when_the_prompt_ends_also_by_ctrl_c(terminal: PseudoTerminal) -> None:
    before, meanwhile = terminal.settings, []

    def interrupted() -> None:
        with EarlyPrompt(terminal.descriptor, terminal.descriptor) as prompt:
            prompt.show()
            meanwhile.append(terminal.settings[3] & (termios.ECHO | termios.ICANON | termios.ISIG))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert (meanwhile, terminal.settings) == ([termios.ISIG], before)
    terminal.shows("")


def test_a_question_gets_the_terminal_and_what_was_typed_before_does_not_answer_it(
    terminal: PseudoTerminal, prompt: EarlyPrompt
) -> None:
    before = terminal.settings
    prompt.show()
    terminal.press("y\r")
    terminal.shows("&gt; y")
    with prompt.set_aside():
        assert (terminal.settings, terminal.typed_line()) == (before, None)
        terminal.press("no\r")
        assert terminal.typed_line() == b"no\n"

    assert not terminal.settings[3] & termios.ECHO
    assert prompt.taken() == b"y\r"


def test_a_pasted_text_stays_whole_and_a_lone_escape_is_left_out(terminal: PseudoTerminal, prompt: EarlyPrompt) -> None:
    pasted = "\x1b[200~one\rtwo\x1b[201~"
    prompt.show()
    terminal.press(f"a{pasted}\x1b")
    terminal.shows("&gt; a")
    with prompt.set_aside():  # everything was read
        pass

    assert "\x1b[?2004h" in terminal.output
    assert prompt.taken() == f"a{pasted}".encode()


def test_without_a_terminal_that_can_be_redrawn_nothing_happens(
    terminal: PseudoTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = terminal.settings
    source, target = os.pipe()
    try:
        for prompt in (EarlyPrompt(terminal.descriptor, target), EarlyPrompt(source, terminal.descriptor)):
            prompt.show()
        monkeypatch.setenv("TERM", "dumb")
        dumb = EarlyPrompt(terminal.descriptor, terminal.descriptor)
        dumb.show()
        with dumb.set_aside():
            dumb.hide()
        dumb.close()
    finally:
        os.close(source)
        os.close(target)

    assert (terminal.settings, dumb.taken()) == (before, b"")
    terminal.shows("")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (b"abc\x7f\bd", "ad"),
        (b"one\rtwo", "one"),
        (b"a\x1b[Db", "a"),
        ("käse".encode(), "käse"),
        ("käse".encode()[:2], "k"),
        ("\u202eab".encode(), ""),
        (b"0123456789abc", "3456789abc"),
        ("漢字漢字漢字".encode(), "字漢字漢字"),
    ],
)
def test_the_end_of_what_is_typed_is_shown_up_to_the_first_other_key(typed: bytes, shown: str) -> None:
    assert visible(typed, 10) == shown


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (b"", ""),
        (b"abc\x7f\bd", "ad"),
        (b"one\rtwo\r", "one\ntwo"),
        (b"\x1b[200~def f():\r\treturn 1\x1b[201~\x1b[D\x1bOA\x01 end", "def f():\n\treturn 1 end"),
        ("\u202e漢字 👨\u200d👩 می\u200cخواهم".encode(), "漢字 👨\u200d👩 می\u200cخواهم"),
        (b"\x1b[A\r \x04", ""),
    ],
)
def test_the_text_of_keys_has_every_line_and_no_other_key(typed: bytes, text: str) -> None:
    assert typed_text(typed) == text
