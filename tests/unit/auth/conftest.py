"""What tests of logins share."""

from __future__ import annotations

import pytest

from makai.auth.flows import device_code


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the device flow waited each time, on a clock that only these waits move."""
    recorded: list[float] = []

    async def sleep(seconds: float) -> None:
        recorded.append(seconds)

    monkeypatch.setattr(device_code, "sleep", sleep)
    monkeypatch.setattr(device_code, "monotonic", lambda: sum(recorded))
    return recorded
