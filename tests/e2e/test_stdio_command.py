"""`makai stdio` as a program starts it."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from support.wire import ask, encode, envelope


@pytest.mark.req("MK-TRANS-001", "MK-ENV-002")
@pytest.mark.parametrize("spelling", ["stdio", "--stdio"])
def test_the_first_line_is_ready_before_any_input(spelling: str) -> None:
    command = [sys.executable, "-m", "makai", spelling]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == b'{"type":"ready","protocol_version":"1"}\n'
        server.stdin.write(encode(envelope("ping")) + b"\r\n\n  \n")
        server.stdin.flush()
        assert msgspec.json.decode(server.stdout.readline())["type"] == "pong"
        server.stdin.close()
        assert server.stdout.read() == b""
        assert server.wait(10) == 0


@pytest.mark.req("MK-TRANS-005")
def test_the_end_of_input_ends_the_server_while_a_stream_runs() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "makai", "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        server.stdin.write(encode(ask()) + b"\n")
        server.stdin.close()
        assert server.wait(10) == 0
