"""What tests measure, and how busy this machine is: bars on measured time hold on a quiet one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

RecordMeasure: TypeAlias = Callable[[str, str, str], None]
Descriptors: TypeAlias = frozenset[tuple[str, str]]


def open_descriptors() -> Descriptors:
    """The descriptors of this process with what they refer to. What is new is `after - before`: a number alone falls
    when an object that an earlier test left is collected in between."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return frozenset(found)


def slack() -> float:
    """What to multiply a bar with: 1 on a quiet machine, more where tasks compete for the cores."""
    with open("/proc/loadavg", encoding="ascii") as found:
        last_minute, _, _, tasks, _ = found.read().split()
    runnable = max(float(last_minute), int(tasks.partition("/")[0]))
    return max(1.0, 3 * runnable / (os.cpu_count() or 1))
