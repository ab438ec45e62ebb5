from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A MAKAI_HOME that is not there yet."""
    return tmp_path / "home"
