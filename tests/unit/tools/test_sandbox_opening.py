"""What can be opened for a command: which folders, which repository, and what of a repository stays as it was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import InvalidRequest
from makai.tools.own_code import OWN_CODE
from makai.tools.sandbox.opening import resolved
from makai.tools.sandbox.policy import SandboxLevel, session_policy
from makai.tools.sandbox.repository import closed_in, git_folders_of, kept_settings


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("work/src", "home/.ssh", "home/.cache/pip", "home/.cache/makai/sessions/s/tmp", "state/x", "dist/a"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("other/.git/hooks", "home/.config/systemd", "home/project/.vscode"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def opened(base: Path, wanted: Confinement, level: SandboxLevel = "workspace-write") -> Confinement:
    policy = session_policy(
        level,
        [base / "work"],
        makai_home=base / "state",
        user_home=base / "home",
        private_tmp=base / "home/.cache/makai/sessions/s/tmp",
    )
    return resolved(wanted, str(base / "work"), policy, base / "home")


def test_folders_are_shown_as_the_real_ones_each_once_without_what_is_writable_anyway(base: Path) -> None:
    (base / "link").symlink_to(base / "dist")
    named = (str(base / "link"), str(base / "dist/a"), "../dist", "src", "~/.cache/pip")

    assert opened(base, Confinement(folders=named)) == Confinement(
        folders=(str(base / "dist"), str(base / "home/.cache/pip"))
    )


def test_in_a_session_that_only_reads_its_own_folder_can_be_opened(base: Path) -> None:
    assert opened(base, Confinement(folders=("src",)), "read-only").folders == (str(base / "work/src"),)


@pytest.mark.parametrize(
    "folder",
    [
        *("home/.ssh", "state", "state/x", "home", ".", "home/.cache", "home/.cache/makai/sessions/s/tmp"),
        *("home/.cache/makai", "other/.git", "other/.git/hooks", "home/.config/systemd", "home/project/.vscode"),
        *("missing", "secrets"),
    ],
)
def test_a_folder_that_would_give_more_than_it_says_is_never_opened(base: Path, folder: str) -> None:
    (base / "secrets").symlink_to(base / "home/.ssh")

    with pytest.raises(InvalidRequest):
        opened(base, Confinement(folders=(str(base / folder),)))


@pytest.mark.parametrize(
    "folder", ["/", "/etc", "/usr/local/lib", "/proc/self", "/tmp", "/dev/shm", "", "a\x1bb", "~root"]
)
def test_a_folder_of_the_system_is_never_opened(base: Path, folder: str) -> None:
    with pytest.raises(InvalidRequest):
        opened(base, Confinement(folders=(folder,)))


def test_the_code_of_makai_is_never_opened(base: Path) -> None:
    for folder in filter(os.path.isdir, OWN_CODE):
        with pytest.raises(InvalidRequest):
            opened(base, Confinement(folders=(folder,)))


def test_without_a_sandbox_there_is_nothing_to_open_and_no_sandbox_is_all_of_it(base: Path) -> None:
    wanted = Confinement(network=("*",), folders=("/missing",), unsandboxed=True)

    assert opened(base, wanted, "full-access") == SESSION_SANDBOX
    assert opened(base, wanted) == Confinement(unsandboxed=True)


# Repositories ---------------------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "main"
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_the_repository_is_the_one_around_the_commands_folder(repository: Path) -> None:
    assert git_folders_of(str(repository)) == git_folders_of(str(repository / "src")) == (str(repository / ".git"),)


def test_a_linked_worktree_writes_the_main_repository_and_its_own_part_of_it(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    git(repository, "worktree", "add", "-q", str(tmp_path / "another"))
    main, own = str(repository / ".git"), str(repository / ".git/worktrees/linked")

    found = git_folders_of(str(tmp_path / "linked"))

    closed = set(closed_in(found))
    assert found == (main, own)
    assert closed >= {
        f"{main}/hooks",
        f"{main}/config",
        f"{main}/worktrees/another",
        f"{own}/commondir",
        f"{own}/gitdir",
    }
    assert f"{main}/worktrees" not in closed


def test_a_submodule_writes_its_own_repository(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "library")
    git(repository, "submodule", "add", "-q", str(tmp_path / "library"), "library")

    assert git_folders_of(str(repository / "library")) == (str(repository / ".git/modules/library"),)


@pytest.mark.parametrize("named", ["{}/.git", "{}/.git/worktrees/linked", "{}", "/missing", ""])
def test_a_repository_that_does_not_name_the_folder_is_not_opened(repository: Path, tmp_path: Path, named: str) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/.git").write_text(f"gitdir: {named.format(repository)}\n")

    with pytest.raises(InvalidRequest, match="does not belong to this folder"):
        git_folders_of(str(tmp_path / "foreign"))


def test_a_link_to_a_repository_is_not_opened(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/.git").symlink_to(repository / ".git")

    with pytest.raises(InvalidRequest, match="symbolic link"):
        git_folders_of(str(tmp_path / "foreign"))


def test_what_runs_code_later_is_as_it_was_when_the_command_has_ended(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    folder = repository / ".git"
    (folder / "hooks/pre-push").write_text("exit 0\n")
    (folder / "hooks/pre-push").chmod(0o755)
    (folder / "hooks/link").symlink_to("pre-push")
    before = _tree(folder)

    with kept_settings((str(folder),)):
        (folder / "hooks/pre-push").unlink()
        (folder / "hooks/link").unlink()
        (folder / "hooks/post-commit").write_text("evil\n")
        (folder / "config").unlink()
        (folder / "config").symlink_to(tmp_path / "evil")
        (folder / "commondir").write_text("../evil\n")
        (folder / "config.worktree").write_text("[core]\n")
        (folder / "worktrees/linked/gitdir").write_text("elsewhere\n")
        (folder / "modules/evil/hooks").mkdir(parents=True)
        (folder / "modules/evil/config").write_text("[core]\n")
        (folder / "refs/heads/new").write_text("not a setting\n")

    after = _tree(folder)
    assert {name: entry for name, entry in after.items() if before.get(name) != entry} == {
        "refs/heads/new": b"not a setting\n",
    }
    assert before.keys() <= after.keys()


def test_what_a_link_leads_to_is_not_written_when_settings_are_restored(repository: Path, tmp_path: Path) -> None:
    folder, victim = repository / ".git", tmp_path / "victim"
    victim.mkdir()
    (folder / "hooks/pre-push").write_text("mine\n")

    with kept_settings((str(folder),)):
        os.rename(folder / "hooks", tmp_path / "moved")
        (folder / "hooks").symlink_to(victim)

    assert list(victim.iterdir()) == []
    assert (folder / "hooks/pre-push").read_text() == "mine\n"
    assert not (folder / "hooks").is_symlink()


def _tree(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else "folder"
        if path.is_dir()
        else path.read_bytes()
        for path in folder.rglob("*")
    }
