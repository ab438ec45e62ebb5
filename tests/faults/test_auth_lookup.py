"""The cost of a login that is in use."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import pytest
from support.auth_child import refresher
from support.machine import RecordMeasure
from support.token_server import FAR_FUTURE_MS, PROVIDER

from makai.auth.credentials import Account, OAuthToken
from makai.auth.store import CredentialStore
from makai.core.secret import Secret

LOOKUP_BAR_US = 20


@pytest.mark.alone
async def test_a_lookup_costs_nearly_nothing_while_none_is_expired(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    token = OAuthToken(access=Secret("access"), refresh=Secret("refresh"), expires_at_ms=FAR_FUTURE_MS)
    for name in ("work", "home"):
        CredentialStore(tmp_path).save(
            PROVIDER, Account(name=name, credential=token, origins=("https://api.test:443",))
        )
    source = refresher(tmp_path)

    async def one_lookup_us(times: int = 2000) -> float:
        start = time.perf_counter()
        for _ in range(times):
            await source.fresh(PROVIDER, "work")
        return (time.perf_counter() - start) / times * 1_000_000

    samples = []
    for _ in range(50):
        samples.append(await one_lookup_us())
        await asyncio.sleep(0)
    median = statistics.median(samples)

    record_measure("credential lookup, nothing expired", f"<= {LOOKUP_BAR_US} us", f"{median:.1f} us")
    assert median <= LOOKUP_BAR_US
