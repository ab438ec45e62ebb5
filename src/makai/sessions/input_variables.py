"""The variables of callers, in memory, until the run that their input starts takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from makai.core.lent_variables import NO_CALLER, CallerVariables
from makai.core.secret import Secret
from makai.harness import base
from makai.sessions.engine import MAX_WAITING

MAX_INPUTS: Final = 2 * MAX_WAITING
"""Inputs whose callers' variables are kept."""


class InputVariables(dict[str, CallerVariables]):
    """By the input that they came with; those of a compaction by ""."""

    def keep(self, input_id: str, environ: Mapping[str, Secret]) -> None:
        if len(self) >= MAX_INPUTS:
            del self[next(iter(self))]  # of an input that an earlier run read while it was active
        self[input_id] = CallerVariables(environ)

    def take(self, start: base.RunStart) -> CallerVariables:
        """A resumed run has none: its caller was connected to the process before."""
        match start:
            case base.StartRun(input_id=input_id):
                return self.pop(input_id, NO_CALLER)
            case base.StartCompaction():
                return self.pop("", NO_CALLER)
            case base.ResumeRun():
                return NO_CALLER
            case _:
                assert_never(start)
