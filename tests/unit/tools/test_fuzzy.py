"""What is found by a few letters, and in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from makai.tools.fuzzy import best_matches, letters_in_order

NAMES = st.text(st.sampled_from("abcAB/._- ß\n*[]^\\İ"), max_size=12)


def has_letters(query: str, text: str) -> bool:
    """The definition, letter by letter."""
    rest = iter(text.casefold())
    return all(letter in rest for letter in "".join(query.casefold().split()))


@given(NAMES, st.lists(NAMES, max_size=8), st.integers(0, 8))
def test_exactly_the_texts_with_these_letters_in_this_order_are_found(query: str, texts: list[str], limit: int) -> None:
    wanted = sorted(text for text in texts if has_letters(query, text))

    assert sorted(best_matches(query, texts, len(texts))) == wanted
    assert best_matches(query, texts, limit) == best_matches(query, texts, len(texts))[:limit]


@given(NAMES, st.lists(NAMES, max_size=8))
def test_the_order_depends_on_the_texts_alone(query: str, texts: list[str]) -> None:
    assert best_matches(query, texts, 8) == best_matches(query, texts[::-1], 8)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_letters_make_a_pattern(query: str, text: str) -> None:
    letters = "".join(query.casefold().split())
    assert bool(letters_in_order(letters).match(text.casefold())) == has_letters(query, text)


def test_a_name_is_above_a_path_and_both_are_above_scattered_letters() -> None:
    texts = ["src/chat/user.py", "src/c_h_a_t.py", "src/my_chat.py", "docs/chat", "src/chat_ui.py", "cache/hat.txt"]

    assert best_matches("chat", texts, 10) == [
        "docs/chat", "src/chat_ui.py", "src/my_chat.py", "src/chat/user.py", "src/c_h_a_t.py", "cache/hat.txt",
    ]  # fmt: skip


def test_without_letters_what_lies_highest_is_first() -> None:
    assert best_matches(" ", ["a/b/c", "z", "a/b/", "b/"], 3) == ["b/", "z", "a/b/"]


def test_a_hostile_query_takes_no_time() -> None:
    assert best_matches("a" * 5_000 + "b", ["a" * 5_000] * 20, 3) == ["a" * 5_000] * 3
