"""What a release must be, as pure functions over names and texts. Each returns the problems it found: none is good.

`tools/release.py` builds the files and asks here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from packaging.metadata import Metadata

SOURCE: Final = "src/makai/"
PAGE: Final = "makai/server/page/"
MAN_PAGE: Final = "share/man/man1/makai.1"
_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_NPM_VERSIONS: Final = ("sdk/typescript/package.json", "sdk/typescript/package-lock.json", "web/package.json")
_NPM_FILES: Final = re.compile(r"package/(package\.json|README\.md|LICENSE|dist/(esm|cjs)/[\w/.-]+)")
_NOT_RELEASED: Final = ("Unreleased",)
_CLASSIFIER: Final = "Programming Language :: Python :: "


def version_of(root: Path) -> str:
    """The one place that states the version."""
    found = _VERSION.search((root / "src/makai/core/version.py").read_text(encoding="utf-8"))
    assert found is not None, "src/makai/core/version.py states no version"
    return found[1]


def version_problems(root: Path) -> list[str]:
    """Files of npm repeat the version; they must agree."""
    version = version_of(root)
    stated = {name: json.loads((root / name).read_text(encoding="utf-8"))["version"] for name in _NPM_VERSIONS}
    return [f"{name} says {each}, not {version}" for name, each in stated.items() if each != version]


def changelog_problems(text: str, version: str, *, is_rehearsal: bool) -> list[str]:
    """The changelog has a section for this version with a date; a rehearsal is content with the unreleased one."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    heads = {section.partition("\n")[0]: section.partition("\n")[2] for section in sections}
    dated = [head for head in heads if re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", head)]
    named = dated or ([head for head in heads if head.strip("[]") in _NOT_RELEASED] if is_rehearsal else [])
    if not named:
        return [f'CHANGELOG.md has no section "## [{version}] - YYYY-MM-DD"']
    return [] if re.search(r"^- \S", heads[named[0]], re.MULTILINE) else [f'the section "{named[0]}" lists nothing']


def wheel_problems(names: Collection[str], version: str, tracked: Collection[str], page: Collection[str]) -> list[str]:
    """The wheel has the tracked files of the package, the built page, the manual page and its metadata; no more."""
    info = f"makai-{version}.dist-info"
    meta = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    package = {name.removeprefix("src/") for name in tracked if name.startswith(SOURCE)}
    return _differences(
        names, package | {PAGE + name for name in page} | meta | {f"makai-{version}.data/data/{MAN_PAGE}"}
    )


def sdist_problems(
    names: Collection[str], version: str, tracked: Collection[str], page: Collection[str], left_out: Collection[str]
) -> list[str]:
    """The source package has the tracked files but for some folders, and the built page, so that it needs no npm."""
    kept = {name for name in tracked if name.partition("/")[0] not in left_out}
    wanted = kept | {f"src/{PAGE}{name}" for name in page} | {"PKG-INFO"}
    return _differences(names, {f"makai-{version}/{name}" for name in wanted})


def npm_problems(names: Iterable[str]) -> list[str]:
    listed = list(names)
    missing = {f"package/dist/{kind}/index.{ext}" for kind in ("esm", "cjs") for ext in ("js", "d.ts")} - {*listed}
    stray = [name for name in listed if not _NPM_FILES.fullmatch(name)]
    return [*(f"missing: {name}" for name in sorted(missing)), *(f"stray: {name}" for name in stray)]


def metadata_problems(text: bytes, version: str, readme: str) -> list[str]:
    """What an index checks on upload, and what its page needs."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as error:
        return [str(each) for each in error.exceptions]
    facts = {
        "version": (str(metadata.version), version),
        "name": (metadata.name, "makai"),
        "licence": (metadata.license_expression, "Apache-2.0"),
        "Python": (str(metadata.requires_python), ">=3.11"),
        "description": ((metadata.description or "").strip(), readme.strip()),
        "content type": (metadata.description_content_type, "text/markdown"),
    }
    problems = [f"{name} differs" for name, (found, wanted) in facts.items() if found != wanted]
    if not any(each.startswith(f"{_CLASSIFIER}3.") for each in metadata.classifiers or ()):
        problems.append("no classifier names a version of Python")
    direct = [each.name for each in metadata.requires_dist or () if each.url]
    return [*problems, *(f"an index refuses a dependency with an address: {each}" for each in direct)]


def _differences(found: Collection[str], wanted: Collection[str]) -> list[str]:
    missing, stray = sorted({*wanted} - {*found}), sorted({*found} - {*wanted})
    return [*(f"missing: {name}" for name in missing), *(f"stray: {name}" for name in stray)]


def table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Lines of equal columns: what was checked, how it went, and details."""
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {state:<{widths[1]}}  {detail}".rstrip() for name, state, detail in listed)
