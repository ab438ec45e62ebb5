"""Folders for tests that need a particular place."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ("/tmp", "/var/tmp", "/dev/shm")
"""A sandbox replaces these as a whole, so an attack on what is in them proves nothing."""


@contextmanager
def folder_outside_tmp() -> Iterator[Path]:
    """A new folder that a confined command sees, also where the home folder and the checkout are below /tmp."""
    for place in (Path.home(), ROOT.parent, Path("/opt"), Path("/srv"), Path("/var/lib"), Path("/")):
        if os.access(place, os.W_OK) and not any(place.resolve().is_relative_to(shared) for shared in SHARED):
            with tempfile.TemporaryDirectory(prefix=".makai-test-", dir=place) as folder:
                yield Path(folder)
            return
    pytest.skip("no folder outside /tmp can be written to: the sandbox was NOT tested")


@contextmanager
def umask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
