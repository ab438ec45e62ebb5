"""What every test may rely on.

Out: an environment without the developer's credentials and proxies, one hypothesis profile, the choice between
`make test` and `make faults`, and `record_measure`, which prints measured bars at the end of a run.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import hypothesis
import msgspec
import pytest

from tools.requirements import aligned

RecordMeasure: TypeAlias = Callable[[str, str, str], None]

FAULTS_FOLDER = Path(__file__).parent / "faults"
MEASURE = "measure"
NOT_FOR_TESTS = re.compile(
    r".*_(API_KEY|API_VERSION|ACCESS_TOKEN|AUTH_TOKEN|BASE_URL|ENDPOINT)|OLLAMA_HOST|GOOGLE_CLOUD_PROJECT"
    r"|(HTTP|HTTPS|ALL)_PROXY",
    re.IGNORECASE,
)

# A CI runner or `make test &` may start us with Ctrl-C ignored, which every child would inherit, tests of Ctrl-C
# included.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared machines are slow at times: how long one input takes is no verdict, the time-out of the whole test is.
hypothesis.settings.register_profile("makai", deadline=None)
hypothesis.settings.load_profile("makai")


@pytest.fixture(scope="session", autouse=True)
def _no_credentials_of_the_developer() -> Iterator[None]:
    """A test that finds a real key could spend real money, or pass only on one machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(NOT_FOR_TESTS.fullmatch, list(os.environ)):
            patch.delenv(name)
        yield


@pytest.fixture
def record_measure(request: pytest.FixtureRequest) -> RecordMeasure:
    """`record_measure("first delta", "<= 1 ms", "0.4 ms")`: a row of the table at the end of the run."""

    def record(name: str, bar: str, measured: str) -> None:
        # user_properties travel with the report, so the table is whole under pytest-xdist too
        request.node.user_properties.append((MEASURE, (name, bar, measured)))

    return record


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is below tests/faults, and leave it out unless `make faults` asks for it."""
    for item in items:
        if item.path.is_relative_to(FAULTS_FOLDER):
            item.add_marker("faults")
    if os.environ.get("MAKAI_FAULTS") != "1":
        long_running = [item for item in items if item.get_closest_marker("faults")]
        items[:] = [item for item in items if item not in long_running]
        if long_running:
            config.hook.pytest_deselected(items=long_running)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured beside the bar they hold it to."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    rows = [
        msgspec.convert(row, tuple[str, str, str])
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for kind, row in report.user_properties
        if kind == MEASURE
    ]
    if rows:
        terminalreporter.section("measured")
        terminalreporter.write_line(aligned([("test", "bar", "measured"), *rows]))
