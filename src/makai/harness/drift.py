"""Counts what an agent says that this version of makai does not know, so that a newer agent is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_KINDS: Final = 64
MAX_KIND_LENGTH: Final = 80
OTHER_KINDS: Final = "other"


class DriftCounter:
    """Unknown messages of one agent's process, by kind. At most `MAX_KINDS` kinds are told apart."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def note(self, kind: str) -> None:
        kind = kind[:MAX_KIND_LENGTH]
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = OTHER_KINDS
        self._counts[kind] = self._counts.get(kind, 0) + 1

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts

    def summary(self) -> str:
        """Such as "system/foo (3), bar (1)"; empty when everything is known."""
        return ", ".join(f"{kind} ({number})" for kind, number in sorted(self._counts.items()))
