"""What the model of this benchmark does for every client: it thinks aloud, calls a tool, ten times; then it answers.

In: how many results it has seen. Out: its words and the pieces of its call. Pure: the HTTP upstream and the models in
process say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stream.traffic import words

CALLS: Final = 10
TURNS: Final = CALLS + 1
WORDS: Final = words()[:20]
PROMPT: Final = "Square the numbers from 1 to 10, one by one."
TOOL: Final = "square"
DESCRIPTION: Final = "Square a number."
LAST_WORD: Final = " done."
SCHEMA: Final = (
    '{"type":"object","properties":{"number":{"type":"integer"}},"required":["number"],"additionalProperties":false}'
)


@dataclass(frozen=True)
class Turn:
    """One answer of the model. The arguments come in pieces; without them it is the last one."""

    words: tuple[str, ...]
    call_id: str = ""
    arguments: tuple[str, ...] = ()


def turn_after(results: int) -> Turn:
    """The answer to a conversation with so many results of the tool."""
    if results >= CALLS:
        return Turn((*WORDS, LAST_WORD))
    number = results + 1
    return Turn(WORDS, f"call_{number}", ('{"num', 'ber"', ": ", str(number), "}"))


def squared(number: int) -> str:
    """The tool."""
    return f"{number} times {number} is {number * number}."


CHARACTERS: Final = sum(len(word) for results in range(TURNS) for word in turn_after(results).words)
"""What a run says in all."""
