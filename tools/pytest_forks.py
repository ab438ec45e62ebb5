"""A process that has imported pytest, its plugins and the libraries makai uses, and forks for every run of tests.

Most of a short run is imports. Nothing of makai is imported before the fork, so a changed file is always read again.
Each line on stdin is a JSON object (`Asked`), each line on stdout its answer (`Ended`). Tests end when stdin ends.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import select
import signal
import sys
import time
from contextlib import suppress

import msgspec
import pytest
from _pytest.config import default_plugins

LIBRARIES = ("asyncio", "sqlite3", "ssl", "aiohttp.web", "hypothesis.strategies", "rich.console", "click", "pydantic")
POLL_S = 0.02


class Asked(msgspec.Struct, frozen=True):
    """Run pytest with these arguments, and write what it prints to the file `output`."""

    arguments: tuple[str, ...]
    output: str
    timeout_s: float


class Ended(msgspec.Struct, frozen=True):
    """The exit code; None after the timeout."""

    code: int | None


def main() -> None:
    """Answer requests until stdin ends."""
    for name in (*(f"_pytest.{plugin}" for plugin in default_plugins), *LIBRARIES):
        with suppress(ImportError):
            importlib.import_module(name)
    for entry in importlib.metadata.entry_points(group="pytest11"):
        entry.load()
    while line := sys.stdin.buffer.readline():
        asked = msgspec.json.decode(line, type=Asked)
        pid = os.fork()
        if pid == 0:
            _run(asked)
        code = _waited(pid, asked.timeout_s)
        sys.stdout.buffer.write(msgspec.json.encode(Ended(code)) + b"\n")
        sys.stdout.buffer.flush()


def _run(asked: Asked) -> None:
    """In the child: the tests, with their own process group and no way to the pipes of the parent."""
    os.setsid()
    output = os.open(asked.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
    code = 3
    try:
        code = int(pytest.main(list(asked.arguments)))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _waited(pid: int, timeout_s: float) -> int | None:
    """The exit code of the child. It and what it started are ended after the timeout, or when stdin ends."""
    deadline = time.monotonic() + timeout_s
    is_asked_to_end = False
    try:
        while time.monotonic() < deadline and not is_asked_to_end:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            is_asked_to_end = bool(select.select([sys.stdin.buffer], [], [], POLL_S)[0])
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        if is_asked_to_end:
            sys.exit(0)


if __name__ == "__main__":
    main()
