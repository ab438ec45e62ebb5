"""Standard streams: nothing but frames on them, whatever they are connected to; and the child on the other end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvloop

from makai.core.errors import ChannelClosed, TransportError
from makai.transports import stdio_child
from makai.transports.channel import Oversized
from makai.transports.stdio import READY, StdioChannel
from makai.transports.stdio_child import spawn_stdio

SOURCE = Path(__file__).resolve().parents[3] / "src"
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Run: TypeAlias = Callable[[Coroutine[Any, Any, object]], object]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}

ECHO_SERVER = """
    import asyncio, os, subprocess, sys
    from makai.transports.stdio import READY, StdioChannel, claim_stdio

    streams = claim_stdio()

    async def main():
        channel = StdioChannel(*streams)
        print("a stray print")
        sys.__stdout__.write("another one\\n"); sys.__stdout__.flush()
        os.write(1, b"one from C\\n")
        subprocess.run([sys.executable, "-c", "print('one from a child', input('?') if 0 else '')"], check=True)
        stolen = subprocess.run([sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"], check=True)
        await channel.send([READY])
        while (frame := await channel.receive()) is not None:
            print("got", len(frame))
            await channel.send([frame])
        await channel.close()

    asyncio.run(main())
"""


def python(program: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(program)]


@contextlib.contextmanager
def file_with(content: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield os.dup(file.fileno())


def nothing() -> int:
    return os.open(os.devnull, os.O_RDWR)


@pytest.mark.req("MK-TRANS-002", "MK-TRANS-003")
def test_only_frames_reach_standard_output_whatever_else_is_printed() -> None:
    finished = subprocess.run(
        python(ECHO_SERVER), input=b'{"a":1}\r\n\n  \n{"b":2}', capture_output=True, env=ENVIRONMENT, timeout=50
    )

    assert finished.stdout == READY + b'\n{"a":1}\n{"b":2}\n'
    assert finished.stderr.splitlines() == [
        *[b"a stray print", b"another one", b"one from C", b"one from a child ", b"0", b"got 7", b"got 7"]
    ]
    assert finished.returncode == 0


def test_closed_standard_streams_are_a_clear_error() -> None:
    program = "from makai.transports.stdio import claim_stdio\nclaim_stdio()"
    finished = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -c '{program}' <&-"], capture_output=True, env=ENVIRONMENT, timeout=50
    )

    assert b"Standard input or output is closed." in finished.stderr


@LOOPS
@pytest.mark.req("MK-TRANS-002")
def test_a_file_is_read_to_its_end(run: Run) -> None:
    async def read_file() -> list[object]:
        with file_with(b'{"a":1}\r\n\n \t\r\n{"b":\t2}\nlast') as input:
            channel = StdioChannel(input, nothing())
            try:
                return [await channel.receive() for _ in range(5)]
            finally:
                await channel.close()

    assert run(read_file()) == [b'{"a":1}', b'{"b":\t2}', b"last", None, None]


@LOOPS
def test_the_null_device_is_an_empty_input_and_takes_every_output(run: Run) -> None:
    async def use_nothing() -> object:
        channel = StdioChannel(nothing(), nothing())
        await channel.send([b"x" * 1_000_000])
        received = await channel.receive()
        await channel.close()
        return received

    assert run(use_nothing()) is None


@LOOPS
def test_a_terminal_works_and_gets_its_mode_back(run: Run) -> None:
    async def use_terminal() -> tuple[object, bytes, bool]:
        master, terminal = pty.openpty()
        try:
            os.write(master, b"typed\n")
            channel = StdioChannel(os.dup(terminal), os.dup(terminal))
            received = await channel.receive()
            await channel.send([b"shown"])
            await channel.close()
            shown = b""
            while not shown.endswith(b"shown\r\n"):
                shown += os.read(master, 100)
            return received, shown, os.get_blocking(terminal)
        finally:
            os.close(master)
            os.close(terminal)

    assert run(use_terminal()) == (b"typed", b"typed\r\nshown\r\n", True)


async def test_a_pipe_gets_its_mode_back() -> None:
    reading, writing = os.pipe()
    kept = os.dup(writing)
    channel = StdioChannel(nothing(), writing)
    during = os.get_blocking(kept)
    await channel.close()

    assert (during, os.get_blocking(kept)) == (False, True)
    os.close(kept)
    os.close(reading)


async def test_the_end_of_the_input_is_told_while_frames_still_wait_to_be_received() -> None:
    reading, writing = os.pipe()
    ended = asyncio.Event()
    channel = StdioChannel(reading, nothing(), on_end=ended.set)
    os.write(writing, b"1\n2\n")
    os.close(writing)
    async with asyncio.timeout(10):
        await ended.wait()
        received = [await channel.receive() for _ in range(3)]
    await channel.close()

    assert received == [b"1", b"2", None]


@LOOPS
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_the_end_of_the_input_is_told_while_too_much_waits_to_be_received(run: Run, kind: str) -> None:
    """Nothing is received, so reading pauses before the end of the input is reached."""

    async def told() -> None:
        reading, writing = os.pipe() if kind == "pipe" else (end.detach() for end in socket.socketpair())
        os.set_blocking(writing, False)
        ended = asyncio.Event()
        channel = StdioChannel(reading, nothing(), on_end=ended.set)
        sent: list[bytes] = []
        refused = 0
        async with asyncio.timeout(10):
            while refused < 10:
                line = b"%0999d\n" % len(sent)
                try:
                    os.write(writing, line)
                    sent.append(line[:-1])
                    refused = 0
                except BlockingIOError:
                    refused += 1
                await asyncio.sleep(0)
            is_early = ended.is_set()
            os.close(writing)
            await ended.wait()
            received = [await channel.receive() for _ in range(len(sent) + 1)]
        await channel.close()
        assert (is_early, received) == (False, [*sent, None])

    run(told())


async def test_a_sender_cancelled_in_the_middle_of_a_frame_leaves_it_whole() -> None:
    reading, writing = os.pipe()
    sender, receiver = StdioChannel(nothing(), writing), StdioChannel(reading, nothing())
    large = b'"' + b"x" * 1_000_000 + b'"'
    sending = asyncio.create_task(sender.send([large]))
    await asyncio.sleep(0)
    sending.cancel()
    later = asyncio.create_task(sender.send([b"2"]))
    received = [await receiver.receive(), await receiver.receive()]
    await later
    await asyncio.gather(sender.close(), receiver.close())

    assert sending.cancelled()
    assert received == [large, b"2"]


async def test_a_writer_learns_that_its_reader_has_gone() -> None:
    reading, writing = os.pipe()
    channel = StdioChannel(nothing(), writing)
    blocked = asyncio.create_task(channel.send([b"x" * 1_000_000]))
    await asyncio.sleep(0)
    os.close(reading)

    with pytest.raises(ChannelClosed):
        await blocked
    with pytest.raises(ChannelClosed):
        await channel.send([b"more"])
    await channel.close()


@pytest.mark.req("MK-TRANS-003", "MK-TRANS-004")
async def test_a_child_server_answers_and_ends_with_its_input() -> None:
    channel = await spawn_stdio(python(ECHO_SERVER), ENVIRONMENT)
    large = b'"' + b"x" * 5_000_000 + b'"'
    sending = asyncio.create_task(channel.send([b'{"a":1}', large, '"\u2028"'.encode()]))
    received = [await channel.receive() for _ in range(3)]
    await sending
    await channel.close()
    await channel.close()

    assert received == [b'{"a":1}', large, '"\u2028"'.encode()]
    assert await channel.receive() is None
    with pytest.raises(ChannelClosed):
        await channel.send([b"1"])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'no such option: --stdio' >&2; exit 2",
            "ended before its ready line. It said:\nno such option: --stdio",
        ),
        ("echo hello; cat", "sent b'hello' instead of its ready line."),
        ("""echo '{"type":"ready","protocol_version":"7"}'; cat""", "speaks protocol version '7', not '1'."),
        ("echo thinking >&2; exec sleep 60", "sent no ready line within 0.5 s. It said:\nthinking"),
        ("head -c 3000000 /dev/zero | tr '\\0' x; cat", "sent no ready line first."),
    ],
    ids=["ended", "noise", "version", "silence", "flood"],
)
async def test_a_child_that_does_not_get_ready_says_why(script: str, message: str) -> None:
    with pytest.raises(TransportError) as failed:
        await spawn_stdio(["sh", "-c", script], ready_deadline_s=0.5, max_frame_bytes=1_000_000)

    assert failed.value.message == f"The server process {message}"


async def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(TransportError, match=r"no-such-makai could not be started: No such file or directory\."):
        await spawn_stdio(["no-such-makai", "stdio"])


async def test_a_child_that_ignores_everything_is_killed_with_all_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_child, "EXIT_GRACE_S", 0.1)
    ready = READY.decode()
    script = f"trap '' TERM; sleep 60 & echo '{ready}'; echo \"[$$, $!]\"; while :; do sleep 60; done"
    channel = await spawn_stdio(["sh", "-c", script])
    said = await channel.receive()
    assert isinstance(said, bytes)
    await channel.close()

    deadline = time.monotonic() + 5  # the kernel takes a moment to end what was killed
    for process in map(int, said.strip(b"[]").split(b",")):
        while is_running(process) and time.monotonic() < deadline:
            os.sched_yield()
        assert not is_running(process)


def is_running(process: int) -> bool:
    """Whether the process does anything: one that only waits to be collected does not."""
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_an_oversized_line_costs_no_memory_and_no_connection() -> None:
    reading, writing = os.pipe()
    receiver, sender = StdioChannel(reading, nothing(), max_frame_bytes=1000), StdioChannel(nothing(), writing)
    sending = asyncio.create_task(sender.send([b"1", b"x" * 5_000_000, b"2"]))
    received = [await receiver.receive() for _ in range(3)]
    await sending
    await asyncio.gather(sender.close(), receiver.close())

    assert received == [b"1", Oversized(1000, b"x" * 4096), b"2"]
