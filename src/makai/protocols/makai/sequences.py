"""Sequence numbers per connection and scope: from 1, without gaps, until the terminal of the scope."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from makai.protocols.makai.envelope import Scope

SequenceFault = Literal["invalid_sequence", "duplicate_sequence", "sequence_gap"]

MAX_IDLE_SCOPES = 1024
"""How many scopes are remembered that hold nothing but a few pongs or nacks."""


class Inbound:
    """What number each scope must send next. Only scopes with something going on are remembered."""

    def __init__(self) -> None:
        self._expected: dict[Scope, int] = {}

    def check(self, scope: Scope, sequence: int) -> SequenceFault | None:
        """What is wrong with this number, without taking it."""
        expected = self._expected.get(scope, 1)
        if sequence == expected:
            return None
        if sequence == 0:
            return "invalid_sequence"
        return "duplicate_sequence" if sequence < expected else "sequence_gap"

    def take(self, scope: Scope, count: int = 1) -> None:
        """Count accepted envelopes (a fragmented message uses as many numbers as it has fragments)."""
        self._expected[scope] = self._expected.get(scope, 1) + count

    def forget(self, scope: Scope) -> None:
        """The scope has ended; its id may be used again."""
        self._expected.pop(scope, None)


class Outbound:
    """The number each scope sends next. Idle scopes are forgotten, the longest idle first."""

    def __init__(self) -> None:
        self._live: dict[Scope, int] = {}
        self._idle: OrderedDict[Scope, int] = OrderedDict()

    def begin(self, scope: Scope) -> None:
        """The scope is live: its counter is kept until `forget` or `rest`."""
        if scope not in self._live:
            self._live[scope] = self._idle.pop(scope, 0)

    def rest(self, scope: Scope) -> None:
        """The scope is idle and may continue where it was; it is remembered like other idle ones."""
        self._idle[scope] = self._live.pop(scope, 0)

    def next(self, scope: Scope) -> int:
        """The number for the next envelope of this scope."""
        live = self._live
        last = live.get(scope)
        if last is not None:
            live[scope] = last + 1
            return last + 1
        number = self._idle.pop(scope, 0) + 1
        self._idle[scope] = number
        if len(self._idle) > MAX_IDLE_SCOPES:
            self._idle.popitem(last=False)
        return number

    def forget(self, scope: Scope) -> None:
        """The scope has ended; its id starts at 1 again."""
        self._live.pop(scope, None)
        self._idle.pop(scope, None)
