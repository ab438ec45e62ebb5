"""Writes what makai is made of: `build/sbom.cdx.json` (CycloneDX) and `build/licences.md`.

Read are the metadata of the packages that are installed here and listed in a lock file, and the lock files of npm. It
fails when the licence of one is unknown or not in `ALLOWED`.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import ROOT, pins_of

ALLOWED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BlueOak-1.0.0", "CC0-1.0", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
        "LGPL-3.0-only",  # psycopg, of the extra `postgres`: a library that is installed beside makai, unchanged
    }
)
NAMED: Final = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD-3-Clause",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""Older metadata has a name or a classifier; the one for BSD does not say which, and both are allowed."""
LICENCE_FILES: Final = {"pkg:npm/khroma@2.1.0": "MIT"}
"""Packages that state their licence in a file only, which was read for this version."""
LOCK_FILES: Final = ("constraints.txt", "constraints-extras.txt")
EXTRAS: Final = ("local", "grpc", "keyring", "postgres", "otel")
NPM: Final = {"web": ("dompurify", "highlight.js", "marked", "svelte"), "sdk/typescript": ()}
"""The folders with a lock file of npm, and which packages are part of what is built there. Others are tools."""
SBOM: Final = "sbom.cdx.json"
LICENCES: Final = "licences.md"
_WORDS: Final = re.compile(r"\(|\)|[^\s()]+")

Scope: TypeAlias = Literal["required", "optional", "excluded"]
"""Part of makai; part of it with an extra; only for its development."""


class Component(NamedTuple):
    name: str
    version: str
    purl: str
    licence: str
    """An SPDX expression, or what the metadata says; "" when it says nothing."""
    scope: Scope
    hashes: Sequence[Mapping[str, str]] = ()
    requires: Sequence[str] = ()
    """The purls of what it needs."""


def main() -> None:
    version = importlib.metadata.version("makai")
    components = [*python_components(importlib.metadata.distributions(), locked()), *npm_components(ROOT)]
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    (folder / SBOM).write_text(json.dumps(cyclonedx(version, components), indent=1) + "\n")
    (folder / LICENCES).write_text(licence_page(components))
    print(f"{len(components)} components: build/{SBOM}, build/{LICENCES}")
    if refused := [f"{each.purl}: {each.licence or 'unknown'}" for each in components if not is_allowed(each.licence)]:
        sys.exit("Licences that are not allowed (ALLOWED in tools/sbom.py):\n" + "\n".join(refused))


def locked() -> frozenset[str]:
    return frozenset(name for file in LOCK_FILES for name in pins_of((ROOT / file).read_text()))


def python_components(
    distributions: Iterable[importlib.metadata.Distribution], wanted: frozenset[str]
) -> list[Component]:
    """Those of `wanted` that are installed, in the order of their names."""
    installed = {str(canonicalize_name(found.metadata["Name"])): found for found in distributions}
    part = closure("makai", (), installed)
    with_extras = closure("makai", EXTRAS, installed)
    found = []
    for name in sorted(wanted & installed.keys()):
        scope: Scope = "required" if name in part else "optional" if name in with_extras else "excluded"
        needs = sorted(_purl(installed[each]) for each in _needed(installed[name], ()) if each in installed)
        metadata = installed[name].metadata
        licence = python_licence(metadata)
        found.append(Component(name, metadata["Version"], _purl(installed[name]), licence, scope, requires=needs))
    return found


def closure(
    name: str, extras: Sequence[str], installed: Mapping[str, importlib.metadata.Distribution]
) -> frozenset[str]:
    """All that a package needs, itself included."""
    found, waiting = set[str](), [(name, tuple(extras))]
    while waiting:
        current, with_extras = waiting.pop()
        if current in installed and current not in found:
            found.add(current)
            waiting += _needed(installed[current], with_extras).items()
    return frozenset(found)


