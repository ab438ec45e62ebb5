"""Rules that a reader relies on and no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import makai
from makai.catalog.vendor_table import builtin_vendors
from makai.core.config import LoginConfig, PermissionsConfig, ProviderConfig

ROOT = Path(__file__).resolve().parents[2]
OWN_VARIABLE = re.compile(r"\"(MAKAI_[A-Z_]+)\"")
UNFINISHED = re.compile(r"(#|//)\s*(TODO|FIXME|XXX)\b")
# Written in halves, so that this file does not break its own rule.
PLACES_OF_ONE_MACHINE = (
    "/wo" + "rk/",
    "/ro" + "ot/",
    "py" + "pi.org",
    "registry.npm" + "js",
    "files.python" + "hosted",
)


def project_files() -> dict[str, str]:
    """Path and text of every file that is, or is about to be, in version control."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return {name: (ROOT / name).read_text(encoding="utf-8", errors="replace") for name in names}


def test_every_module_opens_with_a_docstring() -> None:
    """Empty package markers are the exception: they say nothing."""
    modules = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    silent = [
        str(path.relative_to(ROOT)) for path, text in modules.items() if text and not ast.get_docstring(ast.parse(text))
    ]

    assert silent == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    code = {name: text for name, text in project_files().items() if name.endswith((".py", ".ts", ".svelte"))}

    assert [name for name, text in code.items() if UNFINISHED.search(text)] == []


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    """A clone must work behind any mirror and in any folder."""
    offenders = {
        name: [place for place in PLACES_OF_ONE_MACHINE if place in text] for name, text in project_files().items()
    }

    assert {name: places for name, places in offenders.items() if places} == {}


def test_the_public_names_are_sorted_and_importable() -> None:
    names = list(getattr(makai, "__all__", []))

    assert names == sorted(names, key=str.casefold)
    assert [name for name in names if not hasattr(makai, name)] == []


def test_the_documentation_lists_every_vendor_and_its_environment_variables() -> None:
    page = (ROOT / "docs/models-and-logins.md").read_text(encoding="utf-8")
    names = {
        name
        for vendor in builtin_vendors().values()
        if vendor.api != "scripted"
        for name in (
            vendor.id,
            *vendor.key_variables,
            vendor.base_url_variable,
            *sum(vendor.option_variables.values(), ()),
        )
        if name
    }

    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_the_documentation_lists_every_setting_and_every_variable_of_makai() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    settings = {
        name for struct in (PermissionsConfig, ProviderConfig, LoginConfig) for name in struct.__struct_fields__
    }
    variables = {
        name for path in (ROOT / "src").rglob("*.py") for name in OWN_VARIABLE.findall(path.read_text("utf-8"))
    }

    assert sorted(name for name in settings | variables if f"`{name}`" not in page) == []


BODY_READ = re.compile(r"\bcontent\.(read|iter_)|\b(response|request|answer)\.(read|text|json)\(\)")
STREAMS = {
    "src/makai/aio/http_body.py",
    "src/makai/providers/http.py",
    "src/makai/providers/local/fetch.py",
    "src/makai/transports/sse.py",
}
"""The bounded reader, and three readers of streams that use every segment as it comes."""


def test_bodies_are_read_by_the_one_bounded_reader() -> None:
    """A single read of a body gives its first segment only."""
    modules = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}

    assert sorted(name for name, text in modules.items() if BODY_READ.search(text)) == sorted(STREAMS)


SHARED_MARK = re.compile(r"processes_with\([\"']|mark = (f\"[^\"]*\{tmp_path\.name\}|\")")


def test_tests_look_for_processes_by_a_mark_that_no_other_run_has() -> None:
    """They look at the whole machine, where another run of the same test may be at the same place."""
    tests = {name: text for name, text in project_files().items() if name.startswith("tests/") and name.endswith(".py")}

    assert [name for name, text in tests.items() if SHARED_MARK.search(text)] == []
