"""The agent's tests do not wait between two attempts: how long a wait is belongs to the tests of the policy."""

from collections.abc import Iterator

import pytest

from makai.providers import retries


@pytest.fixture(autouse=True, scope="module")
def no_waiting_between_attempts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retries, "FIRST_DELAY_S", 0.0)
        yield
