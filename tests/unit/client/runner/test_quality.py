"""Counting failures of common tools, and comparing them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from makai.client.runner import quality
from makai.client.runner.quality import Measured, QualityChecks, compare, count_failures, measure
from makai.core.session_terms import SandboxLevel
from makai.harness.contract.result import QualityReport
from makai.tools.sandbox.detect import Detection

GO = """\
=== RUN   TestA
--- FAIL: TestA (0.00s)
    a_test.go:5: no
    --- FAIL: TestA/sub (0.00s)
ok  \texample.org/b\t0.002s
FAIL\texample.org/c [build failed]
FAIL
"""
CARGO = """\
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""
TSC = "src/a.ts(1,7): error TS2322: Type 'string' is not assignable.\nsrc/b.ts:3:1 - error TS1005: ';' expected.\n"
ESLINT = "/x/a.js\n  1:1  error  no  no-undef\n\n✖ 5 problems (3 errors, 2 warnings)\n"
ESLINT_WARNINGS = "✖ 2 problems (0 errors, 2 warnings)\n"


@pytest.mark.parametrize(
    ("output", "count"),
    [
        ("=== 2 failed, 10 passed, 1 skipped in 3.21s ===", 2),
        ("==== 1 failed, 3 passed, 2 errors in 0.10s ====", 3),
        ("FAILED t.py::a - assert 0\n1 failed, 4 passed in 0.01s", 1),
        ("2 errors in 0.11s", 2),
        ("\x1b[31m= \x1b[31m\x1b[1m4 failed\x1b[0m, \x1b[32m1 passed\x1b[0m\x1b[31m in 0.12s\x1b[0m =", 4),
        ("5 passed in 0.1s\nFAIL Required test coverage of 90% not reached.", 1),
        ("FAILED (failures=2, errors=1)", 3),
        ("FAILED (errors=4)", 4),
        ("Found 7 errors in 3 files (checked 20 source files)", 7),
        ("Found 1 error in 1 file (checked 1 source file)", 1),
        ("Found 12 errors.\n[*] 3 fixable with the `--fix` option.", 12),
        ("Would reformat: a.py\n2 files would be reformatted, 3 files already formatted", 2),
        (TSC, 2),
        (ESLINT, 3),
        (ESLINT_WARNINGS, 1),
        (GO, 3),
        (CARGO, 3),
        ("error: could not compile `x` (lib) due to 3 previous errors", 3),
        ("3 errors, 1 warning, 0 informations", 3),
        ("Tests:       2 failed, 5 passed, 7 total", 2),
        ("      Tests  3 failed | 2 passed (5)", 3),
        ("something else", 1),
        ("", 1),
    ],
)
def test_failures_of_common_tools_are_counted(output: str, count: int) -> None:
    assert count_failures(f"before\n{output}\n", 1) == count
    assert count_failures(f"before\n{output}\n", 0) == 0


@pytest.mark.req("DM-RES-003")
@pytest.mark.parametrize(
    ("before", "after", "report"),
    [
        ({"test": 2, "types": 0, "lint": 5}, {"test": 1, "types": 0, "lint": 5}, (-1, 0, 0, False)),
        ({"test": 2, "types": 0, "lint": 5}, {"test": 2, "types": 3, "lint": 4}, (0, 3, -1, True)),
        ({"test": 2, "types": 0, "lint": 5}, {"types": 0, "lint": 5}, (0, 0, 0, True)),
    ],
)
def test_positive_deltas_are_regressions_and_block_the_promotion(
    before: dict[str, int], after: dict[str, int], report: tuple[int, int, int, bool]
) -> None:
    test, types, lint, blocked = report

    assert compare(before, after, {"test": "t", "types": "y", "lint": "l"}) == QualityReport(
        baseline_captured=True, test_delta=test, type_delta=types, lint_delta=lint, blocked_promotion=blocked
    )


@pytest.mark.req("DM-RES-003")
def test_without_a_baseline_nothing_is_compared() -> None:
    assert compare(None, {"test": 9}, {"test": "t"}) == QualityReport(baseline_captured=False)
    assert compare({"lint": 0}, {"test": 9}, {"test": "t"}) == QualityReport(baseline_captured=False)


async def test_commands_run_in_the_folder_and_what_cannot_run_has_no_count(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("Found 3 errors.\n", encoding="utf-8")
    checks = QualityChecks(test="cat out.txt; exit 1", types="no-such-program-here", lint="sleep 60", timeout_s=1)

    found = await measure(checks, tmp_path)

    assert found.counts == {"test": 3}
    assert sorted(found.problems) == ["lint", "types"]
    assert found.problems["lint"] == "it did not end within 1 s"
    assert "no-such-program-here" in found.problems["types"]


async def test_a_check_executes_what_an_agent_wrote_in_the_sandbox_only(tmp_path: Path) -> None:
    folder, outside = tmp_path / "worktree", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    attack = f"echo x > {outside}/taken; mkdir -p .vscode && echo x > .vscode/tasks.json; echo x > kept; true"
    (folder / "check.sh").write_text(attack, encoding="utf-8")

    for level, written in (("workspace-write", []), ("read-only", []), ("full-access", ["taken"])):
        checks = QualityChecks(test="sh check.sh")
        assert await measure(checks, folder, cast(SandboxLevel, level)) == Measured(counts={"test": 0})

        assert [path.name for path in outside.iterdir()] == written
        assert (folder / ".vscode").exists() is bool(written)
        assert (folder / "kept").exists()


async def test_without_a_sandbox_no_check_runs_unless_the_user_chose_full_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "detect", lambda: Detection(backend=None, problems=("none here",)))
    checks = QualityChecks(test="touch ran")

    found = await measure(checks, tmp_path)

    problem = "No sandbox works here, so nothing can run workspace-write: none here."
    assert (found, (tmp_path / "ran").exists()) == (Measured(counts={}, problems={"test": problem}), False)
    assert await measure(checks, tmp_path, "full-access") == Measured(counts={"test": 0})


async def test_no_command_measures_nothing_and_no_key_reaches_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")

    assert await measure(QualityChecks(test="  "), tmp_path) == Measured(counts={})
    assert await measure(QualityChecks(test='test -z "$ANTHROPIC_API_KEY"'), tmp_path) == Measured(counts={"test": 0})
