"""The official SDKs of ACP, in tests/acp_sdks: installed on first use from their lock files, or the test is skipped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from support.locked_packages import held, install, locked_packages

FOLDER: Final = Path(__file__).resolve().parents[1] / "acp_sdks"


def python_sdk() -> Path:
    """The folder to put into PYTHONPATH. Its dependencies are those of makai."""
    return locked_packages(FOLDER / "requirements.lock", "acp-python-sdk", "the official Python SDK of ACP")


def typescript_sdk() -> str:
    """The path of node, with the SDK in `FOLDER/node_modules`."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("NOT TESTED: the official TypeScript SDK of ACP, as node and npm are not installed")
    with held(FOLDER / "package-lock.json") as lock:
        installed = FOLDER / "node_modules" / ".makai-lock.json"
        if not installed.is_file() or installed.read_bytes() != lock.read_bytes():
            install([npm, "ci", "--silent", "--ignore-scripts"], FOLDER, "the official TypeScript SDK of ACP")
            installed.write_bytes(lock.read_bytes())
    return node
