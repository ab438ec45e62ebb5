"""Tokens and money. One meaning everywhere: `input` excludes cached tokens, `output` includes reasoning tokens."""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_COUNT: Final = 2**53
"""The largest whole number that every reader of JSON takes exactly."""


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """US dollars per million tokens. A missing cache price means cache tokens cost what input costs."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one model answer, or a sum of them, consumed."""

    # A factory, because a plain default of 0 would be left out on the wire, which always carries both counts.
    input: int = msgspec.field(default_factory=int)
    """Prompt tokens that were neither read from nor written to a cache."""
    output: int = msgspec.field(default_factory=int)
    """Generated tokens, reasoning included."""
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """How many of `output` were reasoning, where the vendor tells."""
    cost_usd: float | None = None
    """None where the price is unknown; a free model costs 0.0."""

    def __add__(self, other: Usage) -> Usage:
        known = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost_usd=sum(known) if known else None,
        )

    def priced(self, price: Price | None) -> Usage:
        """The same counts with their cost, when the price is known."""
        if price is None:
            return self
        cache_read = price.input if price.cache_read is None else price.cache_read
        cache_write = price.input if price.cache_write is None else price.cache_write
        micro_dollars = (
            self.input * price.input
            + self.output * price.output
            + self.cache_read * cache_read
            + self.cache_write * cache_write
        )
        return msgspec.structs.replace(self, cost_usd=micro_dollars / 1_000_000)


def token_count(usage: Any, *names: str) -> int:
    """The count under these names of a decoded `usage`. 0 where the vendor gives none, or what is no count: an answer
    that is complete must not fail for its bill, and a negative count would pay a budget back."""
    for name in names:
        usage = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(usage, str) and usage.isdecimal() and len(usage) < 20:
        usage = int(usage)
    if isinstance(usage, bool) or not isinstance(usage, int | float) or not 0 <= usage < MAX_COUNT:
        return 0
    return int(usage)
