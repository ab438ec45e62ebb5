"""What the rest of makai decides for MCP servers: where and how they run, and how long anything may take.

In: nothing. Out: two Structs. It must not know servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

Wrap: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
_PASSED_ON: Final = ("PATH", "HOME", "LANG")


def unconfined(argv: Sequence[str]) -> Sequence[str]:
    """The `wrap` of full access."""
    return argv


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how servers run."""

    environ: Mapping[str, str]
    """Ours. A server sees of it what it cannot run without, and what its own entry gives it."""
    cwd: str
    """The folder of servers that name none."""
    wrap: Wrap
    """Turns a command into one that is confined, without network."""
    wrap_online: Wrap | None = None
    """The same with network, for servers whose entry asks for it; None where nobody may have it."""
    holding: Callable[[], AbstractContextManager[None]] = nullcontext
    """What must be held from before `wrap` until the server has ended."""
    spill_directory: Path
    """Where answers go that are too long for a model."""

    def confined(self, argv: Sequence[str], *, network: bool) -> Sequence[str]:
        """The command line of a server."""
        return self.wrap_online(argv) if network and self.wrap_online is not None else self.wrap(argv)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a server."""
        return {name: self.environ[name] for name in _PASSED_ON if name in self.environ} | dict(given)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long anything may take, in seconds."""

    connect_s: float = 30.0
    """From the start of a server to its first answer; a package runner may have to download it first."""
    list_s: float = 15.0
    call_s: float = 300.0
    """A call may be silent for so long; every word of progress begins it anew."""
    longest_call_s: float = 3600.0
    ready_s: float = 10.0
    """How long a call waits for a server that is just starting again."""
    first_retry_s: float = 0.5
    longest_retry_s: float = 30.0
    most_failures: int = 5
    """So many in a row, and a server is left alone until someone asks for it again."""
    steady_s: float = 60.0
    """A server that lasted so long has made good its earlier failures."""

    def retry_after(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        return float(min(self.first_retry_s * 2.0 ** (failures - 1), self.longest_retry_s))
