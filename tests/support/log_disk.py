"""A real file system in a file, whose power can be cut and whose space can run out. Needs root and loop devices."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

# _IOR('X', 125, __u32) with EXT4_GOING_FLAGS_NOLOGFLUSH: the file system stops at once, its journal is not written.
_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_DEADLINE_S = 60.0


class Disk:
    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self.folder = folder

    def fill(self) -> Path:
        """Leave no space; returns the file that takes it."""
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 512, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
        return ballast

    def cut_power(self) -> None:
        """What is not on the disk now never gets there."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def reattach(self) -> None:
        """Power is back: mount again, which replays the journal.

        It is a copy that is mounted: while any other mount namespace of this machine still holds the old file system,
        mounting the same image again would give us that one, and it is dead.
        """
        self.detach()
        copy = self._image.with_name(f"{self._image.name}.copy")
        _run("cp", "--sparse=always", str(self._image), str(copy))
        copy.replace(self._image)
        self.attach()

    def attach(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def detach(self) -> None:
        _run("umount", str(self.folder))


@contextmanager
def mounted_disk(place: Path, *, megabytes: int) -> Iterator[Disk]:
    """A fresh one, or a skip that says why there is none."""
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or not Path("/dev/loop-control").exists():
        pytest.skip(f"power cuts need root, loop devices and e2fsprogs (root: {os.geteuid() == 0}, missing: {missing})")
    image, folder = place / "disk.img", place / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes * 1024 * 1024)
    _run("mkfs.ext4", "-q", "-F", str(image))
    disk = Disk(image, folder)
    try:
        disk.attach()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device can be mounted here: {error.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        with suppress(subprocess.CalledProcessError):
            _run("umount", "--lazy", str(folder))  # whatever still has a file open there


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_DEADLINE_S)
