"""The one entry to all benchmarks: `python benchmarks/run.py [<name of one>|all] [--quick]`.

Writes `benchmarks/results/`, except with `--quick`, which only prints. `make bench` installs what is compared and calls
this. Nothing fails because of a missed bar.
"""

from __future__ import annotations

import argparse
import sys

import acp.bench
import agent.bench
import cluster.bench
import commands.bench
import fanout.bench
import gateway.bench
import proxy.bench
import sessions.bench
import startup.bench
import stream.bench
from machine import PEERS_PYTHON

BENCHMARKS = {
    "startup": startup.bench.run,
    "proxy": proxy.bench.run,
    "stream": stream.bench.run,
    "gateway": gateway.bench.run,
    "sessions": sessions.bench.run,
    "fanout": fanout.bench.run,
    "agent": agent.bench.run,
    "commands": commands.bench.run,
    "acp": acp.bench.run,
    "cluster": cluster.bench.run,
}


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description="Compare makai's speed and memory with other libraries.")
    parser.add_argument("what", nargs="?", choices=(*BENCHMARKS, "all"), default="all")
    parser.add_argument("--quick", action="store_true", help="one pass, fewer clients, nothing written")
    arguments = parser.parse_args()
    if not PEERS_PYTHON.exists() and arguments.what != "cluster":
        sys.exit("The libraries to compare with are not installed: run `make bench`, or see benchmarks/README.md.")
    for name, run in BENCHMARKS.items():
        if arguments.what in (name, "all"):
            print(f"--- {name}")
            run(quick=arguments.quick)


if __name__ == "__main__":
    main()
