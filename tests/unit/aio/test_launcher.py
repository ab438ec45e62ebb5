"""The process that starts every child outside of a sandbox."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from makai.aio.child_process import ChildProcess
from makai.aio.launcher import Launcher

WITHIN_S = 60.0


def greet(arguments: Sequence[str]) -> int:
    """A program in memory, loaded by the launchers of these tests."""
    sys.stdout.write(f"{' '.join(arguments)} {os.environ.get('GIVEN')} {os.getcwd()}\n")
    return 7


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    with closing(Launcher({})) as started:
        yield started


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this module where the launcher finds it, which may be changed."""
    from makai.aio import launcher

    copied = tmp_path / "programs" / "greeting.py"
    copied.parent.mkdir()
    copied.write_bytes(Path(__file__).read_bytes())
    paths = f"import sys; sys.path += {[str(copied.parent), *sys.path]!r}; "
    monkeypatch.setattr(launcher, "_BOOT", paths + launcher._BOOT)
    return copied


def test_a_program_in_memory_runs_as_it_was_when_the_launcher_began(module: Path, tmp_path: Path) -> None:
    with closing(Launcher({"greet": "greeting:greet"})) as launcher:
        first = launcher.run(["greet", "a", "b"], env={"GIVEN": "this"}, cwd=tmp_path, timeout_s=WITHIN_S)
        module.write_text("def greet(arguments): raise SystemExit('changed')")
        (module.parent / "json.py").write_text("raise SystemExit('changed')")
        second = launcher.run(["greet", "c"], env={}, cwd=tmp_path, timeout_s=WITHIN_S)

    assert (first.returncode, first.stdout) == (7, f"a b this {tmp_path}\n".encode())
    assert (second.returncode, second.stdout) == (7, f"c None {tmp_path}\n".encode())


def test_a_child_has_the_given_environment_and_no_descriptor_of_others(launcher: Launcher, tmp_path: Path) -> None:
    with open(tmp_path / "inherited", "w") as file:
        os.set_inheritable(file.fileno(), True)
        done = launcher.run(
            ["/bin/sh", "-c", 'env | sort; for fd in /proc/$$/fd/*; do echo "${fd##*/}"; done'],
            env={"A": "b"},
            cwd=tmp_path,
            timeout_s=WITHIN_S,
        )

    # 3 is the folder that the shell looks into
    assert done.stdout.decode().split() == ["A=b", f"PWD={tmp_path}", "0", "1", "2", "3"]


def test_long_arguments_arrive_whole(launcher: Launcher) -> None:
    words = ["x" * 100_000, "\udcff", "", "é\n"] * 10
    done = launcher.run([sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words], timeout_s=WITHIN_S)

    assert done.stdout.decode() == f"{words!a}\n"


def test_what_takes_too_long_is_ended(launcher: Launcher) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.run(["sleep", "600"], timeout_s=0.5)


async def test_when_it_was_killed_the_next_child_gets_a_new_one_and_running_children_stay(launcher: Launcher) -> None:
    running = await ChildProcess.start(["cat"], launcher=launcher)
    os.kill(launcher._pid, signal.SIGKILL)
    next_one = await ChildProcess.start(["cat"], launcher=launcher)
    await asyncio.gather(running.write(b"one\n"), next_one.write(b"two\n"))

    assert (await running.read(), await next_one.read()) == (b"one\n", b"two\n")
    assert (await running.stop(grace_s=WITHIN_S), await next_one.stop(grace_s=WITHIN_S)) == (0, 0)


async def test_a_hundred_children_at_once_get_their_own_answers(launcher: Launcher) -> None:

    async def answer(number: int) -> bytes:
        child = await ChildProcess.start(["echo", str(number)], launcher=launcher, takes_input=False)
        try:
            return await child.read()
        finally:
            await child.stop()

    answers = await asyncio.gather(*(answer(number) for number in range(100)))

    assert answers == [f"{number}\n".encode() for number in range(100)]


async def test_a_supervisor_that_is_killed_is_an_end_like_any_other(launcher: Launcher) -> None:
    child = await ChildProcess.start(["sleep", "600"], launcher=launcher)
    os.kill(child.pid, signal.SIGKILL)

    assert await asyncio.wait_for(child.wait(), WITHIN_S) == -signal.SIGKILL
    assert await child.stop() == -signal.SIGKILL
