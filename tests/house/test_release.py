"""What `make release` refuses. The release itself is too long for every push; `make release REHEARSAL=yes` tries it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from pathlib import Path

import pytest

from tools import image_size
from tools import release_checks as checks
from tools.lock import ROOT
from tools.release import Report

TRACKED = ["src/makai/a.py", "README.md", "benchmarks/b.py"]
PAGE = ["index.html"]
DIST_INFO = [
    f"makai-1.0.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
]
MAN = "makai-1.0.data/data/share/man/man1/makai.1"
WHEEL = ["makai/a.py", "makai/server/page/index.html", MAN, *DIST_INFO]
SDIST = [
    f"makai-1.0/{name}" for name in ("src/makai/a.py", "src/makai/server/page/index.html", "README.md", "PKG-INFO")
]
METADATA = b"""\
Metadata-Version: 2.4
Name: makai
Version: 1.0
License-Expression: Apache-2.0
Requires-Python: >=3.11
Classifier: Programming Language :: Python :: 3.11
Description-Content-Type: text/markdown

# makai
"""


def test_this_checkout_states_one_version_and_its_changelog_is_ready_for_a_rehearsal() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = checks.version_of(ROOT)

    assert checks.version_problems(ROOT) == []
    assert checks.changelog_problems(changelog, version, is_rehearsal=True) == []


@pytest.mark.parametrize(
    ("changelog", "is_rehearsal", "problems"),
    [
        ("# Changelog\n\n## [1.0] - 2026-11-18\n\n- It works.\n", False, []),
        ("## [Unreleased]\n\n- It works.\n", True, []),
        ("## [Unreleased]\n\n- It works.\n", False, ['CHANGELOG.md has no section "## [1.0] - YYYY-MM-DD"']),
        ("## [1.0]\n\n- It works.\n", False, ['CHANGELOG.md has no section "## [1.0] - YYYY-MM-DD"']),
        ("## [1.0] - 2026-11-18\n\n## [0.9]\n- Old.\n", False, ['the section "[1.0] - 2026-11-18" lists nothing']),
    ],
)
def test_a_release_has_a_dated_section_in_the_changelog(
    changelog: str, is_rehearsal: bool, problems: list[str]
) -> None:
    assert checks.changelog_problems(changelog, "1.0", is_rehearsal=is_rehearsal) == problems


@pytest.mark.parametrize(
    ("names", "problems"),
    [
        (WHEEL, []),
        ([*WHEEL, "makai/.env"], ["stray: makai/.env"]),
        ([name for name in WHEEL if "page" not in name], ["missing: makai/server/page/index.html"]),
        ([name for name in WHEEL if "man1" not in name], [f"missing: {MAN}"]),
    ],
)
def test_a_wheel_has_the_package_its_page_and_nothing_else(names: Collection[str], problems: list[str]) -> None:
    assert checks.wheel_problems(names, "1.0", TRACKED, PAGE) == problems


def test_a_source_package_has_the_page_and_no_file_that_git_does_not_know() -> None:
    assert checks.sdist_problems(SDIST, "1.0", TRACKED, PAGE, ["benchmarks"]) == []
    assert checks.sdist_problems([*SDIST[1:], "makai-1.0/notes.txt"], "1.0", TRACKED, PAGE, ["benchmarks"]) == [
        "missing: makai-1.0/src/makai/a.py",
        "stray: makai-1.0/notes.txt",
    ]


def test_a_package_for_npm_has_both_kinds_of_modules_and_no_sources() -> None:
    built = [f"package/dist/{kind}/index.{ext}" for kind in ("esm", "cjs") for ext in ("js", "d.ts")]

    assert checks.npm_problems(["package/package.json", *built]) == []
    assert checks.npm_problems(["package/src/index.ts", *built[1:]]) == [
        "missing: package/dist/esm/index.js",
        "stray: package/src/index.ts",
    ]


@pytest.mark.parametrize(
    ("metadata", "problems"),
    [
        (METADATA, []),
        (METADATA.replace(b"\nVersion: 1.0", b"\nVersion: 1.1"), ["version differs"]),
        (METADATA.replace(b"# makai", b"# other"), ["description differs"]),
        (METADATA.replace(b":: 3.11", b":: 3"), ["no classifier names a version of Python"]),
        (
            METADATA.replace(b"Requires-Python", b"Requires-Dist: a @ https://a.example/a.whl\nRequires-Python"),
            ["an index refuses a dependency with an address: a"],
        ),
    ],
)
def test_metadata_says_what_an_index_needs(metadata: bytes, problems: list[str]) -> None:
    assert checks.metadata_problems(metadata, "1.0", "# makai") == problems


def test_metadata_that_an_index_cannot_read_is_a_problem() -> None:
    unreadable = METADATA.replace(b"Expression: Apache-2.0", b"Expression: ?")

    assert len(checks.metadata_problems(unreadable, "1.0", "")) == 1


def test_a_failed_check_fails_the_release_and_one_that_cannot_run_does_not() -> None:
    report = Report()
    report.check("a", lambda: "fine")
    report.check("b", lambda: None)
    assert report.failed is False
    report.check("c", lambda: ["broken"])

    assert report.failed is True
    assert [(name, state) for name, state, _ in report.rows] == [("a", "ok"), ("b", "SKIPPED"), ("c", "FAILED")]


def test_the_docker_image_stays_below_its_bar() -> None:
    installed = {each.metadata["Name"].lower().replace("_", "-"): each for each in importlib.metadata.distributions()}

    assert sum(image_size.layers(installed, Path(ROOT)).values()) < image_size.BAR_MB
