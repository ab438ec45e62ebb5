"""Exit codes, hints and text that reaches a terminal."""

from __future__ import annotations

import io
import typing

import pytest

from makai.cli.console import exit_code, harmless, has_colour, hint_of
from makai.cli.run import EFFORTS
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


def test_the_efforts_of_the_command_line_are_those_of_the_vocabulary() -> None:
    assert typing.get_args(ReasoningEffort) == EFFORTS
