"""The server side of a connection, of its own for each test."""

from __future__ import annotations

import pytest
from support.wire import Server


@pytest.fixture
def server() -> Server:
    return Server()
