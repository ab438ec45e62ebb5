"""What is said about content in words."""

from __future__ import annotations

import pytest

from makai.core.content import Image, Resource, ResourceLink, SessionPart, Text, title_words

FILE = Resource(uri="file:///project/src/app.py", text="import os\n" * 100)
LINK = ResourceLink(uri="file:///project/b.py", name="b.py")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Fix it", "Fix it"),
        ((FILE, Text(text="Explain this")), "Explain this"),
        ((Text(text="Explain this"), FILE), "Explain this"),
        ((Text(text="Compare"), LINK, Text(text="with"), FILE, Text(text="please")), "Compare b.py with app.py please"),
        ((Text(text=" "), FILE, LINK), "  app.py b.py"),
        ((ResourceLink(uri="file:///project/docs/"),), "docs"),
        ((Image(data="AAAA", mime_type="image/png"),), "[image]"),
    ],
)
def test_a_title_has_the_words_of_a_person_and_only_the_names_of_what_is_attached(
    content: str | tuple[SessionPart, ...], words: str
) -> None:
    assert title_words(content) == words
