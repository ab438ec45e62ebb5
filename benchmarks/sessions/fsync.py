"""How long this disk takes to make 4 KB durable, while something else is measured on it.

In: a folder and for how long. Out: the times in milliseconds as JSON on stdout. A process of its own, so that neither
waits for the other's interpreter; ten times a second, so that it hardly competes for the disk.

Run as `python -m sessions.fsync <folder> <seconds>`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from stream.cores import take_core

EVERY_S = 0.1


def measure(folder: Path, seconds: float) -> list[float]:
    """Append, fsync, wait; again and again."""
    times = []
    until = time.monotonic() + seconds
    with open(folder / "fsync-probe", "wb", buffering=0) as file:
        while time.monotonic() < until:
            file.write(os.urandom(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(EVERY_S)
    return times


if __name__ == "__main__":
    take_core("upstream")
    print(json.dumps(measure(Path(sys.argv[1]), float(sys.argv[2]))))
