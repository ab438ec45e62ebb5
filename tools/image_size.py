"""Adds up what the layers of the Docker image hold, from the packages that are installed here: for machines without
Docker. Fails above the bar of 250 MB. Python files of packages are counted as they are unpacked, makai's own also
compiled, as the Dockerfile does it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from tools.lock import ROOT
from tools.release_checks import table
from tools.sbom import closure

BAR_MB: Final = 250
BASE_MB: Final = 125
"""An estimate of python:3.13-slim, not read from a registry: 75 MB of Debian (minbase without manuals, measured)
and about 50 MB of Python without its tests."""
BUBBLEWRAP_MB: Final = 1
"""The program and libcap, with the notes that dpkg keeps."""
COMPILED: Final = 1.8
"""Bytes of compiled files per byte of Python source, measured on makai itself and rounded up."""


def package_bytes(distribution: importlib.metadata.Distribution) -> int:
    """The files of a package that its wheel has: not what Python compiled since."""
    paths = [file.locate() for file in distribution.files or () if not str(file).endswith(".pyc")]
    return sum(Path(str(path)).stat().st_size for path in paths if Path(str(path)).is_file())


def makai_bytes(root: Path) -> int:
    files = [path for path in (root / "src/makai").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sum(int(path.stat().st_size * (1 + COMPILED if path.suffix == ".py" else 1)) for path in files)


def layers(installed: Mapping[str, importlib.metadata.Distribution], root: Path) -> dict[str, float]:
    """Megabytes by layer; the runtime of the local model is one of its own, because it is optional.
    What a store in PostgreSQL needs is counted."""
    needed = closure("makai", ("postgres",), installed) - {"makai"}
    return {
        "python:3.13-slim": BASE_MB,
        "bubblewrap": BUBBLEWRAP_MB,
        f"{len(needed)} packages": sum(package_bytes(installed[name]) for name in needed) / 1e6,
        "makai and its page": makai_bytes(root) / 1e6,
    }


def main() -> None:
    installed = {str(canonicalize_name(each.metadata["Name"])): each for each in importlib.metadata.distributions()}
    found = layers(installed, ROOT)
    total = sum(found.values())
    local = package_bytes(installed["xllamacpp"]) / 1e6
    rows = [*found.items(), (f"in all (at most {BAR_MB})", total), ("with LOCAL=yes", total + local)]
    print(table((name, f"{size:6.1f} MB", "") for name, size in rows))
    raise SystemExit(total > BAR_MB)


if __name__ == "__main__":
    main()
