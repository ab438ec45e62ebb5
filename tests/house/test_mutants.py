"""The rows of mutants fit the code and the requirements, and the tool that runs them selects and judges as it says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tools.clause_tests import Outcome
from tools.mutant_rows import (
    Language,
    Mutant,
    Run,
    Status,
    Suite,
    Verdict,
    confirmed,
    data_problems,
    failures,
    files_by_clause,
    judged,
    not_killed,
    read_mutants,
    sample,
    suites,
    summary,
    without_mutant,
)
from tools.mutants import Processes, Tree
from tools.requirements import ROOT, Ledger, Marker, Requirement, read_ledger

MAX_WITHOUT_MUTANT = 0
"""A ratchet: finished `must` clauses that no mutant tries. Lower it when rows are added; a new clause brings a row."""
MUTANT = Mutant(clause="A-X-001", breaks="One is lost.", file="src/makai/a.py", find="1 + 1", replace="1 + 0")
SUITE = Suite(Language.PYTHON, "A-X-001", ("tests/unit/test_a.py",))
LEDGER = Ledger(
    requirements=(Requirement(id="A-X-001", source="000", level="must", text="It adds."),),
    divergences=(),
    finished=(),
    markers=(Marker("tests/unit/test_a.py:2", ("A-X-001",)),),
)
PASSED = Run(Outcome(passed=2))
FAILED = Run(Outcome(passed=1, failed=("tests/unit/test_a.py::test_sum",)))


def checkout(root: Path) -> Path:
    """A tiny project with one clause, one test and one mutant."""
    for name, text in {
        "src/makai/__init__.py": "",
        "src/makai/a.py": "def two() -> int:\n    return 1 + 1\n",
        "tests/unit/test_a.py": (
            "import pytest\nfrom makai.a import two\n"
            '@pytest.mark.req("A-X-001")\ndef test_sum(): assert two() == 2\n'
            '@pytest.mark.req("A-X-002")\ndef test_wrong(): assert two() == 3\n'
        ),
        "sdk/typescript/test/a.test.ts": 'test(`adds ${req("A-X-001")}`, () => {});\n',
        "tests/mutants/A-X.toml": "\n".join(
            ["[[mutant]]", *(f"{name} = {value!r}" for name, value in msgspec.to_builtins(MUTANT).items())]
        ),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_every_row_of_this_project_fits() -> None:
    found = data_problems(read_mutants(ROOT), read_ledger(ROOT), ROOT)

    assert not found, "\n".join(found)


def test_fewer_and_fewer_clauses_have_no_mutant() -> None:
    missing = without_mutant(read_mutants(ROOT), read_ledger(ROOT))

    assert len(missing) <= MAX_WITHOUT_MUTANT, f"write a mutant for one of {missing}"


def test_rows_are_read_from_the_file_of_their_area(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    assert read_mutants(root) == (MUTANT,)

    (root / "tests/mutants/A-X.toml").rename(root / "tests/mutants/B.toml")
    with pytest.raises(ValueError, match=r"B\.toml: A-X-001 belongs into A-X\.toml"):
        read_mutants(root)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"find": "2 + 2"}, "the text to find occurs 0 times in src/makai/a.py"),
        ({"find": "1"}, "the text to find occurs 2 times in src/makai/a.py"),
        ({"replace": "1 +"}, "invalid syntax (a.py, line 2)"),
        ({"replace": "1 + 1"}, "the row changes nothing, or does not say what it breaks"),
        ({"file": "src/makai/b.py"}, "src/makai/b.py is not a file of the product"),
        ({"file": "tests/unit/test_a.py", "find": "== 2"}, "tests/unit/test_a.py is not a file of the product"),
        ({"clause": "A-X-009"}, "A-X-009 is not a requirement"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, changes: dict[str, str], problem: str | None) -> None:
    mutant = msgspec.structs.replace(MUTANT, **changes)

    found = data_problems([mutant], LEDGER, checkout(tmp_path))

    assert found == ([] if problem is None else [f"{mutant.clause} (One is lost.): {problem}"])


def test_the_same_change_twice_is_named(tmp_path: Path) -> None:
    again = msgspec.structs.replace(MUTANT, breaks="One is lost again.")

    found = data_problems([MUTANT, again], LEDGER, checkout(tmp_path))

    assert found == ["A-X-001 (One is lost again.): another row of the clause has the same change"]


def test_tests_are_chosen_by_clause_and_by_what_can_notice_the_change(tmp_path: Path) -> None:
    files = files_by_clause(checkout(tmp_path))["A-X-001"]
    sdk = Suite(Language.SDK, "A-X-001", ("sdk/typescript/test/a.test.ts",))
    browser = {Language.PYTHON: ("tests/unit/test_a.py", "tests/browser/test_a.py"), Language.PAGE: ("web/test/a.ts",)}

    assert suites(MUTANT, files) == [SUITE, sdk]
    assert suites(msgspec.structs.replace(MUTANT, file="sdk/typescript/src/a.ts"), files) == [sdk]
    assert suites(msgspec.structs.replace(MUTANT, file="web/src/a.ts"), browser) == [
        Suite(Language.PAGE, "A-X-001", ("web/test/a.ts",)),
        Suite(Language.PYTHON, "A-X-001", ("tests/browser/test_a.py",)),
    ]


def test_a_sample_depends_on_its_seed_alone() -> None:
    rows = [msgspec.structs.replace(MUTANT, breaks=str(number)) for number in range(100)]

    assert sample(rows, 30, "a") == sample(rows, 30, "a") != sample(rows, 30, "b")
    assert len({row.breaks for row in sample(rows, 30, "a")}) == 30
    assert sorted(sample(rows, 200, "a"), key=rows.index) == rows


KILLER = "tests/unit/test_a.py::test_sum"
SDK = msgspec.structs.replace(SUITE, language=Language.SDK)
LATE = Run(Outcome(failed=(KILLER,), timed_out=(KILLER,)))


@pytest.mark.parametrize(
    ("suite", "mutated", "restored", "verdict"),
    [
        (SUITE, FAILED, None, Verdict(MUTANT, Status.KILLED, KILLER, KILLER)),
        (SUITE, LATE, None, Verdict(MUTANT, Status.KILLED, f"hangs in {KILLER}", KILLER)),
        (SUITE, Run(None, hung=True), PASSED, Verdict(MUTANT, Status.KILLED, "hangs in tests/unit/test_a.py")),
        (SDK, FAILED, PASSED, Verdict(MUTANT, Status.KILLED, "tests/unit/test_a.py")),
        (SDK, FAILED, FAILED, Verdict(MUTANT, Status.ERROR, "the tests fail without the mutation too: ")),
        (
            SUITE,
            Run(None, output="E"),
            None,
            Verdict(MUTANT, Status.ERROR, "the tests could not run with the mutation: E"),
        ),
        (SUITE, PASSED, None, None),
    ],
)
def test_a_mutant_is_killed_by_tests_that_fail_with_it(
    suite: Suite, mutated: Run, restored: Run | None, verdict: Verdict | None
) -> None:
    assert judged(MUTANT, suite, mutated, restored) == verdict


def test_a_test_that_always_fails_kills_nothing() -> None:
    killed = Verdict(MUTANT, Status.KILLED, KILLER, KILLER)
    wrong = Verdict(MUTANT, Status.ERROR, f"the test fails without the mutation too: {KILLER}")

    assert confirmed([killed], set()) == [killed]
    assert confirmed([killed, not_killed(MUTANT, [PASSED])], {KILLER})[0] == wrong


def test_a_mutant_that_no_suite_kills_survives_unless_explained_or_untested() -> None:
    explained = msgspec.structs.replace(MUTANT, explained="Nothing calls it.")

    assert not_killed(MUTANT, [PASSED]).status is Status.SURVIVED
    assert not_killed(explained, [PASSED]) == Verdict(explained, Status.EXPLAINED, "Nothing calls it.")
    assert not_killed(MUTANT, [PASSED, Run(Outcome(skipped=3))]).status is Status.SKIPPED


def test_the_summary_counts_and_only_survivors_and_errors_fail() -> None:
    verdicts = [Verdict(MUTANT, status) for status in (Status.KILLED, *Status)]

    assert summary(verdicts) == "2 of 6 killed, 1 explained, 1 skipped, 1 survived, 1 error"
    assert [verdict.status for verdict in failures(verdicts)] == [Status.SURVIVED, Status.ERROR]


def test_a_mutation_is_in_the_copy_alone_and_only_the_tests_of_its_clause_run(tmp_path: Path) -> None:
    root = checkout(tmp_path / "root")
    (root / "tests/unit/conftest.py").write_text(
        'def pytest_configure(config): config.addinivalue_line("markers", "req(*ids): clauses")\n'
    )
    (root / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    (root / "tools").mkdir()
    for name in ("clause_tests.py", "pytest_forks.py"):
        shutil.copy(ROOT / "tools" / name, root / "tools" / name)
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=30)
    processes = Processes()
    tree = Tree(root, tmp_path / "copy", processes)
    asked = [str(tree.python), "-c", "import makai.a; print(makai.a.two())"]

    with tree.mutated(MUTANT):
        killed = tree.run(SUITE, MUTANT)
        said = subprocess.run(asked, capture_output=True, check=True, timeout=30).stdout
    restored = tree.run(SUITE, MUTANT)
    failing = tree.failing([KILLER, "tests/unit/test_a.py::test_wrong"])
    processes.close()

    assert failing == {"tests/unit/test_a.py::test_wrong"}
    assert killed.outcome == Outcome(failed=("tests/unit/test_a.py::test_sum",)), killed.output
    assert said == b"1\n", "a program that a test starts is mutated too"
    assert restored.outcome == Outcome(passed=1), restored.output
    assert (root / "src/makai/a.py").read_text() == "def two() -> int:\n    return 1 + 1\n"


def test_a_program_that_hangs_is_ended() -> None:
    code, _ = Processes().run([sys.executable, "-c", "import time; time.sleep(60)"], Path("/"), 0.2)

    assert code is None
