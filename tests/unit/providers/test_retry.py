import pytest

from makai.core.errors import ProviderError
from makai.providers.retry import retry_delay


def failure(status: int | None, wait_ms: int | None = None, vendor_code: str | None = None) -> ProviderError:
    return ProviderError("x", status=status, retry_after_ms=wait_ms, vendor_code=vendor_code)


@pytest.mark.parametrize("status", [None, 408, 409, 429, 500, 502, 503, 504, 520, 529])
def test_passing_faults_are_tried_again_with_growing_waits(status: int | None) -> None:
    delays = [retry_delay(failure(status), attempt, 3, jitter=lambda: 0.5) for attempt in range(4)]
    assert delays == [0.25, 0.5, 1.0, None]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 495])
def test_a_refusal_that_will_not_change_is_not_tried_again(status: int) -> None:
    assert retry_delay(failure(status), 0, 3) is None


def test_the_wait_the_vendor_asks_for_is_honoured_up_to_a_minute() -> None:
    assert retry_delay(failure(429, 1500), 0, 3) == 1.5
    assert retry_delay(failure(429, 60_000), 0, 3) == 60.0
    assert retry_delay(failure(429, 61_000), 0, 3) is None


def test_an_empty_account_is_not_a_passing_fault() -> None:
    assert retry_delay(failure(429, vendor_code="insufficient_quota"), 0, 3) is None


def test_waits_are_spread_so_that_many_clients_do_not_come_back_together() -> None:
    assert retry_delay(failure(500), 0, 3, jitter=lambda: 0.0) == 0.1875
    assert retry_delay(failure(500), 0, 3, jitter=lambda: 1.0) == 0.3125
    assert retry_delay(failure(500), 40, 99, jitter=lambda: 0.5) == 60.0
