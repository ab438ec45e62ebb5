"""CPU time and memory of a server and everything it started, from /proc.

In: a process id. Out: numbers. Linux only: nothing else tells them of a process that is not ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def tree(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from tree(int(child))


def cpu_seconds(pid: int) -> float:
    """User and system time so far of all threads of the tree, to the nanosecond (`schedstat`)."""
    total = 0
    for member in tree(pid):
        with suppress(OSError):
            for task in Path(f"/proc/{member}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def peak_rss_mb(pid: int) -> float:
    """Peak resident memory of the tree."""
    total = 0
    for member in tree(pid):
        with suppress(OSError):
            status = Path(f"/proc/{member}/status").read_text()
            total += int(status.split("VmHWM:")[1].split()[0])
    return total / 1024
