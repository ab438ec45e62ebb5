"""Attempts to leave a workspace: spellings of paths, and a link that is swapped while files are opened."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from makai.tools.file_errors import FileRefused
from makai.tools.workspace import Workspace

SECRET = b"outside the root"
INSIDE = b"inside the root"
MAGIC = "/proc/self/root"
"""Not a link like others: the kernel jumps to whatever this process takes for `/`."""

_SWAPPER = """
import os, sys
root = sys.argv[1]
print("ready", flush=True)
while True:
    for kind in ("good", "bad"):
        os.symlink(kind, f"{root}/next")
        os.rename(f"{root}/next", f"{root}/flip")
    os.rename(f"{root}/folder", f"{root}/aside")
    os.symlink("../outside", f"{root}/folder")
    os.unlink(f"{root}/folder")
    os.rename(f"{root}/aside", f"{root}/folder")
"""


def spellings(outside: Path) -> list[str]:
    """Sixty-odd ways to write a path that does not lie beneath the root, or looks as if."""
    up = "../outside/secret"
    return [
        up, "../outside", "..", "../", "../..", "./../outside/secret", "inner/../../outside/secret",
        "inner/./.././../outside/secret", "inner//..//..//outside//secret", "../base/../outside/secret",
        "../../../../../../../../etc/passwd", "....//outside/secret", "....//....//outside/secret",
        "..../outside/secret", "..;/outside/secret", "%2e%2e/outside/secret", "%2e%2e%2foutside%2fsecret",
        "..%2foutside/secret", "..%252foutside/secret", "..%c0%afoutside/secret", "..\\outside\\secret",
        "..\\/outside/secret", "..\u2215outside\u2215secret", "..\uff0foutside/secret", "\uff0e\uff0e/outside/secret",
        "\u2024\u2024/outside/secret", "..\0/outside/secret", "inner/file\0/../../outside/secret",
        "..\n/outside/secret", ".. /outside/secret", " ../outside/secret", "../outside/secret ", "../outside/secret.",
        "C:\\outside\\secret", "C:/outside/secret", "\\\\server\\share\\secret", "//server/share/secret", "~",
        "~/secret", "~root/secret", "$HOME/secret", "${PWD}/../outside/secret", "file:///etc/passwd",
        f"file://{outside}/secret", str(outside / "secret"), f"/{outside}/secret",
        f"//{str(outside).lstrip('/')}/secret", f"{outside}/../outside/secret", "/etc/passwd", "/", "/.", "/..",
        f"{MAGIC}/etc/passwd", "/proc/self/cwd/../outside/secret", "/proc/self/environ", f"{MAGIC}/../etc/passwd",
        "/dev/fd/0", "/dev/stdin", "/dev/null", "/tmp/../etc/passwd", "cafe\u0301/../../outside/secret",
        "caf\u00e9/../../outside/secret", "a/" * 3000 + "x", "x" * 300, "../" * 2000 + "etc/passwd",
        "\ud800/../../outside/secret", "\udcff/../../outside/secret",
    ]  # fmt: skip


def make_root(base: Path) -> tuple[Path, Path]:
    """A root with a file and a folder in it, and a folder beside it that holds a secret."""
    root, outside = base / "base", base / "outside"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "file").write_bytes(INSIDE)
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (outside / SECRET.decode()).write_bytes(SECRET)  # seen in a listing, too, it tells where one is
    return root, outside


class RaceReport(msgspec.Struct, frozen=True):
    tries: int
    outside: int
    inside: int
    refused: int


def race(base: Path, tries: int) -> RaceReport:
    """Read, write and list through a link and a folder that another process swaps all the time."""
    root, outside = make_root(base)
    (root / "good").write_bytes(INSIDE)
    (root / "folder").mkdir()
    (root / "folder" / "secret").write_bytes(INSIDE)
    os.symlink("../outside/secret", root / "bad")
    workspace = Workspace([root])
    attempts: list[Callable[[], bytes]] = [
        lambda: content(workspace, "flip"),
        lambda: content(workspace, "folder/secret"),
        lambda: _names(workspace, "folder"),
        lambda: _written(workspace, "folder/secret"),
    ]
    counts = {"outside": 0, "inside": 0, "refused": 0}
    with _swapping(root):
        for number in range(tries):
            try:
                # A write waits for the disk: one in ten is enough.
                got = attempts[3 if number % 10 == 0 else number % 3]()
            except FileRefused:
                counts["refused"] += 1
            else:
                counts["outside" if SECRET in got else "inside"] += 1
    return RaceReport(tries, counts["outside"] + changes(outside), counts["inside"], counts["refused"])


def changes(outside: Path) -> int:
    """How many files beside the root are not as `make_root` left them."""
    found = {path.name: path.read_bytes() for path in outside.iterdir()}
    return len(found.items() ^ {"secret": SECRET, SECRET.decode(): SECRET}.items())


def content(workspace: Workspace, path: str) -> bytes:
    with workspace.open_read(path) as file:
        return file.read()


def _names(workspace: Workspace, path: str) -> bytes:
    return b"\n".join(entry.name.encode() for entry in workspace.entries(path))


def _written(workspace: Workspace, path: str) -> bytes:
    with workspace.open_write(path) as file:
        file.write(INSIDE)
    return INSIDE


@contextmanager
def _swapping(root: Path) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", _SWAPPER, str(root)], stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        try:
            yield
        finally:
            swapper.kill()
