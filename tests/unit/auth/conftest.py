"""What tests of logins share."""

from __future__ import annotations

import pytest

from makai.auth.flows import oauth2


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the device flow waited each time, on a clock that only these waits move."""
    recorded: list[float] = []

    async def sleep(seconds: float) -> None:
        recorded.append(seconds)

    monkeypatch.setattr(oauth2, "sleep", sleep)
    monkeypatch.setattr(oauth2, "monotonic", lambda: sum(recorded))
    return recorded
