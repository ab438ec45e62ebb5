"""Finds the harness of a session by its id, also when this version has none of that id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.harness.base import Harness, RunPort, RunStart


class HarnessRegistry:
    """The harnesses of a process. Ids are unique."""

    def __init__(self, harnesses: Sequence[Harness]) -> None:
        self._harnesses = {harness.id: harness for harness in harnesses}

    def get(self, harness_id: str) -> Harness:
        """The harness of that id. An unknown one reads and closes its sessions, but neither creates nor runs any."""
        known = self._harnesses.get(harness_id)
        return UnknownHarness(harness_id, sorted(self._harnesses)) if known is None else known


class UnknownHarness:
    """Stands for a harness of another version of makai, or one that is not installed."""

    capabilities = ev.HarnessCapabilities(resume=False, steer=False, compact=False)

    def __init__(self, harness_id: str, known: Sequence[str]) -> None:
        self.id = harness_id
        self._known = ", ".join(known)

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> NoReturn:
        raise InvalidRequest(f"There is no harness {self.id!r}.", hint=f"Use one of: {self._known}.")

    async def run(self, port: RunPort, start: RunStart) -> NoReturn:
        self.check(None, (), ev.SessionTerms())

    async def forget(self, session_id: str) -> None:
        pass
