"""A growing markdown text is cut only where no later word can change what was cut off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.cli.terminal.markdown_blocks import finished_length, newest_lines, top_level_blocks

DOCUMENT = """\
# A heading
A paragraph
of two lines.

- a list

  with a loose item
- and another

```python
def f():

    return "# no heading"
```
| a | b |
|---|---|
| 1 | 2 |

The end."""


def blocks_of(text: str) -> list[str]:
    return [source for source, _ in top_level_blocks(text)]


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("", ""), ("words", ""), ("words\n\n", ""), ("words\n\nmore", "words\n\n"), ("# Head\nwords", "# Head\n"),
        ("1. one\n\n2. two", ""), ("1. one\n\ntext", "1. one\n\n"), ("```\na\n\nb", ""),
        ("```\na\n```\nb", "```\na\n```\n"), ("a\r\rb\n\nc", "a\r\rb\n\n"), ("[a]: x\n\nb", "[a]: x\n\n"),
        ("> - <!-- a\n>", ""),
    ],
)  # fmt: skip
def test_only_the_last_block_is_open(text: str, finished: str) -> None:
    assert text[: finished_length(text)] == finished


def test_a_text_falls_into_its_blocks() -> None:
    beginnings = [block.split("\n")[0] for block in blocks_of(DOCUMENT)]
    assert beginnings == ["# A heading", "A paragraph", "- a list", "```python", "| a | b |", "The end."]


@given(st.lists(st.integers(min_value=0, max_value=len(DOCUMENT)), max_size=30))
def test_what_was_cut_off_stays_as_it_was_however_the_text_arrives(places: list[int]) -> None:
    printed, rest, read = "", "", 0
    for place in sorted(places):
        rest += DOCUMENT[read:place]
        read = place
        length = finished_length(rest)
        printed, rest = printed + rest[:length], rest[length:]

    assert blocks_of(printed) == blocks_of(DOCUMENT)[: len(blocks_of(printed))]


def test_the_end_of_long_code_keeps_its_language() -> None:
    code = "```python\n" + "\n".join(f"line {number}" for number in range(100))

    assert newest_lines(code, 2) == "```python\nline 98\nline 99"
    assert newest_lines("a\nb\nc", 2) == "b\nc"
    assert newest_lines("a\nb", 2) == "a\nb"
