"""What users install: source package, wheel, a new environment, and the page that it serves."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "makai/server/page/index.html"
WITHIN_S = 150
_ADDRESS = re.compile(rb"listening on (http://\S+)")

pytestmark = pytest.mark.timeout(600)


def run(*command: str | Path, cwd: Path, environ: Mapping[str, str] | None = None) -> str:
    """What the command prints; it has to succeed."""
    finished = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(environ or {})}, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the pinned build backend can be imported."""
    if importlib.util.find_spec("hatchling"):
        return {}
    folder = tmp_path_factory.mktemp("backend")
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", folder, *wanted]
    if subprocess.run(pip, capture_output=True, timeout=WITHIN_S).returncode:
        pytest.skip("the build backend is not installed and pip cannot get it: packages were NOT built")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory, backend: dict[str, str]) -> Path:
    """The source package of this checkout, unpacked."""
    if not (ROOT / "src" / PAGE).is_file():
        pytest.skip("the page is not built (npm is missing): packages were NOT built")
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT, environ=backend)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    return unpacked


def wheel_of(source: Path, environ: Mapping[str, str]) -> Path:
    """The wheel of unpacked sources."""
    output = source / "wheels"
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", output)
    run(*command, cwd=source, environ=environ)
    (wheel,) = output.glob("*.whl")
    return wheel


def new_environment(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel; what makai needs comes from this one, so that nothing is downloaded."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    python = folder / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check")
    run(*pip, "--no-index", "--no-deps", wheel, cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    needed = "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    Path(site, "needed.pth").write_text(needed)
    return folder / "bin"


async def test_the_source_package_becomes_a_server_with_a_page(
    unpacked: Path, backend: dict[str, str], tmp_path: Path
) -> None:
    wheel = wheel_of(unpacked, {**backend, "PATH": "/nowhere"})
    programs = new_environment(tmp_path / "venv", wheel)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MAKAI_HOME": str(tmp_path / "home")}
    server = await asyncio.create_subprocess_exec(
        *(programs / "makai", "serve", "--port", "0"), env=environ, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            while (found := _ADDRESS.search(line := await server.stdout.readline())) is None:
                assert line, "the server ended"
            async with aiohttp.ClientSession() as http, http.get(found[1].decode()) as response:
                page = await response.text()
    finally:
        server.terminate()
        await server.communicate()

    assert (response.status, response.content_type) == (200, "text/html")
    assert page == (ROOT / "src" / PAGE).read_text()
    where = run(programs / "python", "-c", "import makai; print(makai.__file__)", cwd=tmp_path)
    assert where.startswith(str(tmp_path / "venv")), "not the sources of this checkout"
    assert (tmp_path / "venv/share/man/man1/makai.1").read_bytes() == (ROOT / "packaging/makai.1").read_bytes()


def test_a_build_without_page_and_npm_fails_and_says_what_to_do(
    unpacked: Path, backend: dict[str, str], tmp_path: Path
) -> None:
    bare = shutil.copytree(unpacked, tmp_path / "bare", ignore=shutil.ignore_patterns("wheels", "page"))
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "wheels")
    environ = {**os.environ, **backend, "PATH": "/nowhere"}
    done = subprocess.run(command, cwd=bare, env=environ, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    assert (done.returncode, list(bare.glob("wheels/*.whl"))) == (1, [])
    assert "npm is not installed. Install Node.js 20.19 or newer with npm and try again." in done.stderr
