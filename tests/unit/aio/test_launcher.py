"""The process that starts every child outside of a sandbox."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from makai.aio.child_process import ChildProcess
from makai.aio.launcher import Launcher
from makai.aio.supervisor import Wrapped

WITHIN_S = 60.0


def greet(arguments: Sequence[str]) -> int:
    """A program in memory, loaded by the launchers of these tests."""
    sys.stdout.write(f"{' '.join(arguments)} {os.environ.get('GIVEN')} {os.getcwd()}\n")
    return 7


def limited(arguments: Sequence[str], env: Mapping[str, str]) -> Wrapped:
    resource.setrlimit(resource.RLIMIT_NOFILE, (77, 77))
    return Wrapped(arguments, {"CHANGED": env.get("GIVEN", "")})


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


def test_a_waiting_supervisor_that_is_killed_is_replaced(launcher: Launcher) -> None:
    assert launcher.run(["true"], timeout_s=WITHIN_S).returncode == 0
    for _ in range(3):
        for pid in _forks_of(launcher._pid, 1):
            os.kill(pid, signal.SIGKILL)
        assert launcher.run(["echo", "here"], timeout_s=WITHIN_S).stdout == b"here\n"


def test_nothing_is_left_of_a_launcher_that_was_closed_or_killed(launcher: Launcher) -> None:
    for end in (launcher.close, lambda: os.kill(launcher._pid, signal.SIGKILL)):
        assert launcher.run(["true"], timeout_s=WITHIN_S).returncode == 0
        left = {launcher._pid, *_forks_of(launcher._pid, 2)}
        assert len(left) >= 3
        end()
        launcher.close()
        deadline = time.monotonic() + WITHIN_S
        while (left := {pid for pid in left if os.path.exists(f"/proc/{pid}")}) and time.monotonic() < deadline:
            os.sched_yield()
        assert left == set()


def test_a_wrapper_changes_what_the_program_is_started_from_and_with(module: Path, tmp_path: Path) -> None:
    with closing(Launcher(wrappers={"limited": "greeting:limited"})) as launcher:
        done = launcher.run(
            ["limited", "/bin/sh", "-c", "ulimit -n; echo $GIVEN $CHANGED"], env={"GIVEN": "x"}, timeout_s=WITHIN_S
        )
        other = launcher.run(["/bin/sh", "-c", "ulimit -n"], env={}, timeout_s=WITHIN_S)
        missing = launcher.run(["limited", "/no/such/program"], env={}, timeout_s=WITHIN_S)

    assert done.stdout == b"77\nx\n"
    assert other.stdout != b"77\n"
    assert (missing.returncode, missing.stdout) == (127, b"limited: No such file or directory\n")


def test_no_child_runs_before_all_functions_are_loaded(module: Path, tmp_path: Path) -> None:
    """It could change a module that is still to be read."""
    module.with_name("slow.py").write_text(
        f"import time; time.sleep(0.5); open({str(tmp_path / 'loaded')!r}, 'w').close(); from greeting import greet"
    )
    with closing(Launcher(workers={"greet": "slow:greet"})) as launcher:
        first = launcher.run(["ls", str(tmp_path)], timeout_s=WITHIN_S)
        second = launcher.run(["greet", "w"], env={}, cwd=tmp_path, timeout_s=WITHIN_S)

    assert b"loaded" in first.stdout.split()
    assert second.stdout == f"w None {tmp_path}\n".encode()


def test_programs_are_found_as_a_shell_finds_them(launcher: Launcher, tmp_path: Path) -> None:
    for name, mode in (("a", 0o644), ("b", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name / "tool").chmod(mode)
    path = f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b"
    found = launcher.run(["tool"], env={"PATH": path}, timeout_s=WITHIN_S)
    refused = launcher.run(["tool"], env={"PATH": f"{tmp_path}/a"}, timeout_s=WITHIN_S)
    missing = launcher.run(["tool"], env={"PATH": f"{tmp_path}/none"}, timeout_s=WITHIN_S)

    assert (found.returncode, found.stdout) == (0, b"b\n")
    assert (refused.returncode, refused.stdout) == (126, b"tool: Permission denied\n")
    assert (missing.returncode, missing.stdout) == (127, b"tool: No such file or directory\n")


def _forks_of(pid: int, least: int) -> list[int]:
    """Its child processes once there are so many: they are forked after a child was started."""
    deadline = time.monotonic() + WITHIN_S
    while len(found := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) < least:
        assert time.monotonic() < deadline
    return [int(one) for one in found]


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


@pytest.mark.parametrize("is_supervised", [True, False])
async def test_a_child_tells_the_id_of_its_own_process_and_one_that_did_not_start_tells_none(
    launcher: Launcher, is_supervised: bool
) -> None:
    told: list[int] = []
    async with asyncio.timeout(WITHIN_S):
        child = await ChildProcess.start(["sh", "-c", "echo $$"], launcher=launcher if is_supervised else None)
        child.when_started(told.append)
        said = int(await child.read())
        await child.wait()
        child.when_started(told.append)
        await child.stop()
        missing = await ChildProcess.start(["/nowhere/program"], launcher=launcher)
        missing.when_started(told.append)
        assert await missing.stop(grace_s=WITHIN_S) == 127

    assert told == [said, said]
    assert (child.pid == said) == (not is_supervised)
