"""`make release`: builds everything that is published, twice and from git alone, checks it, installs it, and writes it
to dist/. It ends in a table and uploads nothing.

Built is the last commit, in two folders with other names and other file modes: the files must be equal byte by byte.
With --rehearsal, the changelog may still say "Unreleased" and the checkout may have changes that are not committed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tools import release_checks as checks
from tools.dependencies import declared, lowest
from tools.lock import ROOT
from tools.sbom import LICENCES, SBOM

NPM_CI: Final = ("npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts")
WITHIN_S: Final = 900
START_S: Final = 60
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PROGRAM: Final = 'import { createMakaiClient } from "makai"; console.log(typeof createMakaiClient);\n'
REQUIRED: Final = 'console.log(typeof require("makai").createMakaiClient);\n'


class Report:
    """Runs checks and remembers how they went."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []
        self.failed = False

    def check(self, name: str, work: Callable[[], Sequence[str] | str | None]) -> None:
        """`work` returns problems as a list, a detail as text, or None when it cannot be done here."""
        print(f"... {name}", flush=True)
        started = time.monotonic()
        try:
            result = work()
        except (OSError, subprocess.SubprocessError, AssertionError) as error:
            said = getattr(error, "stderr", None) or ""
            result = [f"{error} {said[-2000:]}"]
        took = f"{time.monotonic() - started:.1f} s"
        if result is None:
            self.rows.append((name, "SKIPPED", "not installed here"))
        elif isinstance(result, str) or not result:
            self.rows.append((name, "ok", f"{result or ''} ({took})".strip()))
        else:
            self.failed = True
            self.rows.append((name, "FAILED", "; ".join(result[:5])))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and check a release.")
    parser.add_argument("--rehearsal", action="store_true", help="accept an unreleased changelog and local changes")
    is_rehearsal = parser.parse_args().rehearsal
    version, report = checks.version_of(ROOT), Report()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    report.check("version in one place", lambda: checks.version_problems(ROOT) or version)
    report.check(
        "changelog",
        lambda: (
            checks.changelog_problems(changelog, version, is_rehearsal=is_rehearsal)
            or ("unreleased" if f"[{version}]" not in changelog else version)
        ),
    )
    report.check("committed", lambda: "not looked at" if is_rehearsal else _uncommitted())
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    with tempfile.TemporaryDirectory(prefix="makai-release-") as temporary:
        folder = Path(temporary)
        report.check("build", lambda: _build(folder / "first", dist, 0o022))
        if not report.failed:
            _check_files(report, folder, dist, version)
    if not report.failed:
        (dist / "SHA256SUMS").write_text("".join(f"{_digest(file)}  {file.name}\n" for file in _files(dist)))
    print(checks.table([("check", "result", ""), *report.rows]))
    print("Nothing is in dist/ that you should publish." if report.failed else f"makai {version} is in dist/.")
    raise SystemExit(report.failed)


def _check_files(report: Report, folder: Path, dist: Path, version: str) -> None:
    wheel, sdist = dist / f"makai-{version}-py3-none-any.whl", dist / f"makai-{version}.tar.gz"
    tarball = dist / f"makai-{version}.tgz"
    report.check("built again, equal bytes", lambda: _built_again(folder, dist))
    report.check("wheel from the sdist, without npm", lambda: _wheel_of_sdist(folder, sdist, wheel))
    report.check("contents", lambda: _contents(folder / "first", wheel, sdist, tarball, version))
    readme = (folder / "first/README.md").read_text(encoding="utf-8")
    metadata = zipfile.ZipFile(wheel).read(f"makai-{version}.dist-info/METADATA")
    report.check("metadata", lambda: checks.metadata_problems(metadata, version, readme))
    report.check("bill of materials, licences", lambda: _bill_of_materials(dist))
    for name in PYTHONS:
        report.check(f"runs on Python {name}", lambda name=name: _runs_on(folder, name, wheel))  # type: ignore[misc]
    report.check("runs with the lowest dependencies", lambda: _runs_with_lowest(folder, wheel))
    report.check("pip install", lambda: _pip_install(folder, wheel))
    report.check("pipx install", lambda: _tool_install(folder, "pipx", ("install",), wheel))
    report.check("uv tool install", lambda: _tool_install(folder, "uv", ("tool", "install"), wheel))
    report.check("npm install", lambda: _npm_install(folder / "npm", tarball))


