"""Keeps the upstream and the clients off each other's cores.

Left to itself the scheduler sometimes puts a client on the core of the upstream that wakes it. Its wake-ups are then
cheaper and its first delta waits until the upstream has written all it can, and neither is so with a real, remote one.
"""

from __future__ import annotations

import os
from typing import Literal


def take_core(role: Literal["upstream", "client"]) -> None:
    """Pin this process where that is possible: the upstream to the last core, clients to the others."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[-1:] if role == "upstream" else cores[:-1])
