"""Figures of this process, read from the operating system when the metrics are asked for. Where there is no `/proc`
they are left out."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import threading
import time
from contextlib import suppress
from pathlib import Path

from makai.core.version import __version__
from makai.server.metrics_registry import Gauge, Info, Metric, ReadCounter


def process_metrics() -> list[Metric]:
    started = time.time()
    facts = {"version": __version__, "python": platform.python_version()}
    return [
        Info("makai_build_info", "The version of makai that runs.", facts),
        Gauge("makai_tasks", "Tasks of the event loop.", lambda: len(asyncio.all_tasks())),
        Gauge("makai_threads", "Threads of Python.", threading.active_count),
        Gauge("process_start_time_seconds", "When the process started, in Unix seconds.", lambda: started),
        ReadCounter("process_cpu_seconds_total", "CPU time of the process.", time.process_time),
        Gauge("process_resident_memory_bytes", "Memory that is in RAM.", _resident_bytes),
        Gauge("process_open_fds", "Open file descriptors.", _open_descriptors),
        Gauge("process_max_fds", "How many may be open.", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]


def _resident_bytes() -> float | None:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _open_descriptors() -> float | None:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return None