def _needed(distribution: importlib.metadata.Distribution, extras: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The packages that it needs here, each with its extras."""
    needed = {}
    for line in distribution.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needed[str(canonicalize_name(requirement.name))] = tuple(requirement.extras)
    return needed


def _purl(distribution: importlib.metadata.Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(distribution.metadata['Name'])}@{distribution.metadata['Version']}"


def python_licence(metadata: Any) -> str:
    """The expression that the metadata states, else the licence that a short field or the classifiers name."""
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classified = [
        text.rpartition(" :: ")[2].lower()
        for text in metadata.get_all("Classifier", ())
        if text.startswith("License :: OSI Approved :: ")
    ]
    stated = (metadata.get("License") or "").strip()
    if is_allowed(NAMED.get(stated.lower(), stated)):
        return NAMED.get(stated.lower(), stated)
    return " OR ".join(sorted({NAMED.get(name, name) for name in classified})) or stated.partition("\n")[0][:80]


def npm_components(root: Path) -> list[Component]:
    found: dict[str, Component] = {}
    for folder, built_in in NPM.items():
        packages = json.loads((root / folder / "package-lock.json").read_text())["packages"]
        part = npm_closure(built_in, packages)
        for path, package in packages.items():
            if not path:
                continue
            name = package.get("name") or path.rpartition("node_modules/")[2]  # a name stands beside an alias
            purl = f"pkg:npm/{name.replace('@', '%40', 1) if name.startswith('@') else name}@{package['version']}"
            scope: Scope = "required" if path in part else "excluded"
            digest = package["integrity"].removeprefix("sha512-")
            hashes = ({"alg": "SHA-512", "content": base64.b64decode(digest).hex()},)
            if purl not in found or scope == "required":
                licence = package.get("license") or LICENCE_FILES.get(purl, "")
                found[purl] = Component(name, package["version"], purl, licence, scope, hashes)
    return [found[purl] for purl in sorted(found)]


def npm_closure(names: Iterable[str], packages: Mapping[str, Any]) -> frozenset[str]:
    """The paths of these packages in a lock file and of all that they need. A copy for one package alone counts as part
    of whatever needs its name."""
    found, waiting = set[str](), [*names]
    while waiting:
        ending = f"node_modules/{waiting.pop()}"
        for path in {each for each in packages if each == ending or each.endswith(f"/{ending}")} - found:
            found.add(path)
            waiting += packages[path].get("dependencies", {})
    return frozenset(found)


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met with allowed licences only: one side of an OR, both of an AND."""
    words = _WORDS.findall(expression)
    try:
        allowed, rest = _either(words)
    except IndexError:
        return False
    return allowed and not rest


def _either(words: Sequence[str]) -> tuple[bool, Sequence[str]]:
    allowed, words = _both(words)
    while words and words[0].upper() == "OR":
        other, words = _both(words[1:])
        allowed = allowed or other
    return allowed, words


def _both(words: Sequence[str]) -> tuple[bool, Sequence[str]]:
    allowed, words = _single(words)
    while words and words[0].upper() == "AND":
        other, words = _single(words[1:])
        allowed = allowed and other
    return allowed, words


def _single(words: Sequence[str]) -> tuple[bool, Sequence[str]]:
    if words[0] != "(":
        return words[0] in ALLOWED, words[1:]
    allowed, words = _either(words[1:])
    return allowed and words[0] == ")", words[1:]


def cyclonedx(version: str, components: Sequence[Component]) -> dict[str, Any]:
    """The same components give the same document: it has no date, and its number follows from its content."""
    listed = []
    for each in components:
        licence = {"licenses": [{"expression": each.licence}]} if is_allowed(each.licence) else {}
        entry = {"type": "library", "bom-ref": each.purl, "name": each.name, "version": each.version}
        listed.append({**entry, "scope": each.scope, **licence, "purl": each.purl, "hashes": list(each.hashes)})
    graph = [{"ref": each.purl, "dependsOn": list(each.requires)} for each in components if each.requires]
    digest = hashlib.sha256(json.dumps([version, listed]).encode()).hexdigest()
    root = {"type": "application", "bom-ref": f"pkg:pypi/makai@{version}", "name": "makai", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(digest[:32], version=4)}",
        "version": 1,
        "metadata": {"component": {**root, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": listed,
        "dependencies": graph,
    }


def licence_page(components: Sequence[Component]) -> str:
    titles = {
        "required": "Part of makai",
        "optional": "Part of makai with an extra",
        "excluded": "For development only",
    }
    lines = ["# Licences", ""]
    for scope, title in titles.items():
        lines += [f"## {title}", "", "| package | version | licence |", "|---|---|---|"]
        lines += [
            f"| {each.name} ({each.purl.partition('/')[0].removeprefix('pkg:')}) | {each.version} | {each.licence} |"
            for each in components
            if each.scope == scope
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
