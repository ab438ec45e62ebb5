"""Shows text that is redrawn only with characters that have the same width on every terminal.

Terminals disagree about emoji that are made of several characters: a family is two columns wide or eight, a flag two or
four. A row that the application takes for wider or narrower than it is gets its next change in the wrong column. So the
parts of such an emoji are shown side by side, and a flag as its letters. What is sent and printed stays as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Final
from unicodedata import category

from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.formatted_text.base import OneStyleAndTextTuple
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

_UNSTEADY: Final = re.compile(
    "\ufe0f"  # asks for a coloured emoji, which is wider
    "|(?<=[\u2000-\U0010ffff])[\u200d\U0001f3fb-\U0001f3ff]"  # joins emoji, or colours skin; other scripts keep joiners
    "|[\U0001f1e6-\U0001f1ff]"  # two letters that are one flag
)
_FLAG_A: Final = 0x1F1E6
_WIDE_A: Final = 0xFF21


def steady(text: str) -> str:
    return text if text.isascii() else _UNSTEADY.sub(_instead, text)


def is_unsteady(text: str) -> bool:
    """Whether terminals disagree about its width although it is `steady`: vowel signs of Indic scripts."""
    return not text.isascii() and any(category(character) == "Mc" for character in text)


def _instead(found: re.Match[str]) -> str:
    """At most one character, so that places in the text are easily found again."""
    letter = ord(found[0]) - _FLAG_A
    return chr(_WIDE_A + letter) if 0 <= letter < 26 else ""


class SteadyWidth(Processor):
    """The same for a line that is edited."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        text = fragment_list_to_text(fragments)
        changed = {} if text.isascii() else {found.start(): _instead(found) for found in _UNSTEADY.finditer(text)}
        if not changed:
            return Transformation(fragments)
        cells: list[OneStyleAndTextTuple] = []
        places: list[int] = []
        for place, (style, character, *_) in enumerate(explode_text_fragments(fragments)):
            if shown := changed.get(place, character):
                cells.append((style, shown))
                places.append(place)
        return Transformation(
            cells,
            lambda place: bisect_left(places, place),
            lambda shown: places[shown] if shown < len(places) else len(text) + shown - len(places),
        )
