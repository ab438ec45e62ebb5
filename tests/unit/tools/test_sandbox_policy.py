"""What a policy is computed from, and what it protects."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.core.errors import InvalidRequest
from makai.tools.sandbox.policy import (
    PROTECTED_IN_GIT_FOLDER,
    PROTECTED_IN_ROOTS,
    PROTECTED_IN_USER_HOME,
    SandboxPolicy,
    is_beneath,
    outermost,
    session_policy,
)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("work/.git", "makai", "user/project"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_a_policy_holds_real_paths_of_the_sessions_roots(folders: Path) -> None:
    (folders / "checkout").symlink_to(folders / "work")

    policy = session_policy(
        "workspace-write", [folders / "checkout"], makai_home=folders / "makai", user_home=folders / "user"
    )

    work = str(folders / "work")
    assert (policy.roots, policy.writable, policy.network) == ((work,), (work,), False)
    assert policy.protected == tuple(f"{work}/{name}" for name in (*PROTECTED_IN_ROOTS, ".git"))
    assert str(folders / "makai") in policy.hidden
    assert str(folders / "user/.ssh") in policy.hidden


def test_nothing_is_writable_when_everything_is_read_only(folders: Path) -> None:
    policy = session_policy("read-only", [folders / "work"], makai_home=folders / "makai", user_home=folders / "user")

    assert policy.writable == ()


def test_a_command_allowed_to_write_the_repository_still_cannot_plant_code_in_it(folders: Path) -> None:
    policy = session_policy(
        "workspace-write",
        [folders / "work"],
        makai_home=folders / "makai",
        user_home=folders / "user",
        git_writable=True,
    )

    assert set(policy.protected) >= {str(folders / "work" / name) for name in PROTECTED_IN_GIT_FOLDER}
    assert str(folders / "work/.git") not in policy.protected


def test_a_folder_without_a_repository_cannot_become_one(folders: Path) -> None:
    policy = session_policy(
        "workspace-write", [folders / "user/project"], makai_home=folders / "makai", user_home=folders / "user"
    )

    assert {str(folders / "user/project" / name) for name in (".git", "HEAD")} <= set(policy.protected)


@pytest.mark.parametrize("root", ["user", "."])
def test_who_works_in_the_home_folder_keeps_its_startup_files(folders: Path, root: str) -> None:
    policy = session_policy(
        "workspace-write", [folders / root], makai_home=folders / "makai", user_home=folders / "user"
    )

    assert {str(folders / "user" / name) for name in PROTECTED_IN_USER_HOME} <= set(policy.protected)


@pytest.mark.parametrize("root", ["makai", "makai/tmp", "link"])
def test_secrets_are_no_place_to_work_in(folders: Path, root: str) -> None:
    (folders / "makai/tmp").mkdir()
    (folders / "link").symlink_to(folders / "makai")

    with pytest.raises(InvalidRequest, match="holds secrets"):
        session_policy("workspace-write", [folders / root], makai_home=folders / "makai", user_home=folders / "user")


@pytest.mark.parametrize("root", ["missing", "file"])
def test_a_root_is_a_folder(folders: Path, root: str) -> None:
    (folders / "file").write_text("")

    with pytest.raises(InvalidRequest, match="is not a folder"):
        session_policy("read-only", [folders / root], makai_home=folders / "makai", user_home=folders / "user")


def test_a_name_that_begins_like_a_folder_is_not_in_it() -> None:
    assert not is_beneath("/srv/app-secret", "/srv/app")
    assert is_beneath("/srv/app", "/srv/app")
    assert is_beneath("/srv", "/")


def test_a_writable_folder_in_another_one_is_no_folder_of_its_own() -> None:
    policy = SandboxPolicy(level="workspace-write", roots=("/w/a/b", "/w"), extra_writable=("/cache", "/w/x"))

    assert policy.writable == ("/cache", "/w")
    assert outermost(["/a/b", "/a-b", "/a", "/a/b/c"]) == ("/a", "/a-b")
