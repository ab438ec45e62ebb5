"""No program that runs outside of every sandbox comes from a folder that commands may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from makai.core.errors import InvalidRequest
from makai.core.programs import editor_command, find_program, folders_outside, trusted_environment
from makai.harness.acp.known_agents import AgentSpec
from makai.tools.sandbox import detect


def program(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_folders_in_the_roots_and_those_open_to_all_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("folder/bin", "folders", "own", "open"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "folder/bin")
    monkeypatch.chdir(tmp_path / "folder")
    names = ("folder", "folder/bin", "folder/../folder/bin", "link", "folders", "own", "open", "missing")
    given = ":".join(["", ".", "bin", "../own", *(f"{tmp_path}/{name}" for name in names)])

    assert folders_outside(given, [str(tmp_path / "folder")]) == f"{tmp_path}/folders:{tmp_path}/own"


def test_the_first_program_outside_is_found(tmp_path: Path) -> None:
    inside, outside = program(tmp_path / "folder/.venv/bin/git"), program(tmp_path / "bin/git")
    path = ":".join(str(Path(one).parent) for one in (inside, outside))

    assert find_program("git", path, [str(tmp_path / "folder")]) == outside
    assert find_program("git", str(Path(inside).parent), [str(tmp_path / "folder")]) is None


def test_a_link_to_a_program_in_the_roots_is_passed_by(tmp_path: Path) -> None:
    inside, outside = program(tmp_path / "folder/dist/agent"), program(tmp_path / "other/agent")
    linked = tmp_path / "bin/agent"
    linked.parent.mkdir()
    linked.symlink_to(inside)
    path = f"{linked.parent}:{tmp_path}/other"

    assert find_program("agent", path, [str(tmp_path / "folder")]) == outside
    assert find_program("agent", path, []) == str(linked)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may replace every program")
def test_a_program_in_the_roots_that_this_user_cannot_replace_is_found() -> None:
    assert find_program("env", "/usr/bin", ["/"]) == "/usr/bin/env"


def test_an_editor_without_a_path_is_not_from_the_roots(tmp_path: Path) -> None:
    inside, outside = program(tmp_path / "folder/bin/ed"), program(tmp_path / "bin/nano")
    roots, path = [str(tmp_path / "folder")], {"PATH": f"{tmp_path}/folder/bin:{tmp_path}/bin"}

    assert editor_command({**path, "EDITOR": "nano -w"}, roots) == [outside, "-w"]
    assert editor_command({**path, "VISUAL": inside, "EDITOR": "nano"}, roots) == [inside]
    assert editor_command(path, roots) == [outside]
    with pytest.raises(OSError, match="not on your PATH"):
        editor_command({**path, "EDITOR": "ed"}, roots)


def test_no_list_of_folders_leads_into_the_roots(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    lists = ("LD_LIBRARY_PATH", "PYTHONPATH", "NODE_PATH", "GEM_PATH")
    given = dict.fromkeys(lists, f":{tmp_path}/folder:{tmp_path}/own")

    found = trusted_environment({**given, "PATH": "bin", "LANG": "C"}, [str(tmp_path / "folder")])

    assert found == {**dict.fromkeys(lists, f"{tmp_path}/own"), "PATH": "", "LANG": "C"}
    assert trusted_environment({"LD_LIBRARY_PATH": ":lib"}, []) == {}


def test_a_bubblewrap_that_a_command_could_replace_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = program(tmp_path / ".venv/bin/bwrap", f"touch {tmp_path}/ran")
    linked = tmp_path / "linked/bwrap"
    linked.parent.mkdir()
    linked.symlink_to("/usr/bin/true")
    monkeypatch.setattr(detect, "_TRUSTED_FOLDERS", "/nonexistent")

    for path in (found, str(linked)):
        monkeypatch.setenv("PATH", f"{Path(path).parent}:/nonexistent")
        why = f"{path} could be replaced by a command, so it is not used (install it as a system package)"
        assert detect.try_bubblewrap() == why

    assert not (tmp_path / "ran").exists()


def test_an_agent_is_not_a_program_that_commands_could_have_put_into_the_project(tmp_path: Path) -> None:
    inside, outside = program(tmp_path / "project/bin/agent"), program(tmp_path / "bin/agent")
    spec, project = AgentSpec(title="An agent", command=("agent",)), str(tmp_path / "project")
    both = {"PATH": f"{tmp_path}/project/bin:{tmp_path}/bin", "HOME": str(tmp_path)}

    assert spec.argv(project, both) == [outside]
    assert AgentSpec(title="An agent", command=("bin/agent",)).argv(project, both) == [inside]
    with pytest.raises(InvalidRequest, match="bin/agent, which commands may write, so it is not started"):
        spec.argv(str(tmp_path), both)  # the home folder
    with pytest.raises(InvalidRequest, match="which commands may write, so it is not started"):
        spec.argv(project, {**both, "PATH": f"{tmp_path}/project/bin"})
