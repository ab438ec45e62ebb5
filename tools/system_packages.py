"""Installs the programs that some tests need and pip does not have.

In: `python tools/system_packages.py [test|faults|bench]`, as the targets of these names run it. Out: nothing when all
are there. As root on a system with apt, the missing ones are installed; anywhere else each one gets a line that begins
with SKIPPED and says which tests will not run. It never fails: a developer without root can still run all other tests.

A new need is a row in `NEEDED`, or in `FAULTS_NEEDED` when only `make faults` has it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple


class Need(NamedTuple):
    """A package, the programs that show it is there, and what goes untested without it."""

    package: str
    programs: tuple[str, ...]
    untested: str


POSTGRESQL = Need("postgresql", ("pg_ctlcluster",), "sessions in PostgreSQL")

NEEDED = (
    Need("bubblewrap", ("bwrap",), "the bubblewrap sandbox"),
    Need("strace", ("strace",), "that allowed commands start and write nothing else"),
    Need("ripgrep", ("rg",), "the harmless options of rg"),
    Need("fd-find", ("fd", "fdfind"), "the harmless options of fd"),
    Need("tree", ("tree",), "the harmless options of tree"),
    Need("gawk", ("gawk",), "the harmless options of gawk"),
    Need("jq", ("jq",), "the harmless options of jq"),
    Need("sqlite3", ("sqlite3",), "the harmless options of sqlite3"),
    Need("xxd", ("xxd",), "the harmless options of xxd"),
    Need("file", ("file",), "the harmless options of file"),
    Need("bsdextrautils", ("hexdump",), "the harmless options of hexdump and column"),
    Need("zip", ("zip",), "the harmless options of unzip"),
    Need("unzip", ("unzip",), "the harmless options of unzip"),
    Need("zsh", ("zsh",), "completion in zsh"),
    Need("fish", ("fish",), "completion in fish"),
    Need("man-db", ("man",), "the manual page"),
    POSTGRESQL,
    Need("chromium", ("chromium", "chromium-browser", "google-chrome"), "the page in a real browser"),
)

FAULTS_NEEDED = (
    *NEEDED,
    Need("etcd-server", ("etcd",), "failover of PostgreSQL"),
    # It depends on python3-etcd and python3-psycopg2, which have no programs of their own.
    Need("patroni", ("patroni",), "failover of PostgreSQL"),
    Need("nginx-light", ("nginx", "/usr/sbin/nginx"), "nodes behind a load balancer"),
    Need("iproute2", ("ip",), "networks that are cut between nodes and their database"),
)

NEEDED_BY = {"test": NEEDED, "faults": FAULTS_NEEDED, "bench": (POSTGRESQL,)}


def missing(needed: Iterable[Need] = NEEDED) -> list[Need]:
    """Those of which no program is found."""
    return [need for need in needed if not any(map(shutil.which, need.programs))]


def install(packages: list[str]) -> str:
    """By apt, as root. What went wrong, or nothing."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return "only root may install packages"
    print(f"Installing {', '.join(packages)} for the tests ...", flush=True)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    said = ""
    # The lists of packages are fetched only when they are too old or missing: that takes longest.
    for command in (["install"], ["update"], ["install"]):
        names = packages if command == ["install"] else []
        done = subprocess.run(
            ["apt-get", "-qq", "-y", "--no-install-recommends", *command, *names],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stderr.strip()
        if command == ["install"] and done.returncode == 0:
            return ""
    return said.splitlines()[-1] if said else "apt-get failed"


def main(needed: Iterable[Need] = NEEDED) -> None:
    absent = missing(needed)
    if not absent:
        return
    problem = install([need.package for need in absent])
    for need in missing(absent):
        print(f"SKIPPED: {need.package} is not installed ({problem}); not tested: {need.untested}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Install the programs that tests need.")
    parser.add_argument("target", nargs="?", choices=NEEDED_BY, default="test")
    main(NEEDED_BY[parser.parse_args().target])
