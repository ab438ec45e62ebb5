"""A session of its own for each test, and one client that said hello."""

from __future__ import annotations

import pytest
from support.minicodex import Client, Room


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def client(room: Room) -> Client:
    return room.client()
