"""Files that are offered after an `@`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from makai.core.session_files import FoundPaths
from makai.tools import file_index
from makai.tools.file_index import FileIndex


def written(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


async def found(index: FileIndex, query: str) -> tuple[str, ...]:
    """After the folder was walked."""
    while not (answer := await index.find(query)).is_complete:
        pass
    return answer.paths


async def test_files_and_folders_are_found_and_ignored_ones_are_not(tmp_path: Path) -> None:
    for name in ("src/main.py", "src/my dir/a.txt", "build/main.py", "data/main.csv", "node_modules/main/x.js"):
        written(tmp_path / name)
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / ".ignore").write_text("*.csv\n")
    index = FileIndex(str(tmp_path))

    assert await found(index, "main") == ("src/main.py",)
    assert await found(index, "my") == ("src/my dir/", "src/my dir/a.txt", "src/main.py")
    assert await found(index, "./src") == ("src/", "src/main.py", "src/my dir/", "src/my dir/a.txt")
    assert await found(index, "") == (".gitignore", ".ignore", "src/", "src/main.py", "src/my dir/", "src/my dir/a.txt")


async def test_names_are_those_of_the_files_whatever_is_in_them(tmp_path: Path) -> None:
    written(tmp_path / "line\nbreak\x1b.txt")

    assert await found(FileIndex(str(tmp_path)), "break") == ("line\nbreak\x1b.txt",)


async def test_a_path_elsewhere_is_completed_name_by_name(tmp_path: Path) -> None:
    for name in ("work/a.txt", "other/b.txt", "other/.hidden", "other/inner/c.txt"):
        written(tmp_path / name)
    index = FileIndex(str(tmp_path / "work"))

    assert await found(index, "../oth") == ("../other/",)
    assert await found(index, f"{tmp_path}/other/") == (f"{tmp_path}/other/b.txt", f"{tmp_path}/other/inner/")
    assert await found(index, "../other/.h") == ("../other/.hidden",)
    assert await found(index, "/no/such/folder/x") == ()


async def test_an_answer_does_not_wait_for_the_end_of_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def slow_files(workspace: object) -> Iterator[str]:
        yield from (f"a{number}" for number in range(500))
        may_end.wait(60)
        yield "b"

    monkeypatch.setattr(file_index, "files_below", slow_files)
    index = FileIndex(str(tmp_path))

    while not (early := await index.find("a499")).paths:
        pass
    assert early == FoundPaths(paths=("a499",), is_complete=False)
    may_end.set()
    assert await found(index, "b") == ("b",)
    monkeypatch.setattr(file_index, "files_below", lambda workspace: iter(["c"]))
    assert await found(index, "c") == ()
    monkeypatch.setattr(file_index, "FRESH_S", 0.0)
    assert await found(index, "c") == ("c",)


async def test_a_walk_ends_at_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (f"{number}" for number in range(10**9))
    monkeypatch.setattr(file_index, "files_below", lambda workspace: endless)
    monkeypatch.setattr(file_index, "MAX_FILES", 1_000)

    assert await found(FileIndex(str(tmp_path)), "999") == ("999",)
    monkeypatch.setattr(file_index, "MAX_FILES", 10**9)
    monkeypatch.setattr(file_index, "MAX_WALK_S", 0.0)
    assert await found(FileIndex(str(tmp_path)), "zzz") == ()


async def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert await found(FileIndex(str(tmp_path / "gone")), "a") == ()
