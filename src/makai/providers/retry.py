"""When to try again, and after how long. Pure.

In: which attempt failed and how. Out: seconds to wait, or None for "give up". Knows no HTTP library and no vendor.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from makai.core.errors import ProviderError

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Time-outs, conflicts, rate limits and server faults. Anything else will not get better by asking again."""

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 60.0

_PERMANENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "credit_balance_too_low"})
"""Vendor codes that come as 429 and mean "pay first"."""


def retry_delay(
    error: ProviderError,
    attempt: int,
    max_retries: int,
    jitter: Callable[[], float] = random.random,
) -> float | None:
    """Seconds to wait before the next attempt (`attempt` counts from 0), or None to give up.

    A wait the vendor asks for is honoured exactly when it is bearable; when it is longer than a minute the caller
    learns of it through `retry_after_ms` instead of sitting in silence.
    """
    if attempt >= max_retries or error.vendor_code in _PERMANENT:
        return None
    if error.status is not None and error.status not in RETRY_STATUS and error.status < 500:
        return None
    if error.retry_after_ms is not None:
        asked = error.retry_after_ms / 1000
        return asked if asked <= LONGEST_DELAY_S else None
    backoff = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0**attempt)
    return backoff * (0.75 + 0.5 * jitter())
