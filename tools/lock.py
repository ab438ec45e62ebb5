"""Writes the lock files: exact versions, and the hashes of every file that may be installed for them.

`make lock` keeps the versions and looks up their hashes in the index that pip is configured with; `make lock
UPGRADE=yes` lets pip choose the newest versions first. No address is written. A file is listed when makai supports its
Python and platform; of source packages too, though `make` never builds one.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple

from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHONS: Final = ("cp311", "cp312", "cp313", "cp314")
PLATFORMS: Final = re.compile(
    r"any|(many|musl)linux\w*_(x86_64|aarch64)|macosx_\d+_\d+_(x86_64|arm64|universal2)", re.ASCII
)
_PIN: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.ASCII | re.MULTILINE)
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_TIMEOUT_S: Final = 60
_AT_ONCE: Final = 8


class Lock(NamedTuple):
    file: str
    wanted: Sequence[str]
    """What pip is asked for, in the repository."""
    title: str
    without: str = ""
    """A lock file whose packages are not repeated here."""
    part_of: str = ""
    """A lock file that has these packages too. The versions are the ones there, so that it can be installed on top."""


LOCKS: Final = (
    Lock("constraints.txt", (".[dev,local,grpc,postgres,otel]",), "What `make test` and all other targets install."),
    Lock(
        "constraints-run.txt",
        (".[local]",),
        "The part of constraints.txt that `make run` installs.",
        part_of="constraints.txt",
    ),
    Lock(
        "constraints-extras.txt",
        (".[dev,local,grpc,postgres,otel,keyring]",),
        "What the extra `keyring` needs on top of constraints.txt.",
        without="constraints.txt",
    ),
    Lock(
        "tests/acp_sdks/requirements.lock",
        ("-r", "tests/acp_sdks/requirements.txt"),
        "The official SDK of ACP, which tests install beside constraints.txt.",
        without="constraints.txt",
    ),
    Lock(
        "tests/examples/fastapi.lock",
        ("-r", "tests/examples/fastapi.txt"),
        "FastAPI for a program of the cookbook, which tests install beside constraints.txt.",
        without="constraints.txt",
    ),
    Lock("tools/docs-requirements.lock", ("-r", "tools/docs-requirements.txt"), "What builds the site, in .venv-docs."),
    Lock("benchmarks/requirements.lock", (".", "-r", "benchmarks/requirements.txt"), "What .venv-bench holds."),
    Lock(
        "benchmarks/requirements-litellm.lock",
        ("-r", "benchmarks/requirements-litellm.txt"),
        "What .venv-bench-litellm holds.",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the lock files.")
    parser.add_argument("--upgrade", action="store_true", help="choose the newest versions first")
    parser.add_argument("files", nargs="*", help="only these lock files")
    arguments = parser.parse_args()
    indexes = configured_indexes()
    for lock in (lock for lock in LOCKS if not arguments.files or lock.file in arguments.files):
        path = ROOT / lock.file
        known = pins_of(path.read_text()) if path.exists() else {}
        pins = resolved(lock) if arguments.upgrade or not known else known
        if lock.without:
            listed = pins_of((ROOT / lock.without).read_text())
            pins = {name: version for name, version in pins.items() if name not in listed}
        if lock.part_of:
            listed = pins_of((ROOT / lock.part_of).read_text())
            pins = {name: listed[name] for name in pins}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = pool.map(hashes_of, pins.keys(), pins.values(), itertools.repeat(indexes))
            found = dict(zip(pins, answers, strict=True))
        if missing := [name for name, hashes in found.items() if not hashes]:
            sys.exit(f"No index has a file for these packages: {', '.join(missing)}.")
        path.write_text(lock_text(lock.title, pins, found))
        print(f"{lock.file}: {len(pins)} packages, {sum(map(len, found.values()))} files")


def pins_of(text: str) -> dict[str, str]:
    """The exact versions in a lock file, by normalised name."""
    return {canonicalize_name(name): version for name, version in _PIN.findall(text)}


def resolved(lock: Lock) -> dict[str, str]:
    """What pip would install now, in an environment with nothing in it."""
    with tempfile.NamedTemporaryFile() as report:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--only-binary", ":all:", "--report", report.name, *lock.wanted, *build_requirements()]
        subprocess.run(command, cwd=ROOT, check=True)
        chosen = json.loads(Path(report.name).read_text())["install"]
    pins = {canonicalize_name(each["metadata"]["name"]): str(each["metadata"]["version"]) for each in chosen}
    return {name: pins[name] for name in sorted(pins) if name != "makai"}


def build_requirements() -> list[str]:
    requires: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return requires


def configured_indexes() -> list[str]:
    """The addresses of the indexes that pip uses here, as its own settings name them."""
    from pip._internal.models.index import PyPI

    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'\"")
    extra = settings.get("extra-index-url", "").replace("\\n", " ").split()
    return [settings.get("index-url") or PyPI.simple_url, *extra]


def hashes_of(name: str, version: str, indexes: Sequence[str]) -> list[str]:
    found: set[str] = set()
    for index in indexes:
        for file, digest in files_of(index, name):
            if is_wanted(file, Version(version)):
                found.add(digest)
    return sorted(found)


def is_wanted(file: str, version: Version) -> bool:
    """Whether a file is of this version, and for a Python and a platform that makai supports."""
    try:
        if not file.endswith(".whl"):
            return parse_sdist_filename(file)[1] == version
        _, found, _, tags = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return False
    return found == version and any(map(_is_supported, tags))


def _is_supported(tag: Tag) -> bool:
    if not PLATFORMS.fullmatch(tag.platform) or tag.abi.endswith("t"):  # without the global lock
        return False
    if tag.abi == "abi3":
        return tag.interpreter.startswith("cp3") and int(tag.interpreter[3:]) <= int(PYTHONS[-1][3:])
    return tag.interpreter in PYTHONS or tag.interpreter in ("py3", "py2.py3", "py311", "py312", "py313", "py314")


def files_of(index: str, name: str) -> Iterator[tuple[str, str]]:
    """The names and hashes of all files of a package; nothing when this index does not have it."""
    address = f"{index.rstrip('/')}/{name}/"
    if address.startswith("file:"):
        page = Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path), "index.html")
        yield from _listed(page.read_text()) if page.exists() else ()
        return
    parts = urllib.parse.urlsplit(address)
    request = urllib.request.Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
    request.add_header("Accept", f"{_JSON}, text/html;q=0.1")
    if parts.username:
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            text, kind = answer.read().decode(), answer.headers.get_content_type()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return
        raise
    if kind != _JSON:
        yield from _listed(text)
        return
    for file in json.loads(text)["files"]:
        if digest := file["hashes"].get("sha256"):
            yield file["filename"], digest


def _listed(page: str) -> Iterator[tuple[str, str]]:
    parser = _Links()
    parser.feed(page)
    for link in parser.found:
        parts = urllib.parse.urlsplit(link)
        if parts.fragment.startswith("sha256="):
            yield urllib.parse.unquote(parts.path.rpartition("/")[2]), parts.fragment.removeprefix("sha256=")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def lock_text(title: str, pins: Mapping[str, str], hashes: Mapping[str, Sequence[str]]) -> str:
    lines = [f"# {title} Written by `make lock` (tools/lock.py)."]
    for name in sorted(pins):
        parts = [f"{name}=={pins[name]}", *(f"    --hash=sha256:{digest}" for digest in hashes[name])]
        lines.append(" \\\n".join(parts))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
