"""Reasoning effort: one scale, many vendors' steps.

In: an effort of our scale and the levels a model accepts. Out: the nearest accepted level. Pure data, no vendor names.
"""

from __future__ import annotations

from collections.abc import Sequence

SCALE = ("off", "minimal", "low", "medium", "high", "xhigh")
_RANK = {level: rank for rank, level in enumerate(SCALE)} | {"none": 0, "max": 5}


def nearest_effort(effort: str, accepted: Sequence[str]) -> str | None:
    """The accepted level closest to `effort`; on a tie the lower one.

    "off" is never rounded up to thinking that was not asked for: None means "leave the parameter out".
    """
    if effort == "off":
        return next((level for level in accepted if _RANK.get(level) == 0), None)
    levels = [level for level in accepted if _RANK.get(level, 0) > 0]
    if not levels:
        return None
    return min(levels, key=lambda level: (abs(_RANK[level] - _RANK[effort]), _RANK[level]))
