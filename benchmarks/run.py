"""The one entry to all benchmarks: `python benchmarks/run.py [stream|startup|all] [--quick]`.

Writes `benchmarks/results/`, except with `--quick`, which only prints. `make bench` installs what is compared and calls
this. Nothing fails because of a missed bar.
"""

from __future__ import annotations

import argparse
import sys

import startup.bench
import stream.bench
from machine import PEERS_PYTHON


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description="Compare makai's speed and memory with other libraries.")
    parser.add_argument("what", nargs="?", choices=("stream", "startup", "all"), default="all")
    parser.add_argument("--quick", action="store_true", help="one pass, fewer clients, nothing written")
    arguments = parser.parse_args()
    if not PEERS_PYTHON.exists():
        sys.exit("The libraries to compare with are not installed: run `make bench`, or see benchmarks/README.md.")
    if arguments.what in ("startup", "all"):
        startup.bench.run(quick=arguments.quick)
    if arguments.what in ("stream", "all"):
        stream.bench.run(quick=arguments.quick)


if __name__ == "__main__":
    main()
