"""A pytest plugin that runs only the tests of one clause, the cheapest first, and writes what happened to a file.

`python -m pytest -p tools.clause_tests --clause MK-ENV-005 [--outcome FILE] [paths]`. `tools/mutants.py` uses it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

SLOW_LAST = ("unit", "house", "interaction", "examples", "e2e", "real", "browser", "faults")
"""The folders below `tests`: a mutant is killed by the first test that fails, so quick tests go first."""


class Outcome(msgspec.Struct, frozen=True):
    """What a run of tests came to. `failed` names the tests, `timed_out` those of them that pytest-timeout ended."""

    passed: int = 0
    skipped: int = 0
    failed: tuple[str, ...] = ()
    timed_out: tuple[str, ...] = ()


def cost(path: str) -> tuple[int, str]:
    """A key that sorts files of tests by how long they usually take."""
    folder = [*Path(path).parts, "", ""][1]
    return (SLOW_LAST.index(folder) if folder in SLOW_LAST else len(SLOW_LAST), path)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("clauses")
    group.addoption("--clause", help="run only the tests that carry this requirement id")
    group.addoption("--outcome", type=Path, help="write passed, skipped and failed tests to this file")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--outcome")) is not None:
        config.pluginmanager.register(_Recorder(path), "clause outcome")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the clause, in an order that is the same in every run."""
    clause = config.getoption("--clause")
    if clause is None:
        return
    kept = [item for item in items if any(clause in mark.args for mark in item.iter_markers("req"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = sorted(kept, key=lambda item: (cost(item.nodeid.partition("::")[0]), item.nodeid))


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, bool] = {}
        self._passed = 0
        self._skipped = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = "Timeout (>" in report.longreprtext
        elif report.skipped:
            self._skipped += 1
        elif report.when == "call":
            self._passed += 1

    def pytest_sessionfinish(self) -> None:
        timed_out = tuple(name for name, late in self._failed.items() if late)
        outcome = Outcome(self._passed, self._skipped, tuple(self._failed), timed_out)
        self._path.write_bytes(msgspec.json.encode(outcome))
