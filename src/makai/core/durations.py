"""A length of time as people read it."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """4 s, 2 min 05 s or 1 h 10 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
