"""What every test may rely on.

The environment holds only the variables in `KEPT_VARIABLES`. Files, and the tests in each file, run in a random order;
`MAKAI_TEST_SEED` repeats one. Long tests run in `make faults` only, those with real agents in `make test-real`.
`record_measure` prints figures at the end. With `MAKAI_TEST_STORE=postgres` every MAKAI_HOME has its sessions in
PostgreSQL (`make test-postgres`), and tests with the mark `sqlite_file` are left out.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import hypothesis
import msgspec
import pytest
from support import postgres_homes
from support.machine import RecordMeasure

from makai.tools.launching import launcher
from tools.requirements import aligned

FAULTS_FOLDER = Path(__file__).parent / "faults"
RUN_ON_DEMAND = {"faults": "MAKAI_FAULTS", "agents": "MAKAI_TEST_AGENTS"}
"""Marks of tests that only `make faults` and `make test-real` run, and the variables that these set."""
LONG_MARKS = frozenset({"faults", "scaled", "hypothesis"})
LONGEST = (
    "test_mutants.py", "test_soak.py", "test_postgres_failover.py", "test_cluster_crashes.py", "test_log_crashes.py",
    "test_views.py", "test_makai_fuzz.py", "test_attach_takeover.py", "test_opened_sandbox.py", "test_npm_package.py",
    "test_packaging.py", "test_sessions_faults.py", "test_owner_disorder.py", "test_day.py", "test_finding.py",
)  # fmt: skip
"""Files that begin first, so that no process works on one of them alone at the end."""
STORE_VARIABLE = "MAKAI_TEST_STORE"
MEASURE = "measure"
MeasuredRow: TypeAlias = tuple[str, str, str]
MEASURED_COLUMNS: MeasuredRow = ("test", "bar", "measured")
FAULTS_TABLE = Path(__file__).parents[1] / "build" / "faults.md"
SEED_VARIABLE = "MAKAI_TEST_SEED"
MODELS_VARIABLE = "MAKAI_TEST_MODELS"
KEPT_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|TZ|LANG|LC_\w+|SYSTEMROOT|LD_LIBRARY_PATH|VIRTUAL_ENV|PYENV_\w+|XAUTHORITY"
    r"|PYTHON(DONTWRITEBYTECODE|HASHSEED|UTF8|DEVMODE|FAULTHANDLER|MALLOC|WARNDEFAULTENCODING)|PYTEST_\w+|COVERAGE_\w+"
    r"|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|(PIP|NPM_CONFIG|npm_config)_\w+|MAKAI_(FAULTS|SOAK_MINUTES|FUZZ_\w+|TEST_\w+)"
)
"""Everything else (keys, proxies, MAKAI_HOME, NO_COLOR, TERM, CI, EDITOR, GIT_DIR, ...) is removed: with a real key a
test could spend money, and the others make results depend on the machine."""

# `make model` puts weights into the developer's MAKAI_HOME, which tests may read and nothing else.
if "MAKAI_HOME" in os.environ:
    os.environ[MODELS_VARIABLE] = os.environ["MAKAI_HOME"]
for name in [name for name in os.environ if not KEPT_VARIABLES.fullmatch(name)]:
    del os.environ[name]
os.environ["GIT_CONFIG_GLOBAL"] = os.devnull
os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(10**6)))

# A CI runner or `make test &` may start us with Ctrl-C ignored, which every child would inherit, tests of Ctrl-C
# included.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # `nohup make test`: children would inherit it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

if os.environ.get(STORE_VARIABLE) == "postgres":
    postgres_homes.install()

# Shared machines are slow at times: how long one input takes is no verdict, the time-out of the whole test is.
hypothesis.settings.register_profile("makai", deadline=None)
hypothesis.settings.load_profile("makai")


@pytest.fixture(scope="session", autouse=True)
def started_launcher() -> None:
    """It is a process and a socket of its own: tests that count those must not meet its start."""
    launcher().start()
    if os.environ.get(STORE_VARIABLE) == "postgres":
        postgres_homes.start()  # no deadline of a test includes it


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The path of a MAKAI_HOME that is not there yet."""
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty folder for the tools of a session."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def record_measure(request: pytest.FixtureRequest) -> RecordMeasure:
    """`record_measure("first delta", "<= 1 ms", "0.4 ms")`: a row of the table at the end of the run."""

    def record(name: str, bar: str, measured: str) -> None:
        # user_properties travel with the report, so the table is whole under pytest-xdist too
        request.node.user_properties.append((MEASURE, (name, bar, measured)))

    return record


def pytest_report_header() -> str:
    return f"random order: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle files but the longest, and tests in each file. Mark what is below tests/faults, which only `make faults`
    runs."""
    by_file = defaultdict[Path, list[pytest.Item]](list)
    for item in items:
        by_file[item.path].append(item)
    shuffled = random.Random(os.environ[SEED_VARIABLE])
    files = sorted(by_file)
    shuffled.shuffle(files)
    files.sort(key=lambda file: LONGEST.index(file.name) if file.name in LONGEST else len(LONGEST))
    for file in files:
        shuffled.shuffle(by_file[file])
    items[:] = [item for file in files for item in by_file[file]]
    for item in items:
        if item.path.is_relative_to(FAULTS_FOLDER):
            item.add_marker("faults")
    for marker, variable in RUN_ON_DEMAND.items():
        if os.environ.get(variable) != "1":
            left_out = [item for item in items if item.get_closest_marker(marker)]
            items[:] = [item for item in items if item not in left_out]
            if left_out:
                config.hook.pytest_deselected(items=left_out)
    if os.environ.get(STORE_VARIABLE) == "postgres":
        left_out = [item for item in items if item.get_closest_marker("sqlite_file")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Print what tests measured beside the bar they hold it to; failures follow, so a log ends with them."""
    found = [report for group in terminalreporter.stats.values() for report in group]
    reports = [report for report in found if isinstance(report, pytest.TestReport) and report.when == "call"]
    rows = [row for report in reports for row in measured_rows(report)]
    if rows:
        terminalreporter.section("measured")
        terminalreporter.write_line(aligned([MEASURED_COLUMNS, *rows]))
        # A worker of pytest-xdist has its own rows once more.
        if os.environ.get("MAKAI_FAULTS") == "1" and "PYTEST_XDIST_WORKER" not in os.environ:
            add_to_table(FAULTS_TABLE, rows)
    yield


def measured_rows(report: pytest.TestReport) -> list[MeasuredRow]:
    """What a test measured. A long one that measured nothing has a row with its outcome, and so has a failed one."""
    rows = [msgspec.convert(row, MeasuredRow) for kind, row in report.user_properties if kind == MEASURE]
    is_long = not LONG_MARKS.isdisjoint(report.keywords)
    if (is_long and not rows and os.environ.get("MAKAI_FAULTS") == "1") or (rows and report.failed):
        name = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
        rows.append((name, "passed", f"{report.outcome} in {report.duration:.0f} s"))
    return rows


def add_to_table(path: Path, rows: list[MeasuredRow]) -> None:
    """Append to the table of `make faults`, whose two runs of pytest fill one."""
    path.parent.mkdir(exist_ok=True)
    is_new = not path.exists()
    cells = [*((MEASURED_COLUMNS, ("---", "---", "---")) if is_new else ()), *rows]
    with path.open("a", encoding="utf-8") as table:
        table.writelines(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in cells)
