"""Decides whether and when a failed request is sent again. It is the one policy for failures before an answer begins,
which providers retry, and for answers that break off, which the agent loop asks for again. Pure: it reads time only
through its clock."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable

from makai.core.errors import ContextOverflow, MakaiError, Overloaded, ProviderError, RateLimited
from makai.core.request import StreamOptions
from makai.core.stream_events import Retry

RETRY_STATUS = frozenset({408, 409, 429})
"""Time-outs, conflicts and rate limits: with the faults of a server (5xx) what may get better by asking again."""
NEVER_STATUS = frozenset({501, 505})
"""A server that does not know the method or the version of HTTP learns neither by waiting."""

QUICK_RETRIES = 3
"""Without `retry_for_s`."""
FIRST_DELAY_S = 0.25
"""Doubled with every attempt, within a quarter up or down at random."""
MAX_DELAY_S = 60.0
PATIENCE_S = 600.0
"""How long the runs of sessions keep asking a vendor that is overloaded or limits their rate, unless `config.toml`
says otherwise (`[retries] max_seconds`)."""
UNREACHABLE_PATIENCE_S = 120.0
"""The same for a server that cannot be reached: its address may be wrong."""
MIN_DELAY_S = 5.0
"""What a growing delay comes to at least where the vendor asks for less: "0" must not become a busy loop."""

_PERMANENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "credit_balance_too_low"})
"""Vendor codes that come as 429 and mean "pay first"."""

_REQUEST_AT_FAULT = re.compile(
    r"invalid_(request|prompt|argument|image)|not_found|permission|too_large|content_filter|content_policy|safety"
    r"|unsupported|failed_precondition|billing|credit_balance",
    re.IGNORECASE,
)
"""Vendor codes, as they come inside streams without a status, of requests that fail the same way every time."""


_MEDIUM_REFUSED = re.compile(
    r"(image|vision|picture|audio|multi-?modal)[^.]{0,80}(\bnot\b|n't|unsupported|missing|only supported)"
    r"|(\bnot\b|n't|unsupported|unknown|no endpoints)[^.]{0,80}(image|vision|picture|audio|multi-?modal)",
    re.IGNORECASE,
)
_INPUT_STATUS = frozenset({400, 404, 413, 415, 422})


def blames_input(error: MakaiError) -> bool:
    """Whether the vendor refused what is in the request, so that pictures or recordings may be the reason. Vendors that
    do not know them at all say so in many ways ("must be a string"); some local servers say it with 500."""
    if type(error) is not ProviderError:
        return False
    says_so = _MEDIUM_REFUSED.search(error.message) is not None
    return error.status in _INPUT_STATUS or (error.status in (None, 500) and says_so)


def is_transient(error: MakaiError) -> bool:
    """Whether the same request may succeed when it is sent again."""
    if not isinstance(error, ProviderError) or isinstance(error, ContextOverflow):
        return False
    if error.quota_exhausted or error.vendor_code in _PERMANENT or blames_input(error):
        return False
    if error.status is None:
        return not _REQUEST_AT_FAULT.search(error.vendor_code or "")
    return error.status in RETRY_STATUS or (error.status >= 500 and error.status not in NEVER_STATUS)


class Retries:
    """Counts the failures of one request and says how long to wait after each. With `StreamOptions.retry_for_s` it
    gives up when so much time has passed since the first failure; without, after `QUICK_RETRIES`. `max_retries` limits
    both. A `retry_for_s` of 0 gives up at the first answer that is an error; only a lost connection is tried again."""

    def __init__(
        self,
        options: StreamOptions,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._patience_s = options.retry_for_s or 0.0
        self._takes_first_answer = options.retry_for_s == 0
        self._max = QUICK_RETRIES if options.max_retries is None and not self._patience_s else options.max_retries
        self._clock = clock
        self._jitter = jitter
        self._failures = 0
        self._failed_at = 0.0
        """When the first failure was."""

    def reset(self) -> None:
        """The request succeeded: the next one may fail as often again."""
        self._failures = 0

    def next_wait(self, error: MakaiError, patience_s: float | None = None) -> Retry | None:
        """The wait before the next attempt, or None to give up. `patience_s` shortens the patience for this error; 0
        allows quick attempts only. A wait that the vendor asks for is kept, never shortened: one that does not fit
        is left to the caller (`retry_after_ms`)."""
        failures, self._failures = self._failures, self._failures + 1
        now = self._clock()
        if failures == 0:
            self._failed_at = now
        is_answer = isinstance(error, RateLimited | Overloaded) or getattr(error, "status", None) is not None
        if is_answer and self._takes_first_answer:
            return None
        patience_s = self._patience_s if patience_s is None else min(patience_s, self._patience_s)
        most = QUICK_RETRIES if self._max is None and not patience_s else self._max
        if not isinstance(error, ProviderError) or not is_transient(error) or (most is not None and failures >= most):
            return None
        left_s = self._failed_at + patience_s - now if patience_s else MAX_DELAY_S
        asked_s = None if error.retry_after_ms is None else error.retry_after_ms / 1000
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(failures, 60)) * (0.75 + 0.5 * self._jitter())
        if asked_s is not None:
            if asked_s > left_s:
                return None
            delay_s = max(asked_s, min(delay_s, MIN_DELAY_S)) if patience_s else asked_s
        elif patience_s:
            delay_s = min(delay_s, left_s)
        if left_s <= 0:
            return None
        reason = error.message if error.message.endswith((".", "!", "?")) else f"{error.message}."
        return Retry(reason=reason, wait_ms=math.ceil(delay_s * 1000), attempt=failures + 2, max_retries=most)
