"""Ctrl-C and Ctrl-D at the prompt of a chat."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import pytest

from makai.cli.conversation import converse


def typing(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    """Somebody who types these lines; an exception stands for the key that raises it."""
    coming: Iterator[str | type[BaseException]] = iter(lines)

    def read(_prompt: str) -> str:
        line = next(coming)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(builtins, "input", read)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("Hi", EOFError), 0),
        (("/exit",), 0),
        ((KeyboardInterrupt, "Hi", KeyboardInterrupt, EOFError), 0),
        ((KeyboardInterrupt, KeyboardInterrupt), 130),
    ],
)
def test_ctrl_d_leaves_and_so_does_ctrl_c_twice_in_a_row(
    monkeypatch: pytest.MonkeyPatch, lines: tuple[str | type[BaseException], ...], code: int
) -> None:
    typing(monkeypatch, *lines)

    assert converse("scripted/echo", None) == code


def test_an_answer_is_followed_by_what_it_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typing(monkeypatch, "Hello", EOFError)
    converse("scripted/echo", None)

    said = capsys.readouterr().out
    assert "talking to Echo (scripted: says what you say), scripted/echo" in said
    assert "\nHello\n[" in said
