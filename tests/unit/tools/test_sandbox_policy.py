"""What a policy is computed from and protects; and a sandbox is found by trying it, never missing in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.core.errors import InvalidRequest, NotSupported
from makai.tools.sandbox import policy as sandbox_policy
from makai.tools.sandbox.detect import Detection, detect, first_that_works, try_bubblewrap, try_landlock
from makai.tools.sandbox.policy import SandboxPolicy, is_beneath


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("work/.git", "makai", "user/project"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def policy_in(
    folders: Path, root: str, level: sandbox_policy.SandboxLevel = "workspace-write", *, git_writable: bool = False
) -> SandboxPolicy:
    homes = folders / "makai", folders / "user"
    return sandbox_policy.session_policy(
        level,
        [folders / root],
        makai_home=homes[0],
        user_home=homes[1],
        git_folders=[str(folders / root / ".git")] if git_writable else (),
    )


def test_a_policy_holds_real_paths_of_the_sessions_roots(folders: Path) -> None:
    (folders / "checkout").symlink_to(folders / "work")

    policy = policy_in(folders, "checkout")

    work = str(folders / "work")
    assert (policy.roots, policy.writable, policy.network) == ((work,), (work,), False)
    assert policy.protected == (f"{work}/.git",)
    assert str(folders / "makai") in policy.hidden
    assert str(folders / "user/.ssh") in policy.hidden


def test_nothing_is_writable_when_everything_is_read_only(folders: Path) -> None:
    policy = policy_in(folders, "work", "read-only")

    assert policy.writable == ()


def test_a_command_allowed_to_write_the_repository_still_cannot_plant_code_in_it(folders: Path) -> None:
    closed = {str(folders / "work/.git" / name) for name in ("hooks", "config", "modules", "worktrees")}
    for path in closed:
        Path(path).mkdir()

    policy = policy_in(folders, "work", git_writable=True)

    assert set(policy.protected) >= closed
    assert str(folders / "work/.git") not in policy.protected


def test_nothing_that_is_missing_is_protected_because_that_takes_a_mount_point(folders: Path) -> None:
    assert policy_in(folders, "user").protected == ()


@pytest.mark.parametrize("root", ["user", "."])
def test_who_works_in_the_home_folder_keeps_its_startup_files(folders: Path, root: str) -> None:
    files = {folders / "user" / name for name in sandbox_policy.PROTECTED_IN_USER_HOME}
    assert sandbox_policy.not_to_be_made(folders / "user") >= {str(file) for file in files}
    for file in files:
        file.mkdir(parents=True)

    policy = policy_in(folders, root)

    assert {str(file) for file in files} <= set(policy.protected)


@pytest.mark.parametrize("root", ["makai", "makai/tmp", "link"])
def test_secrets_are_no_place_to_work_in(folders: Path, root: str) -> None:
    (folders / "makai/tmp").mkdir()
    (folders / "link").symlink_to(folders / "makai")

    with pytest.raises(InvalidRequest, match="holds secrets"):
        policy_in(folders, root)


@pytest.mark.parametrize("root", ["missing", "file"])
def test_a_root_is_a_folder(folders: Path, root: str) -> None:
    (folders / "file").write_text("")

    with pytest.raises(InvalidRequest, match="is not a folder"):
        policy_in(folders, root, "read-only")


def test_a_name_that_begins_like_a_folder_is_not_in_it() -> None:
    assert not is_beneath("/srv/app-secret", "/srv/app")
    assert is_beneath("/srv/app", "/srv/app")
    assert is_beneath("/srv", "/")


def test_a_writable_folder_in_another_one_is_no_folder_of_its_own() -> None:
    policy = SandboxPolicy(level="workspace-write", roots=("/w/a/b", "/w"), extra_writable=("/cache", "/w/x"))

    assert policy.writable == ("/cache", "/w")
    assert sandbox_policy.outermost(["/a/b", "/a-b", "/a", "/a/b/c"]) == ("/a", "/a-b")


CONFINED = SandboxPolicy(level="workspace-write", roots=("/usr",))
NOTHING = first_that_works([lambda: "bubblewrap is not installed", lambda: "Landlock is missing"])


@pytest.mark.proof("B3")
def test_without_a_sandbox_nothing_runs_confined_and_the_error_says_what_to_install() -> None:
    for attempt in (lambda: NOTHING.wrap(CONFINED, ["true"]), lambda: NOTHING.holding(CONFINED)):
        with pytest.raises(NotSupported) as caught:
            attempt()
        assert caught.value.message == (
            "No sandbox works here, so nothing can run workspace-write: "
            "bubblewrap is not installed; Landlock is missing."
        )
        assert "apt install bubblewrap" in (caught.value.hint or "")


def test_full_access_needs_no_sandbox() -> None:
    policy = SandboxPolicy(level="full-access", roots=())

    with NOTHING.holding(policy):
        assert NOTHING.wrap(policy, ["ls", "-l"]) == ["ls", "-l"]


def test_the_doctor_says_why_there_is_none() -> None:
    assert NOTHING.describe() == (
        "none (bubblewrap is not installed; Landlock is missing): every command asks first, and then runs unconfined"
    )


@pytest.mark.parametrize(("failures", "works"), [(2, True), (1000, False)])
def test_a_bubblewrap_that_never_confines_is_not_used_and_says_why(tmp_path: Path, failures: int, works: bool) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        '#!/bin/sh\ncase "$1" in --version) echo bubblewrap 0.1;; --help) ;;\n'
        f"*) echo >> $0.runs; test $(wc -l < $0.runs) -gt {failures} || {{ echo 'Not allowed' >&2; exit 1; }};; esac\n"
    )
    program.chmod(0o755)
    found = try_bubblewrap(str(program))

    assert (found == "bubblewrap 0.1 does not work: Not allowed", isinstance(found, str)) == (not works, not works)


def test_a_bubblewrap_that_cannot_be_started_is_not_used(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("")

    assert try_bubblewrap(str(program)) == f"{program} does not run: [Errno 13] Permission denied: '{program}'"


@pytest.mark.parametrize(
    ("abi", "problem"),
    [
        (0, "Landlock is missing or switched off in this kernel"),
        (2, "Landlock ABI 2 is too old (ABI 3, Linux 6.2, is needed)"),
    ],
)
def test_a_kernel_whose_landlock_leaves_files_open_is_refused(abi: int, problem: str) -> None:
    assert try_landlock(abi) == problem


def test_the_first_that_works_is_taken_and_the_better_ones_are_explained() -> None:
    second = try_landlock()
    if isinstance(second, str):
        pytest.skip(second)

    found = first_that_works([lambda: "bubblewrap is not installed", lambda: second, lambda: "never asked"])

    assert found == Detection(backend=second, problems=("bubblewrap is not installed",))
    assert found.describe().startswith("landlock ABI ")
    assert "(bubblewrap is not installed). Not confined: memory" in found.describe()


def test_this_machine_is_tried_once() -> None:
    assert detect() is detect()
