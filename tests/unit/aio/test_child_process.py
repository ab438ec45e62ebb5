"""Child processes: lines in and out, bounded, started whole and always ended with all they started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machine import open_descriptors
from support.orphan_trials import processes_with

from makai.aio import child_process
from makai.aio.child_process import STDERR_KEPT_BYTES, ChildProcess, LineSplitter, OversizedLine, kill_children
from makai.core.errors import TransportError
from makai.tools.launching import launcher

SOURCE = str(Path(__file__).resolve().parents[3] / "src")
LAUNCHER = launcher()
WITHIN_S = 60.0
MOMENTS = 8
STUBBORN = "trap '' TERM; : {mark}; while :; do sleep 0.05; done"
KINDS = pytest.mark.parametrize("supervised", [False, True], ids=["plain", "supervised"])


@pytest.fixture
def mark() -> str:
    """Stands in the command lines of the processes of one test."""
    return f"makai-{uuid.uuid4().hex}"


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").strip(b"\r"))), st.data())
def test_lines_come_out_as_they_went_in_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"unfinished"
    splitter = LineSplitter(100)
    seen: list[bytes | OversizedLine] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += splitter.feed(stream[:size])
        stream = stream[size:]

    assert seen == [line for line in lines if line]


@given(st.binary(min_size=1500, max_size=4000).map(lambda line: line.replace(b"\n", b".")), st.integers(1, 999))
def test_of_a_line_that_is_too_long_its_ends_are_kept(line: bytes, step: int) -> None:
    splitter = LineSplitter(1000)
    stream = line + b"\nnext\n"
    seen = [one for start in range(0, len(stream), step) for one in splitter.feed(stream[start : start + step])]

    assert seen == [OversizedLine(len(line), line[:512], line[-512:]), b"next"]


def test_empty_lines_and_carriage_returns_mean_nothing() -> None:
    assert LineSplitter(100).feed(b"\n\r\na\r\n\n") == [b"a"]


@KINDS
async def test_a_child_answers_in_its_folder_and_environment_to_the_end(tmp_path: Path, supervised: bool) -> None:
    script = 'echo "$PWD $GIVEN"; while read -r line; do echo "got $line"; done; echo bye >&2; exit 3'
    child = await ChildProcess.start(
        ["/bin/bash", "-c", script],
        env={"GIVEN": "this", "PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
        launcher=LAUNCHER if supervised else None,
    )
    await child.write(b"one\ntwo\n")
    lines = child.lines(1000)
    seen = [await anext(lines) for _ in range(3)]
    code = await child.stop(grace_s=WITHIN_S)

    assert (seen, code) == ([f"{tmp_path} this".encode(), b"got one", b"got two"], 3)
    assert (child.stderr_tail, child.exit_code, child.has_ended) == ("bye\n", 3, True)
    assert await child.read() == b""
    with pytest.raises(TransportError):
        await child.write(b"more\n")


@KINDS
async def test_writers_wait_for_a_child_that_does_not_read_and_their_lines_stay_whole(supervised: bool) -> None:
    child = await ChildProcess.start(["/bin/cat"], launcher=LAUNCHER if supervised else None)
    line = b"x" * 700_000 + b"\n"
    writing = [asyncio.create_task(child.write(line)) for _ in range(3)]
    done, _ = await asyncio.wait(writing, timeout=0.2)
    assert not done  # nothing reads what cat writes, so cat does not read either
    writing[0].cancel()
    lines = child.lines(1_000_000)
    seen = [await asyncio.wait_for(anext(lines), WITHIN_S) for _ in range(3)]
    await asyncio.gather(*writing, return_exceptions=True)
    await child.stop()

    assert seen == [line[:-1]] * 3
    assert writing[0].cancelled()


async def test_only_the_end_of_what_it_says_on_standard_error_is_kept() -> None:
    child = await ChildProcess.start(["/bin/sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo end >&2"])
    await child.wait_for_errors(WITHIN_S)
    child.note(b"noted")
    await child.stop()

    assert child.stderr_tail == "x" * (STDERR_KEPT_BYTES - 10) + "end\nnoted\n"


async def test_output_and_errors_can_come_in_one_stream() -> None:
    child = await ChildProcess.start(
        ["/bin/sh", "-c", "echo one; echo two >&2; cat; echo three"], takes_input=False, merge_stderr=True
    )
    seen = b""
    while chunk := await child.read():
        seen += chunk

    assert (seen, await child.stop()) == (b"one\ntwo\nthree\n", 0)


@KINDS
async def test_a_child_that_ignores_everything_is_killed_with_all_it_started(mark: str, supervised: bool) -> None:
    script = f'trap "" TERM; bash -c "{STUBBORN.format(mark=mark)}" & echo ready; {STUBBORN.format(mark=mark)}'
    child = await ChildProcess.start(["/bin/bash", "-c", script], launcher=LAUNCHER if supervised else None)
    assert await anext(child.lines(100)) == b"ready"
    stops = [asyncio.create_task(child.stop(grace_s=0.1, term_grace_s=0.1)) for _ in range(2)]
    codes = await asyncio.gather(*stops)

    assert codes == ([128 + signal.SIGKILL] * 2 if supervised else [-signal.SIGKILL] * 2)
    assert vanished(mark) == []


@KINDS
async def test_the_grace_of_all_children_ends_when_the_process_has_to_exit(
    mark: str, supervised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the children of this test: this process may also have a model server that other tests ask.
    monkeypatch.setattr(child_process, "_running", weakref.WeakSet())
    script = f"trap '' TERM; echo ready; {STUBBORN.format(mark=mark)}"
    child = await ChildProcess.start(["/bin/bash", "-c", script], launcher=LAUNCHER if supervised else None)
    assert await anext(child.lines(100)) == b"ready"
    stop = asyncio.create_task(child.stop(grace_s=3_600.0))
    await asyncio.sleep(0)
    kill_children()

    async with asyncio.timeout(WITHIN_S):
        assert await stop == (128 + signal.SIGKILL if supervised else -signal.SIGKILL)
    assert vanished(mark) == []


async def test_nothing_that_left_the_group_of_a_supervised_child_survives_it(mark: str) -> None:
    script = f'setsid bash -c "{STUBBORN.format(mark=mark)}" & echo ready; exec sleep 600'
    child = await ChildProcess.start(["/bin/bash", "-c", script], launcher=LAUNCHER)
    assert await anext(child.lines(100)) == b"ready"
    child.kill()
    child.kill()
    await child.stop()

    assert vanished(mark) == []


async def test_a_supervised_child_ends_when_its_owner_is_killed(mark: str) -> None:
    owner = f"""if True:
        import asyncio
        from makai.aio.child_process import ChildProcess
        from makai.aio.launcher import Launcher
        async def main():
            command = ["/bin/bash", "-c", "echo; {STUBBORN.format(mark=mark)}"]
            child = await ChildProcess.start(command, launcher=Launcher({{}}))
            await child.read()
            print("ready", flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
    """
    child = await ChildProcess.start([sys.executable, "-c", owner], env={**os.environ, "PYTHONPATH": SOURCE})
    assert await asyncio.wait_for(anext(child.lines(100)), 60) == b"ready"
    os.kill(child.pid, signal.SIGKILL)
    await child.stop()

    assert vanished(mark) == []


@KINDS
async def test_a_folder_that_is_missing_is_an_error(supervised: bool) -> None:
    with pytest.raises(FileNotFoundError):
        await ChildProcess.start(["true"], cwd="/no/such/folder", launcher=LAUNCHER if supervised else None)


async def test_a_missing_program_is_an_error_or_the_exit_code_of_the_supervisor() -> None:
    with pytest.raises(FileNotFoundError):
        await ChildProcess.start(["no-such-program"])
    child = await ChildProcess.start(["no-such-program"], launcher=LAUNCHER)
    await child.wait_for_errors(WITHIN_S)

    assert (await child.stop(), child.stderr_tail) == (127, "no-such-program: No such file or directory\n")


@KINDS
@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_start_that_is_cancelled_at_any_moment_leaves_no_process(
    tmp_path: Path, mark: str, cancels: int, supervised: bool
) -> None:
    before = open_descriptors()
    for turns in range(MOMENTS):
        await cancelled_start(mark, turns, cancels, cwd=str(tmp_path), launcher=LAUNCHER if supervised else None)

    assert vanished(mark) == []
    assert len(open_descriptors() - before) <= 1  # the event loop's own watch of its children, made once


async def test_a_start_that_is_cancelled_is_told_as_cancelled() -> None:
    starting = asyncio.create_task(ChildProcess.start(["true"], launcher=LAUNCHER))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def cancelled_start(mark: str, turns: int, cancels: int, **options: Any) -> None:
    """Cancel a start after some turns of the event loop, more than once if asked to."""
    command = ["/bin/bash", "-c", STUBBORN.format(mark=mark)]
    starting = asyncio.create_task(ChildProcess.start(command, env={"PATH": os.environ["PATH"]}, **options))
    for _ in range(turns):
        await asyncio.sleep(0)
    hold_up_the_loop(mark)
    for _ in range(cancels):
        starting.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([starting], timeout=WITHIN_S)
    if not starting.cancelled():
        await starting.result().stop()


def hold_up_the_loop(mark: str, most_s: float = 0.3) -> None:
    """Let nothing of ours run until the command does, or could have started."""
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline and not any(line.startswith("/bin/bash") for line in processes_with(mark)):
        pass


def vanished(mark: str) -> list[str]:
    """The processes with a mark that are left once the kernel had the moment it needs."""
    deadline = time.monotonic() + WITHIN_S
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        os.sched_yield()
    return left
