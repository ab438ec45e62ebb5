"""The shell policy against real bash, in full size."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.shell_fuzz import Differences, commands, differences

if TYPE_CHECKING:
    from conftest import RecordMeasure

COMMANDS = 60_000
WORKERS = 2


@pytest.mark.timeout(1800)
def test_60000_commands_in_bash_agree_with_the_policy(tmp_path: Path, record_measure: RecordMeasure) -> None:
    texts = list(commands(COMMANDS, seed=2026))
    folders = [tmp_path / str(worker) for worker in range(WORKERS)]
    for folder in folders:
        folder.mkdir()

    def compare(worker: int) -> Differences:
        return differences(texts[worker::WORKERS], folders[worker], seed=worker, timeout_s=1700)

    began = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(compare, range(WORKERS)))
    rate = COMMANDS / (time.monotonic() - began)

    wrong = [case for part in found for case in part.wrongly_allowed]
    missed = [case for part in found for case in part.denied_commands_missed]
    allowed, denied = sum(part.allowed for part in found), sum(part.denied for part in found)
    name = f"{COMMANDS} commands in bash"
    record_measure(f"{name}: allowed but run otherwise", "0", f"{len(wrong)} ({allowed} allowed)")
    record_measure(f"{name}: denied program run but not refused", "0", f"{len(missed)} ({denied} denied)")
    record_measure(f"{name}: rate", "-", f"{rate:.0f}/s")
    assert (wrong, missed) == ([], [])
    assert allowed > COMMANDS / 5
