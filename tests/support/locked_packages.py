"""Packages that only a test needs: installed on first use from a lock file of their own, or the test is skipped."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

BUILD: Final = Path(__file__).resolve().parents[2] / "build"
INSTALL_S: Final = 300


def locked_packages(lock: Path, folder: str, what: str) -> Path:
    """The folder below `build` to put into PYTHONPATH. What the packages need beside it is installed with makai."""
    target = BUILD / folder
    with held(lock):
        installed = target / lock.name
        if not installed.is_file() or installed.read_bytes() != lock.read_bytes():
            shutil.rmtree(target, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            command += ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--target", str(target)]
            install([*command, "-r", str(lock)], lock.parent, what)
            installed.write_bytes(lock.read_bytes())
    return target


@contextmanager
def held(lock: Path) -> Iterator[Path]:
    """pytest runs several workers, and each would install."""
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lock


def install(command: Sequence[str], folder: Path, what: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: {what} could not be installed: {done.stderr.strip()[-300:]}")
