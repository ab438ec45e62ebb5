"""A person opens the sandbox for a call: the commit is made and the package installed, and nothing else is opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daily_work import (
    BACKENDS,
    PYTHON,
    git,
    make_project,
    package_index,
    results,
    session,
    shell,
    use_backend,
    work,
)
from support.places import folder_outside_tmp

from makai.core import session_events as ev
from makai.core.confinement import Confinement

ONCE: tuple[ev.GrantScope, str] = ("once", "")
PLANT = "echo evil >.git/hooks/pre-commit; echo evil >>.git/config; echo ../evil >.git/commondir; git log --oneline -1"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_outside_tmp() as found:
        yield found.resolve()


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_backend(request.param, monkeypatch)
    return str(request.param)


@pytest.mark.usefixtures("backend")
async def test_a_commit_is_made_with_git_and_its_hooks_and_configuration_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(folder)
    before = {name: (project / ".git" / name).read_bytes() for name in ("config", "description")}
    commit = "echo '# more' >>src/sums.py; git commit -qam 'Say more' && git log --format=%s"
    scenario = [shell(commit), shell(commit, git=True, reason="to commit"), shell(PLANT, git=True), "say: Done."]

    async with session(folder, project, scenario, monkeypatch) as desk:
        await work(desk, "Commit it", ONCE, ONCE, ONCE)
        closed, opened, planted = results(desk)
        asked = desk.events(ev.ApprovalRequested)

    assert closed[0] == 128, closed
    assert opened == (0, "Say more\nAdd sums")
    assert planted[0] in (0, 128), planted  # what is planted is gone, or could not be written
    assert {name: (project / ".git" / name).read_bytes() for name in before} == before
    assert [(project / ".git" / name).exists() for name in ("hooks/pre-commit", "commondir")] == [False, False]
    assert [question.confinement for question in asked] == [
        Confinement(),
        *[Confinement(git=True, git_folders=(str(project / ".git"),))] * 2,
    ]
    assert len({question.digest for question in asked}) == 3


@pytest.mark.usefixtures("backend")
async def test_a_linked_worktree_is_committed_in_and_the_main_one_keeps_its_hooks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = make_project(folder)
    git(main, "worktree", "add", "-q", str(folder / "linked"))
    commit = "echo '# more' >>src/sums.py; git commit -qam 'Say more' && git log --format=%s"
    scenario = [shell(f"{commit}; echo evil >{main}/.git/hooks/pre-commit", git=True), "say: Done."]

    async with session(folder, folder / "linked", scenario, monkeypatch) as desk:
        await work(desk, "Commit it", ONCE)
        [(_, said)] = results(desk)

    assert said.startswith("Say more\nAdd sums"), said
    assert not (main / ".git/hooks/pre-commit").exists()


@pytest.mark.usefixtures("backend")
async def test_a_rule_for_the_command_alone_does_not_open_the_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(folder)
    scenario = [
        *(shell("git commit -q --allow-empty -m one"), shell("git commit -q --allow-empty -m two", git=True)),
        *("say: Refused.", shell("git commit -q --allow-empty -m three", git=True), "say: Done."),
    ]

    async with session(folder, project, scenario, monkeypatch) as desk:
        await work(desk, "Commit", None, terms=ev.RunTerms(allow=("Bash(git commit:*)",)))
        await work(desk, "Commit", terms=ev.RunTerms(allow=("Bash(git commit:*)+git",)))
        codes = [code for code, _ in results(desk)]

    assert (codes, git(project, "log", "--format=%s").split("\n")[:2]) == ([128, None, 0], ["three", "Add sums"])


@pytest.mark.usefixtures("backend")
async def test_a_package_is_installed_with_one_approval(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(folder)
    with package_index(folder) as index:
        install = (
            f"{PYTHON} -m venv src/.venv && src/.venv/bin/pip install -q --disable-pip-version-check -i {index} "
            "greeting && src/.venv/bin/python -c 'import greeting'"
        )
        scenario = [shell(install), shell(install, network=["*"]), "say: Done."]
        async with session(folder, project, scenario, monkeypatch) as desk:
            await work(desk, "Install it", ONCE, ONCE)
            (closed, _), (opened, said) = results(desk)

    assert (closed == 0, opened) == (False, 0), said
    assert said.endswith("hello from greeting")


@pytest.mark.usefixtures("backend")
async def test_package_managers_have_a_cache_that_they_can_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(folder)
    caches = ("npm_config_cache", "PIP_CACHE_DIR", "YARN_CACHE_FOLDER", "GOCACHE")
    write = "; ".join(f'mkdir -p "${name}" && echo written >"${name}/probe" && cat "${name}/probe"' for name in caches)
    scenario = [shell(write), "say: Done."]

    async with session(folder, project, scenario, monkeypatch) as desk:
        await work(desk, "Go", ONCE)
        said = results(desk)

    assert said == [(0, "\n".join(["written"] * len(caches)))]


@pytest.mark.usefixtures("backend")
async def test_a_folder_is_opened_and_its_neighbours_are_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(folder)
    (folder / "dist/out").mkdir(parents=True)
    (folder / "other").mkdir()
    write = f"echo built >{folder}/dist/out/a; echo built >{folder}/other/a"
    scenario = [shell(write, write_folders=[f"{folder}/dist/out"]), "say: Done."]

    async with session(folder, project, scenario, monkeypatch) as desk:
        await work(desk, "Build it", ONCE)

    assert [(folder / name / "a").exists() for name in ("dist/out", "other")] == [True, False]


@pytest.mark.usefixtures("backend")
async def test_without_the_sandbox_a_command_does_what_the_user_can(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(folder)
    scenario = [shell(f"echo out >{folder}/outside", no_sandbox=True), "say: Done."]

    async with session(folder, project, scenario, monkeypatch) as desk:
        await work(desk, "Go", ONCE)
        [asked] = desk.events(ev.ApprovalRequested)

    assert (folder / "outside").read_text() == "out\n"
    assert (asked.confinement, asked.grants) == (Confinement(unsandboxed=True), ())


async def test_a_session_that_never_asks_opens_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(folder)
    asks: list[dict[str, Any]] = [
        {"git": True},
        {"network": ["*"]},
        {"write_folders": [str(folder)]},
        {"no_sandbox": True},
    ]
    scenario = [*(shell(f"echo out >{folder}/outside", **each) for each in asks), "say: Done."]

    async with session(folder, project, scenario, monkeypatch, mode="never_ask") as desk:
        await work(desk, "Go")
        said = [text for _, text in results(desk)]

    assert not (folder / "outside").exists()
    assert ["denied: The session never asks" in text for text in said] == [True, True, False, True]
    assert "cannot be opened" in said[2]  # the user's home folder
