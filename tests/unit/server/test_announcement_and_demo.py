"""The announcement of a server, and the folders of the demo."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from makai.core.errors import StorageUnavailable
from makai.server import demo
from makai.server.announcement import Listening, announced, listening


def test_somebody_who_looks_at_the_same_moment_does_not_keep_a_server_from_being_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "serve.json", "w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr("makai.server.announcement.time.sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
        with announced(tmp_path, "http://127.0.0.1:1"):
            assert listening(tmp_path) == Listening("http://127.0.0.1:1", os.getpid())


def test_a_second_server_leaves_the_first_one_announced(tmp_path: Path) -> None:
    with announced(tmp_path, "http://127.0.0.1:1"), announced(tmp_path, "http://127.0.0.1:2"):
        assert listening(tmp_path) == Listening("http://127.0.0.1:1", os.getpid())


def test_an_announcement_that_is_a_link_is_refused_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "serve.json").symlink_to("precious")

    with pytest.raises(StorageUnavailable), announced(tmp_path, "http://127.0.0.1:1"):
        pass

    assert (listening(tmp_path), (tmp_path / "precious").read_text()) == (None, "precious")


def test_demo_folders_nobody_used_for_long_are_removed_and_others_are_not(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "not/absolute"}
    old, used = (Path(demo.make_demo(environ).cwd or "") for _ in range(2))
    long_ago = 1_000_000_000
    precious = tmp_path / "precious"
    precious.mkdir()
    (old.parent / "demo-link").symlink_to(precious)
    for path in (*old.iterdir(), old, *(used / name for name in ("README.md", "greet.py")), used, precious):
        os.utime(path, (long_ago, long_ago))

    new = Path(demo.make_demo(environ).cwd or "")

    assert new.parent == tmp_path / ".cache/makai"
    assert (old.exists(), used.exists(), new.exists(), precious.exists()) == (False, True, True, True)
