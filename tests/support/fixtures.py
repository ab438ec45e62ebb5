"""Recorded files under tests/fixtures."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"


def fixture(name: str) -> bytes:
    """The bytes of one recorded file."""
    return (FIXTURES / name).read_bytes()
