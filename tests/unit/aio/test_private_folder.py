"""Folders for temporary files: private, and removed when their process is gone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from makai.aio.private_folder import PREFIX, PrivateFolder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def made(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_for_its_owner_only_and_is_gone_when_it_is_removed(temporary: Path) -> None:
    folder = PrivateFolder()
    Path(folder.path, "secret").write_text("key", encoding="utf-8")

    assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
    assert Path(folder.path).parent == temporary
    folder.remove()
    folder.remove()
    assert made(temporary) == []


def test_what_a_killed_process_left_is_removed_by_the_next_one_and_nothing_else(temporary: Path) -> None:
    program = (
        "import os, signal, tempfile\nfrom makai.aio.private_folder import PrivateFolder\n"
        f"tempfile.tempdir = {str(temporary)!r}\nfolder = PrivateFolder()\n"
        "open(folder.path + '/secret', 'w').write('key')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    used = PrivateFolder()
    subprocess.run([sys.executable, "-c", program], timeout=60)
    assert len(made(temporary)) == 2
    target = temporary / "target"
    target.mkdir()
    (target / "kept").touch()
    (temporary / f"{PREFIX}link").symlink_to(target)
    (temporary / f"{PREFIX}file").touch()
    (temporary / "makai-other").mkdir()

    folder = PrivateFolder()

    ours = [Path(folder.path).name, Path(used.path).name]
    assert made(temporary) == sorted([*ours, f"{PREFIX}link", f"{PREFIX}file", "makai-other", "target"])
    assert made(target) == ["kept"]
    folder.remove()
    used.remove()
