"""A terminal that became narrower: how many rows it has made of those of the status area."""

from __future__ import annotations

import pytest

from makai.cli.terminal.screen import added_rows, breaks_rows


@pytest.mark.parametrize(
    ("widths", "cursor", "columns", "added"),
    [
        ([0, 60, 20], 20, 60, 0),
        ([0, 60, 20], 20, 59, 1),
        ([0, 60, 20], 20, 30, 1),
        ([0, 61, 20], 20, 30, 2),
        ([60], 45, 30, 1),
        ([60], 20, 30, 0),
        ([30], 30, 30, 0),
        ([0], 5, 3, 0),
    ],
)
def test_rows_above_the_cursor_count_as_often_as_they_are_broken(
    widths: list[int], cursor: int, columns: int, added: int
) -> None:
    assert added_rows(widths, cursor, columns) == added


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "screen", "STY": "1.pts-0"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "screen", "XTERM_VERSION": "XTerm(390)", "TMUX": "/tmp/tmux"}, True),
    ],
)
def test_terminals_that_cut_rows_off_are_known(environ: dict[str, str], expected: bool) -> None:
    assert breaks_rows(environ) is expected
