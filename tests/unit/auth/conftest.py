"""What tests of logins share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.postgres import database

from makai.auth.flows import oauth2

__all__ = ["database"]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the device flow waited each time, on a clock that only these waits move."""
    recorded: list[float] = []

    async def sleep(seconds: float) -> None:
        recorded.append(seconds)

    monkeypatch.setattr(oauth2, "sleep", sleep)
    monkeypatch.setattr(oauth2, "monotonic", lambda: sum(recorded))
    return recorded


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in a folder, neither of which is there."""
    return tmp_path / "parent" / "home"


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets an operation of `os` fail for want of space."""

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda operation: monkeypatch.setattr(os, operation, full)
