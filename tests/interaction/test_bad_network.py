"""Clients behind a network that delays, splits, throttles, half-closes and cuts: each receives the log, and what it
sends counts once. Small here, 1,000 disconnects per face with `make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chaos_trials import ChaosTrial, minicodex_through_chaos, sdk_through_chaos
from support.machine import RecordMeasure
from support.profiles import FAULTS

DISCONNECTS = 1_000 if FAULTS else 12


def checked(face: str, trial: ChaosTrial, record_measure: RecordMeasure) -> None:
    network = trial.network
    found = f"{trial.lost}, {trial.repeated}, {trial.unlike_the_log} of {trial.received:,}"
    record_measure(
        f"{face}: {DISCONNECTS:,} disconnects by a bad network: lost, repeated, unlike the log", "0, 0, 0", found
    )
    faults = f"{network.cuts}, {network.half_closes}, {network.delayed}, {network.split}, {network.throttled}"
    record_measure(f"{face}: cut, half-closed, delayed, split, throttled", "-", faults)
    assert trial.is_clean, trial
    assert trial.received > DISCONNECTS
    assert network.cuts > DISCONNECTS / 10


@pytest.mark.proof("D5", "D7")
@pytest.mark.scaled
@pytest.mark.timeout(1800 if FAULTS else 180)
async def test_a_websocket_client_on_a_bad_network_receives_the_log_and_its_messages_count_once(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    trial = await minicodex_through_chaos(tmp_path, DISCONNECTS, seed=17)
    name = f"MiniCodex: {trial.messages} messages repeated until accepted: not once in the log"
    record_measure(name, "0", str(len(trial.not_once)))
    checked("MiniCodex", trial, record_measure)
    assert trial.messages > 0


@pytest.mark.proof("D5")
@pytest.mark.scaled
@pytest.mark.timeout(1800 if FAULTS else 180)
@pytest.mark.parametrize("scheme", ["ws", "http"], ids=["WebSocket", "server-sent events"])
async def test_the_sdk_on_a_bad_network_receives_everything_once(
    tmp_path: Path, scheme: str, record_measure: RecordMeasure
) -> None:
    trial = await sdk_through_chaos(tmp_path, scheme, DISCONNECTS, seed=19)
    checked(f"Python SDK over {scheme}", trial, record_measure)
