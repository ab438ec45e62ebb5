"""One browser and one server per file of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from support.browser import Site, chromium, site_of


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A running server, and the browser."""
    folder = tmp_path_factory.mktemp("site")
    async with site_of(folder, browser, environ={"MAKAI_TEST_LOGIN": "1"}) as site:
        yield site
