"""Workflows, forms and the Dockerfile name commands and files that exist. Read as lines: no parser is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
YAML_FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / ".github").rglob("*.yml"))
WORKFLOWS = [name for name in YAML_FILES if "/workflows/" in name]
_LINE = re.compile(r"(?P<indent> *)(- )?(?P<rest>[A-Za-z_][\w.-]*:( .+)?|[^\s:].*)")


def _makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def _commands(name: str) -> list[str]:
    return re.findall(r"^\s*- run: (.+)$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", YAML_FILES)
def test_a_file_is_indented_in_steps_of_two_and_opens_no_quote_that_it_does_not_close(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line.strip()]
    content = [line for line in lines if not line.lstrip().startswith("#")]

    assert [line for line in content if "\t" in line or not _LINE.fullmatch(line)] == []
    assert [line for line in content if (len(line) - len(line.lstrip())) % 2] == []
    assert [line for line in content if "run:" not in line and line.count('"') % 2] == []


def test_every_make_target_of_a_workflow_exists() -> None:
    named = {
        target for name in WORKFLOWS for line in _commands(name) for target in re.findall(r"\bmake ([a-z-]+)", line)
    }

    assert named == {"check", "release"}
    assert named <= _makefile_targets()


def test_every_script_of_a_workflow_exists() -> None:
    words = {word for name in WORKFLOWS for line in _commands(name) for word in line.split()}
    named = {word for word in words if re.fullmatch(r"(\.ci|tools)/\S+", word)}

    assert named == {".ci/run", "tools/system_packages.py"}
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_read_only_unless_a_job_says_more_and_every_action_has_a_version(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    assert "\npermissions:\n  contents: read\n" in text
    assert all("@" in used for used in re.findall(r"uses: (\S+)", text))
    jobs = re.findall(r"^  [a-z-]+:$", text.partition("\njobs:\n")[2], re.MULTILINE)
    assert len(jobs) == text.count("\n    runs-on: ") == text.count("\n    timeout-minutes: ")
    assert "pull_request_target" not in text
    assert "secrets." not in text


def test_the_workflow_tests_every_python_that_the_lock_files_have() -> None:
    from tools.lock import PYTHONS
    from tools.release import PYTHONS as RELEASED

    matrix = re.findall(
        r'"(3\.\d+)"', (ROOT / ".github/workflows/ci.yml").read_text().partition("matrix:")[2].split("\n")[1]
    )

    assert [f"cp{version.replace('.', '')}" for version in matrix] == list(PYTHONS)
    assert tuple(matrix) == RELEASED


def test_the_image_is_built_from_files_that_exist_and_are_sent_to_the_builder() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE) for word in line.split()[:-1]
    }
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {name.partition("/")[0] for name in copied} == sent
    assert re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE) == ["makai"]
    assert "HEALTHCHECK" in dockerfile


def test_the_image_removes_what_only_the_build_needs() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    (removed,) = re.findall(
        r"pip uninstall -q -y (hatchling .+?) \\", (ROOT / "Dockerfile").read_text(encoding="utf-8")
    )

    assert {line.partition("==")[0] for line in build} <= {*removed.split()}
