"""What a turn costs while it runs, estimated from the usage of its messages and list prices.

The program says the exact cost only at the end of a turn, which may be long; a budget has to be kept before that. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from makai.catalog.models import ModelRow, builtin
from makai.core.usage import Usage, token_count

RowOf: TypeAlias = Callable[[str], ModelRow | None]
_PREFIX: Final = re.compile(r"^(?:[a-z-]+\.)?anthropic[./]")
_SUFFIX: Final = re.compile(r"(?:[-@]\d{8})?(?:-v\d+(?::\d+)?)?(?:\[\w+\])?$")


@lru_cache(maxsize=64)
def anthropic_row(model: str) -> ModelRow | None:
    """The catalog's row of a model by the name that the API gives it: dated, with a variant in brackets, or as Bedrock
    and Vertex name it."""
    bare = _PREFIX.sub("", model)
    names = {bare, _SUFFIX.sub("", bare)}
    rows = (row for row in builtin().models if row.provider == "anthropic")
    return next((row for row in rows if names & {row.id, *row.also}), None)


class RunningCost:
    """The messages of one turn, those of sub-agents included."""

    def __init__(self, row_of: RowOf) -> None:
        self._row_of = row_of
        self._messages: dict[str, tuple[str, Usage]] = {}
        self.context_window = 0
        """Of the model that answered last, where it is known."""
        self.unpriced = ""
        """A model that answered and whose price is not known: `usd` does not tell what the turn costs."""

    def clear(self) -> None:
        self._messages.clear()
        self.unpriced = ""

    def note(self, message_id: str, model: str, usage: Any) -> None:
        """What is known of a message now; later counts replace earlier ones where they are higher."""
        if not message_id or not isinstance(usage, dict):
            return
        known_model, known = self._messages.get(message_id, ("", Usage()))
        now = Usage(
            input=max(known.input, token_count(usage, "input_tokens")),
            output=max(known.output, token_count(usage, "output_tokens")),
            cache_read=max(known.cache_read, token_count(usage, "cache_read_input_tokens")),
            cache_write=max(known.cache_write, token_count(usage, "cache_creation_input_tokens")),
        )
        model = model or known_model
        self._messages[message_id] = (model, now)
        if (row := self._row_of(model)) is not None:
            self.context_window = row.context_window or 0
        if (row is None or row.price is None) and now != Usage():
            self.unpriced = model

    @property
    def usd(self) -> float:
        """So far, as far as prices are known."""
        priced = ((self._row_of(model), usage) for model, usage in self._messages.values())
        return sum(usage.priced(row.price).cost_usd or 0.0 for row, usage in priced if row is not None)
