"""Finds the harness of a session by its id, also when this version has none of that id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.harness.base import RunPort, RunStart, SessionHarness

NATIVE: Final = "native"
EXTERNAL: Final = "acp:"
"""How the ids of agents begin that speak the Agent Client Protocol."""
DRIVERS: Final = {
    "amp": "amp",
    "antigravity": "antigravity",
    "claude": "claude-code",
    "claude-code": "claude-code",
    "codex": "codex",
    "stub": "stub",
}
"""Ids of agents with a protocol of their own, by the names that people write."""


def harness_id_of(agent: str | None) -> str:
    """The id of a harness by what a person writes: nothing or "native", the name of an agent, or `acp:COMMAND LINE`."""
    agent = (agent or NATIVE).strip()
    if agent == NATIVE or agent.startswith(EXTERNAL):
        return agent
    return DRIVERS.get(agent, EXTERNAL + agent)


class HarnessRegistry:
    """The harnesses of a process. Ids are unique."""

    def __init__(
        self, harnesses: Sequence[SessionHarness], families: Mapping[str, Callable[[str], SessionHarness]] | None = None
    ) -> None:
        """`families` make harnesses of all ids that are `NAME` or begin with `NAME:`."""
        self._harnesses = {harness.id: harness for harness in harnesses}
        self._families = families or {}

    def get(self, harness_id: str) -> SessionHarness:
        """The harness of that id. An unknown one reads and closes its sessions, but neither creates nor runs any."""
        if (known := self._harnesses.get(harness_id)) is not None:
            return known
        if (make := self._families.get(harness_id.partition(":")[0])) is not None:
            return make(harness_id)
        return UnknownHarness(harness_id, sorted({*self._harnesses, *self._families}))


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