def _run(command: Sequence[str | Path], cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, timeout=WITHIN_S, check=True
    )
    return done.stdout


def _uncommitted() -> list[str]:
    return _run(["git", "status", "--porcelain"], ROOT).splitlines()


def _export(folder: Path, mask: int) -> None:
    """The files of the last commit, with modes that follow from `mask`."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    _run(["git", "archive", "--format=tar", f"--output={archive}", "HEAD"], ROOT)
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    _set_modes(folder.rglob("*"), mask)


def _set_modes(paths: Iterable[Path], mask: int) -> None:
    for path in paths:
        path.chmod((0o777 if path.is_dir() or os.access(path, os.X_OK) else 0o666) & ~mask)


def _build(folder: Path, output: Path, mask: int) -> str:
    """Wheel, sdist and the package of npm."""
    _export(folder, mask)
    epoch = _run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    hatch = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", output)
    _run(hatch, folder, SOURCE_DATE_EPOCH=epoch)
    sdk = folder / "sdk/typescript"
    _run(NPM_CI, sdk)
    _run(["npm", "run", "build", "--silent"], sdk)
    _set_modes([*sdk.glob("*.*"), sdk / "LICENSE", *(sdk / "dist").rglob("*")], 0o022)  # npm packs modes as they are
    _run(["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", output], sdk)
    return ", ".join(f"{file.name} {file.stat().st_size / 1e6:.1f} MB" for file in _files(output))


def _built_again(folder: Path, dist: Path) -> list[str]:
    again = folder / "again"
    again.mkdir()
    _build(folder / "another name", again, 0o027)
    first, second = ({file.name: _digest(file) for file in _files(each)} for each in (dist, again))
    return [f"{name} differs" for name in first | second if first.get(name) != second.get(name)]


def _wheel_of_sdist(folder: Path, sdist: Path, wheel: Path) -> list[str]:
    unpacked = folder / "unpacked"
    with tarfile.open(sdist) as source:
        source.extractall(unpacked, filter="data")
    (root,) = unpacked.iterdir()
    epoch = _run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    hatch = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", unpacked)
    _run(hatch, root, SOURCE_DATE_EPOCH=epoch, PATH="/nowhere")
    return [] if _digest(unpacked / wheel.name) == _digest(wheel) else ["it differs from the wheel of the checkout"]


def _contents(source: Path, wheel: Path, sdist: Path, tarball: Path, version: str) -> list[str] | str:
    tracked = _run(["git", "ls-tree", "-r", "--name-only", "-z", "HEAD"], ROOT).split("\0")[:-1]
    built = source / "src" / checks.PAGE
    page = [path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()]
    settings = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    left_out = [name.strip("/") for name in settings["targets"]["sdist"]["exclude"]]
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    in_wheel = zipfile.ZipFile(wheel).namelist()
    in_sdist = [member.name for member in members]
    with tarfile.open(tarball) as archive:
        in_tarball = archive.getnames()
    problems = [
        *checks.wheel_problems(in_wheel, version, tracked, page),
        *checks.sdist_problems(in_sdist, version, tracked, page, left_out),
        *checks.npm_problems(in_tarball),
        *(f"mode {each.mode:o} of {each.name}" for each in members if each.mode not in (0o644, 0o755)),
        *(f"owner of {each.name}" for each in members if (each.uid, each.gid, each.uname) != (0, 0, "")),
    ]
    return problems or f"{len(in_wheel)}, {len(in_sdist)} and {len(in_tarball)} files"


def _bill_of_materials(dist: Path) -> str:
    said = _run([sys.executable, "-m", "tools.sbom"], ROOT)
    for name in (SBOM, LICENCES):
        shutil.copy(ROOT / "build" / name, dist)
    return said.partition(":")[0]


def _environment(folder: Path, python: str, name: str, *wanted: str | Path, with_uv: bool = True) -> Path:
    """A new environment with these packages from the configured index; its folder of programs."""
    where = folder / f"environment {name}"
    uv = shutil.which("uv") if with_uv else None
    _run([python, "-m", "venv", *(["--without-pip"] if uv else []), where], folder)
    new = str(where / "bin/python")
    by_pip = [new, "-m", "pip", "install", "-q", "--no-compile"]
    _run([*([uv, "pip", "install", "-q", "--python", new] if uv else by_pip), *wanted], folder)
    return where / "bin"


def _runs_on(folder: Path, version: str, wheel: Path) -> str | None:
    python = _python(version)
    if python is None:
        return None
    return _serves(_environment(folder, python, version, wheel) / "makai", folder, wheel)


def _python(version: str) -> str | None:
    """A Python of this version: on the PATH, or of pyenv."""
    found = [shutil.which(f"python{version}"), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))]
    for each in filter(None, found):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if _run([each, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], ROOT).strip() == version:
                return each
    return None


def _runs_with_lowest(folder: Path, wheel: Path) -> str:
    pins = [lowest(each) for each in declared()]
    return _serves(_environment(folder, sys.executable, "lowest", wheel, *pins) / "makai", folder, wheel)


def _pip_install(folder: Path, wheel: Path) -> str:
    started = time.monotonic()
    program = _environment(folder, sys.executable, "pip", wheel, with_uv=False) / "makai"
    said = _run([program, "--version"], folder).strip()
    took = time.monotonic() - started
    assert "installed by pip" in _run([program, "self-update"], folder)
    return f"{said} after {took:.1f} s"


def _tool_install(folder: Path, name: str, arguments: Sequence[str], wheel: Path) -> str | None:
    installer = shutil.which(name)
    if installer is None:
        return None
    home = folder / f"home of {name}"
    home.mkdir()
    places = {
        "PIPX_HOME": "pipx",
        "PIPX_BIN_DIR": "bin",
        "PIPX_MAN_DIR": "man",
        "UV_TOOL_DIR": "uv",
        "UV_TOOL_BIN_DIR": "bin",
    }
    environ = {variable: str(home / place) for variable, place in places.items()}
    started = time.monotonic()
    _run([installer, *arguments, wheel], folder, **environ)
    said = _run([home / "bin/makai", "--version"], folder).strip()
    took = time.monotonic() - started
    assert f"installed by {name}" in _run([home / "bin/makai", "self-update"], folder)
    return f"{said} after {took:.1f} s"


def _npm_install(folder: Path, tarball: Path) -> str:
    """In an empty folder, without scripts: imported, required, and its types found."""
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", tarball], folder)
    (folder / "a.mjs").write_text(PROGRAM)
    (folder / "b.cjs").write_text(REQUIRED)
    said = [_run(["node", name], folder).strip() for name in ("a.mjs", "b.cjs")]
    assert said == ["function", "function"], said
    types = folder / "node_modules/makai/dist/esm/index.d.ts"
    assert types.is_file()
    return "imported and required"


def _serves(program: Path, folder: Path, wheel: Path) -> str:
    """Whether a new server shows the page that the wheel has."""
    version = _run([program, "--version"], folder).strip()
    with _serving(program, folder) as address, urllib.request.urlopen(address, timeout=START_S) as answer:
        assert answer.read() == zipfile.ZipFile(wheel).read(f"{checks.PAGE}index.html"), "it serves another page"
    return f"{version}, page served"


@contextlib.contextmanager
def _serving(program: Path, folder: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=folder) as home:
        environ = {"PATH": os.environ["PATH"], "HOME": home, "MAKAI_HOME": f"{home}/makai"}
        command = [str(program), "serve", "--port", "0"]
        with (
            Path(home, "log").open("w+") as log,
            subprocess.Popen(command, cwd=home, env=environ, stdout=subprocess.PIPE, stderr=log, text=True) as server,
        ):
            try:
                assert server.stdout is not None
                line = server.stdout.readline()
                assert "listening on " in line, f"the server said {line!r} {Path(home, 'log').read_text()[-1000:]}"
                yield line.partition("listening on ")[2].strip()
            finally:
                server.terminate()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
