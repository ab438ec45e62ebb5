"""How many examples a property test tries: few on every push, many in `make faults`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FAULTS = os.environ.get("MAKAI_FAULTS") == "1"
FUZZ_COUNT = int(os.environ.get("MAKAI_FUZZ_COUNT", "1000000"))
"""How many inputs the longest fuzz tests try in `make faults`."""


def examples(count: int, *, in_faults: int | None = None) -> settings:
    """Settings for `count` examples; `in_faults` when MAKAI_FAULTS=1, by default ten times as many."""
    return settings(
        max_examples=(in_faults or count * 10) if FAULTS else count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
