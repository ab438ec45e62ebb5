"""The control group that counts the processes of root's confined commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from makai.aio.child_process import ChildProcess
from makai.aio.launcher import Launcher
from makai.tools.sandbox.limits import in_group, process_group_of, remove_when_empty

WITHIN_S = 60.0
MAX_PROCESSES = 40
LOOK = ["cat", "/proc/self/cgroup"]
BOMB = """
import os, signal
try:
    while True:
        if os.fork() == 0: signal.pause()
except BlockingIOError: print("full", flush=True)
signal.pause()
"""
MAKER = """
from makai.tools.launching import launcher
from makai.tools.sandbox.limits import in_group, process_group_of
print(process_group_of(7), launcher().run(in_group(7, ["true"]), timeout_s=60).returncode)
"""


@pytest.fixture
def group() -> str:
    if (found := process_group_of(MAX_PROCESSES)) is None:
        pytest.skip("only for root, with a control group for processes")
    return found


@pytest.fixture
def launcher(group: str) -> Iterator[Launcher]:
    with closing(Launcher()) as started:
        yield started


def test_a_child_is_in_its_group_and_the_next_one_only_if_it_should(launcher: Launcher, group: str) -> None:
    usual = launcher.run(LOOK, timeout_s=WITHIN_S).stdout
    counted = [launcher.run(in_group(MAX_PROCESSES, LOOK), timeout_s=WITHIN_S).stdout for _ in range(3)]
    after = [launcher.run(LOOK, timeout_s=WITHIN_S).stdout for _ in range(3)]

    name = Path(group).name.encode()
    assert [said.count(name) for said in (usual, *counted)] == [0, 1, 1, 1]
    assert after == [usual] * 3


async def test_when_children_use_up_their_group_others_are_still_started(launcher: Launcher) -> None:
    launcher.run(in_group(MAX_PROCESSES, ["true"]), timeout_s=WITHIN_S)  # so that the launcher is in the group
    bomb = await ChildProcess.start(in_group(MAX_PROCESSES, [sys.executable, "-c", BOMB]), launcher=launcher)
    try:
        assert await anext(bomb.lines(100)) == b"full"
        others = [launcher.run(["echo", str(number)], timeout_s=WITHIN_S).stdout for number in range(4)]
    finally:
        await bomb.stop()

    assert others == [b"0\n", b"1\n", b"2\n", b"3\n"]


def test_the_group_is_removed_although_a_process_in_it_ends_a_moment_later(group: str, tmp_path: Path) -> None:
    own = Path(group).parent / f"{Path(group).name}-{tmp_path.name}"
    own.mkdir()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as late:
        (own / "cgroup.procs").write_text(str(late.pid))
        looks = []

        def end_the_process(seconds: float) -> None:
            looks.append(own.exists())
            late.communicate(timeout=WITHIN_S)

        remove_when_empty(own, wait=end_the_process)

    assert (looks[0], own.exists()) == (True, False)


def test_the_group_is_removed_when_makai_ends(group: str) -> None:
    done = subprocess.run([sys.executable, "-c", MAKER], capture_output=True, text=True, timeout=WITHIN_S, check=True)

    made, code = done.stdout.split()
    assert (code, Path(made).exists(), Path(made).parent) == ("0", False, Path(group).parent)
