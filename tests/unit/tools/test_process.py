"""A supervised process whose start is cancelled."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from pathlib import Path

import pytest
from support.orphan_trials import processes_with

from makai.tools.process import SupervisedProcess

WITHIN_S = 5.0
MOMENTS = 8


def hold_up_the_loop(mark: str, most_s: float = 0.3) -> None:
    """Let nothing of ours run until the command does, or could have started."""
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline and not any(line.startswith("/bin/bash") for line in processes_with(mark)):
        pass


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def cancelled_start(folder: Path, mark: str, turns: int, cancels: int) -> None:
    """Cancel a start after some turns of the event loop, more than once if asked to."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    command = ["/bin/bash", "-c", f"trap '' TERM; : {mark}; while :; do sleep 0.05; done"]
    try:
        starting = asyncio.create_task(
            SupervisedProcess.start(command, directory=directory, environ={"PATH": os.environ["PATH"]})
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        hold_up_the_loop(mark)
        for _ in range(cancels):
            starting.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([starting], timeout=WITHIN_S)
        if not starting.cancelled():
            await starting.result().ended()
    finally:
        os.close(directory)


@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_start_that_is_cancelled_at_any_moment_leaves_no_process(tmp_path: Path, cancels: int) -> None:
    mark = f"makai-{uuid.uuid4().hex}"
    before = open_descriptors()
    for turns in range(MOMENTS):
        await cancelled_start(tmp_path, mark, turns, cancels)

    deadline = time.monotonic() + WITHIN_S
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        pass
    assert left == []
    assert open_descriptors() <= before + 1  # the event loop's own watch of its children, made once


async def test_a_start_that_is_cancelled_is_told_as_cancelled(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        starting = asyncio.create_task(SupervisedProcess.start(["true"], directory=directory, environ={}))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    finally:
        os.close(directory)
