from __future__ import annotations

import pytest
from support.transports import Accepted


@pytest.fixture
async def accepted() -> Accepted:
    return Accepted()
