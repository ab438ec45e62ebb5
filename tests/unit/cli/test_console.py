"""Exit codes, hints and text that reaches a terminal."""

from __future__ import annotations

import io
import os
import termios
import typing
from collections.abc import Callable, Iterator

import pytest

from makai.cli.console import at_words, exit_code, harmless, has_colour, hint_of, note, tell
from makai.cli.session_options import EFFORTS
from makai.core import errors
from makai.core.model import ReasoningEffort


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.MakaiError("x"), 1),
        (errors.ProviderError("x"), 1),
        (errors.RateLimited("x"), 1),
        (errors.InvalidRequest("x"), 2),
        (errors.ModelNotFound("model not found"), 2),
        (errors.ModelRetired("x"), 2),
        (errors.AuthRequired("x", provider_id="p"), 3),
    ],
)
def test_each_error_has_its_exit_code(error: errors.MakaiError, code: int) -> None:
    assert exit_code(error) == code


def test_a_providers_failure_always_says_what_to_do() -> None:
    assert hint_of(errors.ProviderError("x", hint=" Wait. ")) == "Wait."
    assert hint_of(errors.ProviderError("x")) == "Try again, or use another model (`makai models list`)."
    assert hint_of(errors.MakaiError("x")) == ""


def test_control_characters_are_harmless_on_a_terminal_and_untouched_in_a_pipe() -> None:
    text = "a\tb\r\n\x1b]52;c;eA==\x07\x9b31m\x7fz"

    assert harmless(text, Tty()) == "a    b\n\\x1b]52;c;eA==\\x07\\x9b31m\\x7fz"
    assert harmless(text, io.StringIO()) == text


def test_colour_needs_a_terminal_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert (has_colour(Tty()), has_colour(io.StringIO())) == (True, False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert has_colour(Tty()) is False
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert has_colour(Tty()) is False


@pytest.mark.parametrize(("value", "colour"), [("1", True), ("3", True), ("0", False), ("", False)])
def test_colour_can_be_forced_where_no_color_does_not_forbid_it(
    monkeypatch: pytest.MonkeyPatch, value: str, colour: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", value)
    assert has_colour(io.StringIO()) is colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert has_colour(io.StringIO()) is False


def test_the_efforts_of_the_command_line_are_those_of_the_vocabulary() -> None:
    assert typing.get_args(ReasoningEffort) == EFFORTS


@pytest.fixture
def narrow() -> Iterator[typing.TextIO]:
    """A terminal of 40 columns."""
    master, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 40))
    with open(terminal, "w") as stream:
        yield stream
    os.close(master)


def test_a_styled_text_is_measured_without_its_styles_and_keeps_them(narrow: typing.TextIO) -> None:
    fits = f"\x1b[1m{'x' * 40}\x1b[0m"

    assert at_words(fits, narrow) == fits
    assert at_words("\x1b[1mmakai\x1b[0m: the answer comes from \x1b[2manother process\x1b[0m", narrow) == (
        "\x1b[1mmakai\x1b[0m: the answer comes from \x1b[2manother \x1b[0m\n\x1b[2mprocess\x1b[0m"
    )


def test_an_address_that_is_wider_than_the_terminal_can_be_copied_whole(narrow: typing.TextIO) -> None:
    address = f"https://example.com/{'x' * 40}"

    assert at_words(f"Open {address} in a browser", narrow) == f"Open \n{address}\nin a browser"


@pytest.mark.parametrize(("write", "end"), [(note, "\n"), (note, ""), (tell, "\n"), (tell, "")])
def test_every_notice_and_question_is_broken_at_words(
    narrow: typing.TextIO, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None], end: str
) -> None:
    written: list[str] = []
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(narrow, "write", written.append)
    monkeypatch.setattr("sys.stdout", narrow)
    monkeypatch.setattr("sys.stderr", narrow)

    write("It continues when you or another client opens the session. ", end=end)

    assert written == [f"It continues when you or another client \nopens the session. {end}"]


def test_a_long_message_is_broken_at_words_on_a_terminal_only() -> None:
    text = "makai: the model has no key\n       " + "set one of its variables " * 6
    master, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 40))
    with open(terminal, "w") as stream:
        assert at_words("short", stream) == "short"
        lines = at_words(text, stream).split("\n")
    os.close(master)

    assert max(map(len, lines)) <= 40
    assert [each.rstrip() for each in lines[:2]] == [
        "makai: the model has no key",
        "       set one of its variables set one",
    ]
    assert lines[2].startswith("       of its variables")
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert at_words(text, io.StringIO()) == text
