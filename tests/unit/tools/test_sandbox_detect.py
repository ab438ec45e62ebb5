"""A sandbox is found by trying it, and never missing in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.core.errors import NotSupported
from makai.tools.sandbox.detect import Detection, detect, first_that_works, try_bubblewrap, try_landlock
from makai.tools.sandbox.policy import SandboxPolicy

CONFINED = SandboxPolicy(level="workspace-write", roots=("/usr",))
NOTHING = first_that_works([lambda: "bubblewrap is not installed", lambda: "Landlock is missing"])


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


def test_the_doctor_is_told_why_there_is_none() -> None:
    assert NOTHING.describe() == (
        "none (bubblewrap is not installed; Landlock is missing): every command asks first, and then runs unconfined"
    )


def test_a_bubblewrap_that_cannot_confine_is_not_used_and_says_why(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        '#!/bin/sh\ncase "$1" in --version) echo bubblewrap 0.1;; --help) ;;\n'
        "*) echo 'bwrap: No permissions to create new namespace' >&2; exit 1;; esac\n"
    )
    program.chmod(0o755)

    assert try_bubblewrap(str(program)) == (
        "bubblewrap 0.1 does not work: bwrap: No permissions to create new namespace"
    )


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
