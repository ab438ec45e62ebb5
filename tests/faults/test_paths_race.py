"""The bar of confined paths in full size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.path_trials import race

if TYPE_CHECKING:
    from conftest import RecordMeasure


def test_60_000_opens_against_a_link_that_is_swapped_never_leave_the_root(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = race(tmp_path, 60_000)

    record_measure("symlink-swap race, 60,000 opens: outside the root", "0", str(report.outside))
    assert (report.tries, report.outside) == (60_000, 0)
    assert min(report.inside, report.refused) > 1_000
