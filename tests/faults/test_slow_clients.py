"""A client that stops reading during an answer of 80 MB, with the limits that servers have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import minicodex_client
from support.machine import RecordMeasure
from support.slow_clients import BYTES_DECIDE, backpressure_states

from makai.protocols.minicodex.server import DEFAULT_LIMITS, Limits
from makai.protocols.minicodex.view import MAX_FRAME_BYTES

DELTAS, TEXTS = 314, 9
WORD = "x" * 28_000
SCENARIO = "pace: 2ms\n" + f"think: Hm.\nrepeat: {DELTAS} {WORD}\n" * TEXTS
"""In several texts, because one that is larger than 16 MB does not fit into an event."""


@pytest.mark.proof("limit-outbound")
@pytest.mark.req("MC-EVT-011")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, BYTES_DECIDE], ids=["default", "bytes decide"])
async def test_a_client_80_mb_behind_is_told_to_drain_and_misses_nothing(
    tmp_path: Path, limits: Limits, record_measure: RecordMeasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minicodex_client, "DEADLINE_S", 280.0)
    assert TEXTS * DELTAS * len(WORD) > 4 * MAX_FRAME_BYTES

    states, _ = await backpressure_states(tmp_path, SCENARIO, limits)

    record_measure("client that is 80 MB behind: backpressure", "drain, ok", ", ".join(states))
    assert states == ["drain", "ok"]
