"""Where the tools of a session keep output and temporary files."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from pathlib import Path

import pytest
from support.places import mode

from makai.core.errors import InvalidRequest
from makai.tools.scratch import KEPT_S, CappedOutput, Scratch, open_scratch, remove_old_scratch, remove_scratch


def opened(tmp_path: Path, session_id: str = "s1") -> Scratch:
    return open_scratch(session_id, {"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "home")


def removed_old(tmp_path: Path) -> None:
    remove_old_scratch({"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "home")


def test_the_folders_are_in_the_users_cache_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "cache/makai/sessions/s1"

    scratch = opened(tmp_path)
    assert scratch == Scratch(output=folder / "output", temporary=folder / "tmp")
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder, *folder.iterdir())] == [0o700] * 4
    assert open_scratch("s1", {"HOME": str(tmp_path)}, tmp_path / "home").output == (
        tmp_path / ".cache/makai/sessions/s1/output"
    )


def test_what_was_there_stays_and_becomes_private(tmp_path: Path) -> None:
    scratch = opened(tmp_path)
    (scratch.output / "kept").touch()
    scratch.output.chmod(0o777)

    assert opened(tmp_path) == scratch
    assert [path.name for path in scratch.output.iterdir()] == ["kept"]
    assert scratch.output.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("session_id", ["../s1", "", ".", "a/b", "\ud800", "x" * 500, "-a"])
def test_an_id_is_never_a_way_to_another_folder(tmp_path: Path, session_id: str) -> None:
    scratch = opened(tmp_path, session_id)

    assert scratch.output.parents[1] == tmp_path / "cache/makai/sessions"
    assert len({scratch.output, opened(tmp_path, "s1").output, opened(tmp_path, f"{session_id}x").output}) == 3


def test_it_is_never_in_the_home_that_no_tool_may_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    scratch = open_scratch("s1", {"XDG_CACHE_HOME": str(tmp_path / "home/cache")}, tmp_path / "home")
    assert scratch.output == tmp_path / f"tmp/makai-{os.getuid()}/sessions/s1/output"


def test_a_link_or_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/makai").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "other/makai").parent.mkdir()
    (tmp_path / "other/makai").touch()

    for cache in ("cache", "other"):
        with pytest.raises(InvalidRequest, match="not a folder of this user"):
            open_scratch("s1", {"XDG_CACHE_HOME": str(tmp_path / cache)}, tmp_path / "home")


def test_folders_are_removed_with_their_session_or_by_age(tmp_path: Path) -> None:
    old, used, new, gone = (opened(tmp_path, name) for name in ("old", "used", "new", "gone"))
    long_ago = time.time() - KEPT_S - 60
    for scratch in (old, used):
        for folder in (scratch.output, scratch.temporary, scratch.output.parent):
            os.utime(folder, (long_ago, long_ago))
    os.utime(used.temporary)
    remove_scratch("gone", {"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "home")

    removed_old(tmp_path)
    assert [each.output.exists() for each in (old, used, new, gone)] == [False, True, True, False]


def test_nothing_to_remove_is_no_mistake(tmp_path: Path) -> None:
    removed_old(tmp_path)
    remove_scratch("never", {"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "home")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_folders_has_nothing_removed_or_written_elsewhere(tmp_path: Path) -> None:
    victim = tmp_path / "projects/old"
    victim.mkdir(parents=True)
    os.utime(victim, (1, 1))
    (tmp_path / "cache/makai").mkdir(parents=True)
    (tmp_path / "cache/makai/sessions").symlink_to(tmp_path / "projects")

    removed_old(tmp_path)
    remove_scratch("old", {"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "home")
    with pytest.raises(InvalidRequest, match="not a folder of this user"):
        opened(tmp_path)

    assert (victim.exists(), os.listdir(victim), mode(tmp_path / "projects")) == (True, [], 0o755)


async def test_long_output_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "output").symlink_to("elsewhere")
    output = CappedOutput(tmp_path / "output", kept=10)
    await output.add(b"x" * 100)
    output.close()

    assert (os.listdir(tmp_path / "elsewhere"), output.spill_path, "could not be kept" in output.text()) == (
        [],
        None,
        True,
    )


def test_a_link_that_is_swapped_in_meanwhile_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "cache/makai/sessions"
    victim.mkdir(mode=0o755)
    opened(tmp_path)
    folder.chmod(0o755)
    look = stat.S_IMODE

    def look_and_lose(found: int) -> int:
        if not folder.is_symlink():
            folder.rename(tmp_path / "moved")
            folder.symlink_to(victim)
        return look(found)

    monkeypatch.setattr(stat, "S_IMODE", look_and_lose)
    with contextlib.suppress(InvalidRequest):
        opened(tmp_path)

    assert (victim.stat().st_mode & 0o777, os.listdir(victim)) == (0o755, [])
