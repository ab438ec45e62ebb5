"""Tests makai with the lowest and the newest versions of the packages it declares: one environment for each, and the
fast part of the tests in it. Packages come from the index that pip is configured with."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = ("tests/unit/core", "tests/unit/wire", "tests/unit/catalog", "tests/unit/providers")
TEST_TOOLS: Final = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "trustme", "packaging")


def declared() -> list[Requirement]:
    """What makai needs, and what the extra `grpc` needs; the other extras need more than a package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(line) for line in [*project["dependencies"], *project["optional-dependencies"]["grpc"]]]


def lowest(requirement: Requirement) -> str:
    """The requirement, pinned to the lowest version that it allows."""
    (bound,) = (each.version for each in requirement.specifier if each.operator == ">=")
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}=={bound}{marker}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["lowest", "newest"])
    which = parser.parse_args().which
    lines = [lowest(each) if which == "lowest" else str(each) for each in declared()]
    with tempfile.TemporaryDirectory(prefix=f"makai-{which}-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder, "bin/python"))
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"]
        subprocess.run([*pip, *lines, *TEST_TOOLS], check=True)
        subprocess.run([python, "-m", "pip", "list", "--disable-pip-version-check"], check=True)
        raise SystemExit(subprocess.run([python, "-m", "pytest", "-q", *TESTS], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
