"""What is installed is what the lock files list: exact versions with hashes, no addresses, known licences."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import sbom
from tools.dependencies import declared, lowest
from tools.lock import LOCKS, ROOT, files_of, hashes_of, is_wanted, lock_text, pins_of

NPM_FOLDERS = [
    *sbom.NPM,
    *(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/*/package-lock.json")),
]
NPM_LOCKS = [f"{folder}/package-lock.json" for folder in NPM_FOLDERS]
EVERY_LOCK = [*(lock.file for lock in LOCKS), *NPM_LOCKS]
WITHIN_S = 120
MAX_DEPENDENCIES = 18
_ENTRY = re.compile(r"[a-z0-9-]+==[^\s;]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n", re.ASCII)


def _pyproject() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.proof("L9")
@pytest.mark.parametrize("file", [lock.file for lock in LOCKS])
def test_every_package_of_a_lock_file_has_an_exact_version_and_hashes(file: str) -> None:
    comment, _, entries = (ROOT / file).read_text().partition("\n")

    assert comment.startswith("# ")
    assert _ENTRY.sub("", entries) == ""
    assert entries.count("==") == len(pins_of(entries)) >= 1


@pytest.mark.parametrize("file", EVERY_LOCK)
def test_a_lock_file_names_no_registry(file: str) -> None:
    text = (ROOT / file).read_text()
    links = [found for found in re.findall(r"\w+://[^\"\s]+", text) if "package-lock" not in file]
    packages = json.loads(text)["packages"].values() if file in NPM_LOCKS else ()

    assert (links, [package for package in packages if "resolved" in package]) == ([], [])
    assert all(package.get("integrity", "").startswith("sha512-") for package in [*packages][1:])


def test_the_build_backend_is_pinned_to_a_version_with_hashes() -> None:
    build = _pyproject()["build-system"]
    assert isinstance(build, dict)
    pins = pins_of((ROOT / "constraints.txt").read_text())

    assert [f"{name}=={pins[name]}" for name in ("hatchling", "editables")] == build["requires"]


def test_what_makai_and_its_tools_need_is_locked_and_installed_in_that_version() -> None:
    project = _pyproject()["project"]
    assert isinstance(project, dict)
    wanted = [*project["dependencies"]]
    wanted += [each for extra in ("dev", "local", "grpc") for each in project["optional-dependencies"][extra]]
    pins = pins_of((ROOT / "constraints.txt").read_text())
    requirements = [Requirement(line) for line in wanted]
    unmet = [str(each) for each in requirements if pins.get(canonicalize_name(each.name), "") not in each.specifier]
    installed = _distributions()
    needed = sbom.closure("makai", ("dev", "local", "grpc"), installed) - {"makai"}
    assert (unmet, sorted(needed - pins.keys())) == ([], [])
    assert {name: installed[name].version for name in needed} == {name: pins[name] for name in needed}


@pytest.mark.proof("L9")
def test_there_are_few_direct_dependencies() -> None:
    project = _pyproject()["project"]
    assert isinstance(project, dict)

    assert len(project["dependencies"]) <= MAX_DEPENDENCIES


def test_what_running_needs_is_a_part_of_the_lock_of_everything() -> None:
    """So that `make test` after `make run` adds what is missing, and replaces nothing."""
    entries = [set(_ENTRY.findall((ROOT / name).read_text())) for name in ("constraints-run.txt", "constraints.txt")]
    installed = _distributions()
    builds = sbom.closure("hatchling", (), installed) | sbom.closure("editables", (), installed)
    needed = (sbom.closure("makai", ("local",), installed) | builds) - {"makai"}

    assert entries[0] <= entries[1]
    assert pins_of((ROOT / "constraints-run.txt").read_text()).keys() == needed


def test_the_page_is_built_without_the_packages_that_only_its_tests_need() -> None:
    packages = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    to_build = {path.removeprefix("node_modules/") for path, package in packages.items() if not package.get("dev")}

    assert to_build.isdisjoint({"axe-core", "jsdom", "svelte-check", "typescript", "vitest"})
    assert to_build >= {"svelte", "vite"}


def test_the_bill_of_materials_tells_what_is_in_the_page_from_what_builds_it() -> None:
    scopes = {each.name: each.scope for each in sbom.npm_components(ROOT)}

    assert {scopes[name] for name in ("dompurify", "highlight.js", "marked", "svelte", "esm-env")} == {"required"}
    assert {scopes[name] for name in ("vite", "rollup", "esbuild", "typescript", "vitest")} == {"excluded"}


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    return {str(canonicalize_name(one.metadata["Name"])): one for one in importlib.metadata.distributions()}


def _pip_options() -> list[str]:
    """What the Makefile installs lock files with."""
    variables = dict(re.findall(r"^(\w+) := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return str(variables["PIP_LOCKED"]).replace("$(PIP_INSTALL)", variables["PIP_INSTALL"]).split()


def _wheel(folder: Path, content: str = "") -> str:
    """A package in an index that is a folder; its hash."""
    path = folder / "files" / "harmless-1.0-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    info = "harmless-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("harmless.py", content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: harmless\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "simple" / "harmless").mkdir(parents=True, exist_ok=True)
    page = folder / "simple" / "harmless" / "index.html"
    page.write_text(f'<a href="../../files/{path.name}#sha256={digest}">{path.name}</a>')
    return digest


def _installed(folder: Path, line: str, *, index: bool = True) -> subprocess.CompletedProcess[str]:
    lock = folder / "lock.txt"
    lock.write_text(line)
    where = ["--index-url", (folder / "simple").as_uri()] if index else ["--no-index", "--find-links", folder / "files"]
    command = [sys.executable, *_pip_options(), *where, "--target", folder / "target", "-r", lock]
    environ = {"PIP_CONFIG_FILE": "/dev/null", "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WITHIN_S, check=False)


@pytest.mark.proof("L9")
def test_pip_installs_a_file_with_the_right_hash_and_refuses_all_others(tmp_path: Path) -> None:
    first = _wheel(tmp_path)
    right = _installed(tmp_path, f"harmless==1.0 --hash=sha256:{first}\n")
    _wheel(tmp_path, "print('replaced')")
    replaced = _installed(tmp_path, f"harmless==1.0 --hash=sha256:{first}\n")
    unlisted = _installed(tmp_path, f"harmless==1.0 --hash=sha256:{first}\n", index=False)
    without = _installed(tmp_path, "harmless==1.0\n")

    assert (right.returncode, right.stderr) == (0, "")
    assert [done.returncode for done in (replaced, unlisted, without)] == [1, 1, 1]
    assert (tmp_path / "target/harmless.py").read_text() == ""
    assert all("hash" in done.stderr.lower() for done in (replaced, unlisted, without))


def test_pip_builds_no_package_from_source(tmp_path: Path) -> None:
    source = tmp_path / "harmless-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    archive = tmp_path / "files" / "harmless-1.0.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as file:
        file.add(source, source.name)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()

    done = _installed(tmp_path, f"harmless==1.0 --hash=sha256:{digest}\n", index=False)

    assert (done.returncode, (tmp_path / "ran").exists()) == (1, False)


def test_a_lock_is_written_from_an_index_and_holds_no_address(tmp_path: Path) -> None:
    digest, index = _wheel(tmp_path), (tmp_path / "simple").as_uri()

    found = {"harmless": hashes_of("harmless", "1.0", [index, index])}

    assert [*files_of(index, "absent")] == []
    assert lock_text("All.", {"harmless": "1.0"}, found) == (
        f"# All. Written by `make lock` (tools/lock.py).\nharmless==1.0 \\\n    --hash=sha256:{digest}\n"
    )


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("a-1.0-py3-none-any.whl", True),
        ("a-1.0.tar.gz", True),
        ("a-1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1.0-cp311-cp311-musllinux_1_2_aarch64.whl", True),
        ("a-1.0-cp38-abi3-macosx_11_0_arm64.whl", True),
        ("a-1.0-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("a-1.0-cp313-cp313t-manylinux_2_17_x86_64.whl", False),
        ("a-1.0-cp314-cp314-manylinux_2_17_x86_64.whl", True),
        ("a-1.0-cp315-abi3-manylinux_2_17_x86_64.whl", False),
        ("a-1.0-cp312-cp312-win_amd64.whl", False),
        ("a-1.0-cp312-cp312-manylinux_2_17_s390x.whl", False),
        ("a-1.0.1-py3-none-any.whl", False),
        ("a-1.0.exe", False),
    ],
)
def test_files_of_supported_pythons_and_platforms_are_listed(file: str, wanted: bool) -> None:
    assert is_wanted(file, Version("1.0")) == wanted


def test_npm_runs_no_script_of_a_package() -> None:
    makefile = (ROOT / "Makefile").read_text()

    assert re.findall(r"npm (?:ci|install|i)\b.*", makefile) == [
        "npm ci --silent --no-audit --no-fund --ignore-scripts"
    ]


def test_every_licence_is_known_and_allowed() -> None:
    components = [
        *sbom.python_components(importlib.metadata.distributions(), sbom.locked()),
        *sbom.npm_components(ROOT),
    ]

    assert [each for each in components if not sbom.is_allowed(each.licence)] == []
    assert len(components) > 100


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("(MPL-2.0 OR Apache-2.0)", True),
        ("MIT AND (GPL-2.0-only OR BSD-3-Clause)", True),
        ("MIT AND GPL-3.0-only", False),
        ("AGPL-3.0-or-later", False),
        ("SEE LICENSE IN x", False),
        ("(MIT", False),
        ("MIT OR", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_when_it_can_be_met_with_allowed_licences(expression: str, allowed: bool) -> None:
    assert sbom.is_allowed(expression) == allowed


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": "MIT AND PSF-2.0", "License": "x"}, "MIT AND PSF-2.0"),
        ({"License": "Apache 2.0"}, "Apache-2.0"),
        ({"License": "see LICENSE", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"License": "Proprietary\nmore"}, "Proprietary"),
        ({}, ""),
    ],
)
def test_the_licence_comes_from_the_best_field(fields: dict[str, str], licence: str) -> None:
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value

    assert sbom.python_licence(metadata) == licence


def test_the_bill_of_materials_is_the_same_for_the_same_components() -> None:
    digest = base64.b64encode(bytes(64)).decode()
    part = sbom.Component("a", "1", "pkg:pypi/a@1", "MIT", "required", requires=["pkg:pypi/b@1"])
    other = sbom.Component("b", "1", "pkg:pypi/b@1", "", "excluded", ({"alg": "SHA-512", "content": digest},))
    document = sbom.cyclonedx("0.1", [part, other])

    assert document == sbom.cyclonedx("0.1", [part, other])
    assert document["components"][0] == {
        **{"type": "library", "bom-ref": "pkg:pypi/a@1", "name": "a", "version": "1", "scope": "required"},
        **{"licenses": [{"expression": "MIT"}], "purl": "pkg:pypi/a@1", "hashes": []},
    }
    assert "licenses" not in document["components"][1]
    assert document["dependencies"] == [{"ref": "pkg:pypi/a@1", "dependsOn": ["pkg:pypi/b@1"]}]
    assert document["serialNumber"] != sbom.cyclonedx("0.1", [part])["serialNumber"]


EXTRA_MODULES = {"grpc": "grpcio", "keyring": "keyring", "xllamacpp": "xllamacpp"}
"""Modules of extras by their packages: an extra need not be installed here."""


def _imported() -> set[str]:
    """The first names of all modules that the package imports, also in functions, for type checkers and by name."""
    found: set[str] = set()
    for path in (ROOT / "src/makai").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    found |= {alias.name for alias in names}
                case ast.ImportFrom(module=str(module)):
                    found.add(module)
                case ast.Call(
                    func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                    args=[ast.Constant(value=str(module)), *_],
                ):
                    found.add(module)
    return {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"makai"}


def test_every_package_that_makai_imports_is_declared() -> None:
    """What comes along with another package today may stay away tomorrow."""
    project = _pyproject()["project"]
    assert isinstance(project, dict)
    extras = [each for name, lines in project["optional-dependencies"].items() if name != "dev" for each in lines]
    declared = {canonicalize_name(Requirement(line).name) for line in [*project["dependencies"], *extras]}
    packages = importlib.metadata.packages_distributions()
    used = {
        name: {canonicalize_name(one) for one in packages.get(name, [EXTRA_MODULES.get(name, name)])}
        for name in _imported()
    }

    assert {name: owners for name, owners in used.items() if not owners & declared} == {}
    assert declared - set().union(*used.values()) == set(), "declared and used by nothing"


def test_every_dependency_has_a_lowest_version_to_test() -> None:
    assert [lowest(each) for each in map(Requirement, ("a>=1.2", "b>=3; sys_platform != 'win32'"))] == [
        "a==1.2",
        'b==3; sys_platform != "win32"',
    ]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+(; .+)?", lowest(each)) for each in declared())
