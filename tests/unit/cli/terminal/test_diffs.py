"""Changes as people read them."""

from __future__ import annotations

import time

from makai.cli.terminal.diffs import counts, diff_lines
from makai.cli.terminal.styled_text import Lines, Span, plain
from makai.core.session_events import FileDiff


def read(diff: FileDiff) -> str:
    return plain([Lines(lines=tuple(diff_lines(diff, "")))])


def test_a_change_shows_what_surrounds_it_and_the_numbers_of_its_lines() -> None:
    old = "".join(f"line {number}\n" for number in range(1, 31))
    new = old.replace("line 5\n", "line five\nand a half\n").replace("line 25\n", "")

    assert read(FileDiff(path="/w/notes.txt", old_text=old, new_text=new)) == (
        "/w/notes.txt  +2 -2\n"
        " 2   line 2\n 3   line 3\n 4   line 4\n"
        " 5 - line 5\n 5 + line five\n 6 + and a half\n"
        " 7   line 6\n 8   line 7\n 9   line 8\n"
        "   …\n"
        "23   line 22\n24   line 23\n25   line 24\n"
        "25 - line 25\n"
        "26   line 26\n27   line 27\n28   line 28\n"
    )


def test_a_new_file_is_all_added() -> None:
    diff = FileDiff(path="new.py", old_text=None, new_text="a\nb")

    assert read(diff) == "new file new.py  +2 -0\n1 + a\n2 + b\n"
    assert diff_lines(diff)[1] == (Span("  1 ", "dim"), Span("+ a", "added"))


def test_a_lost_last_line_break_is_told() -> None:
    assert read(FileDiff(path="f", old_text="a\n", new_text="a")) == (
        "f  +0 -0\n1   a\n(the last line loses its line break)\n"
    )


def test_what_a_file_holds_cannot_act_on_the_terminal() -> None:
    diff = FileDiff(path="a\x1b[2Jb", old_text="x\n", new_text="\x1b]0;owned\x07\u202e\r\n\tindented\n")

    assert read(diff) == ("a\\x1b[2Jb  +2 -1\n1 - x\n1 + \\x1b]0;owned\\x07\\u202e\\r\n2 +     indented\n")


def test_large_changes_are_shown_without_being_compared_line_by_line() -> None:
    old = "".join(f"{number}\n" for number in range(50_000))
    new = "".join(f"{number * 7}\n" for number in range(50_000))
    began = time.perf_counter()

    assert counts([FileDiff(path="f", old_text=old, new_text=new)]) == "+49999 -49999"
    assert time.perf_counter() - began < 5
