"""An engine session, and every store of sessions for the tests of what all of them promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.session_trials import Trial
from support.stores import STORES, Store

from makai.sessions.log.base import EventLog


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


@pytest.fixture
async def log(store: Store) -> AsyncIterator[EventLog]:
    opened = await store.open()
    yield opened
    await opened.close()


@pytest.fixture
def trial() -> Trial:
    return Trial().create()
