"""How files are named in a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.visible_text import shown
from makai.tools.file_mentions import Mention, mention, mentions, path_being_typed

PATHS = st.text(
    st.one_of(st.sampled_from('ab /."\\\n\r\t\x1b\u202e@()'), st.characters(), st.sampled_from("\udc80\udcff")),
    min_size=1,
    max_size=12,
).filter(lambda path: "\0" not in path)


@given(PATHS, st.sampled_from(["", "look at ", "(", "first line\n"]), st.sampled_from(["", " and more", "\nthen"]))
def test_every_path_is_read_as_it_was_written(path: str, before: str, after: str) -> None:
    [found] = mentions(before + mention(path) + after)

    assert found.path == path


@given(PATHS)
def test_a_mention_is_one_line_without_anything_that_a_terminal_would_obey(path: str) -> None:
    written = mention(path)

    assert shown(written) == written
    assert "\n" not in written


@given(PATHS)
def test_what_is_being_typed_is_known_at_every_length(path: str) -> None:
    written = mention(path)
    if not written.startswith('@"'):
        for end in range(1, len(written) + 1):
            assert path_being_typed(f"see {written[:end]}") == (path[: end - 1], end)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see @src/a.py, please", [Mention("src/a.py,", "src/a.py")]),
        ("mail me@example.org", []),
        ("(@a.py) and @a.py", [Mention("a.py)", "a.py"), Mention("a.py")]),
        ('@"two words" @"x\\ny"', [Mention("two words"), Mention("x\ny")]),
        ('@ and @"" and @"open', []),
    ],
)
def test_a_mention_begins_a_word(text: str, found: list[Mention]) -> None:
    assert mentions(text) == found


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("@", ("", 1)), ("a @sr", ("sr", 3)), ('@"my d', ("my d", 6)), ("a@b", None), ("@a b", None),
        ('@"done"', None), ("one\n@t", ("t", 2)),
    ],
)  # fmt: skip
def test_only_the_word_before_the_cursor_is_completed(text: str, typed: tuple[str, int] | None) -> None:
    assert path_being_typed(text) == typed
