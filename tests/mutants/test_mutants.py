"""Mutants of the code are noticed by the tests of their clauses: a sample in `make test`, all in `make mutants`."""

from __future__ import annotations

import os
import time

import pytest
from support.machine import RecordMeasure

from tools.mutant_rows import default_seed, failures, read_mutants, sample, summary
from tools.mutants import judge_all
from tools.requirements import ROOT

SAMPLE = 30


@pytest.mark.timeout(1800)
def test_every_mutant_is_killed_by_a_test_of_its_clause(record_measure: RecordMeasure) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    mutants = read_mutants(ROOT)
    seed = default_seed(ROOT)
    chosen = sample(mutants, SAMPLE, seed)
    # Beside other workers of pytest-xdist, which use the cores already, one more is enough.
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else None
    start = time.monotonic()

    verdicts = judge_all(ROOT, chosen, jobs)

    measured = f"{summary(verdicts)} in {time.monotonic() - start:.0f} s"
    record_measure(f"mutants of {len(mutants)}, seed {seed}", "100 % killed or explained", measured)
    assert not failures(verdicts), "\n".join(verdict.line() for verdict in failures(verdicts))
