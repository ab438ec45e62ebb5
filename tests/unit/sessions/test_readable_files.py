"""Which files a message may carry: those that the session's tools may read without asking."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from makai.core.content import Image, Resource
from makai.core.session_files import Mentioned
from makai.sessions.readable_files import ReadableFiles

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("notes")
    (folder / "dot.png").write_bytes(PIXEL)
    (folder / ".env").write_text("KEY=secret")
    return folder


def readable(folder: Path, home: Path, *grants: tuple[str, bool]) -> ReadableFiles:
    return ReadableFiles.of_folder((str(folder),), home, {"HOME": str(home)}, grants=grants)


def test_a_text_a_picture_and_a_folder_go_along_and_words_stay_words(folder: Path, home: Path) -> None:
    found = readable(folder, home).mentioned("See @notes.txt, @dot.png and @. for @ghost.")
    assert found == Mentioned(
        files=(
            Resource(uri=(folder / "notes.txt").as_uri(), text="notes"),
            Resource(uri=folder.as_uri() + "/", text=".env\ndot.png\nnotes.txt"),
        ),
        images=(Image(data=base64.b64encode(PIXEL).decode(), mime_type="image/png"),),
    )


@pytest.mark.parametrize("rule", ['deny = ["Read(.env)"]', 'ask = ["Read(.env)"]'])
@pytest.mark.parametrize("where", ["home/config.toml", "project/.makai/config.toml"])
def test_a_file_that_a_rule_forbids_or_asks_about_is_not_read(
    folder: Path, home: Path, tmp_path: Path, rule: str, where: str
) -> None:
    (tmp_path / where).parent.mkdir(exist_ok=True)
    (tmp_path / where).write_text(f"[permissions]\n{rule}\n")
    files = readable(folder, home)
    assert files.mentioned("@.env") == Mentioned(
        notices=(".env is not attached: the agent may read it only when you allow it.",)
    )
    assert [files.may_read(path) for path in (".env", "notes.txt", "../home/x")] == [False, True, False]


def test_what_a_person_denied_in_this_session_is_not_read(folder: Path, home: Path) -> None:
    files = readable(folder, home, ("Read(notes.txt)", False))
    assert files.mentioned("@notes.txt").files == ()


def test_a_second_name_of_a_forbidden_file_is_not_read(folder: Path, home: Path) -> None:
    (home / "config.toml").write_text('[permissions]\ndeny = ["Read(.env)"]\n')
    (folder / "other").hardlink_to(folder / ".env")
    assert readable(folder, home).mentioned("@other") == Mentioned()


def test_links_out_of_the_folder_and_the_home_of_makai_lead_nowhere(folder: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    inside = folder / "makai-home"
    inside.mkdir()
    (inside / "token").write_text("secret")
    found = readable(folder, inside).mentioned(f"@link @{tmp_path}/secret @../secret @makai-home/token")
    assert (found.files, found.images) == ((), ())
    assert [notice.partition(" is not attached")[0] for notice in found.notices] == [
        "link", f"{tmp_path}/secret", "../secret",
    ]  # fmt: skip


def test_a_git_configuration_with_credentials_is_not_read(folder: Path, home: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text('[remote "x"]\nurl = https://me:token@example.com/x\n')
    assert readable(folder, home).mentioned("@.git/config").files == ()


def test_a_large_and_a_binary_file_are_named_and_not_read(folder: Path, home: Path) -> None:
    (folder / "large").write_text("x" * 70_000)
    (folder / "binary").write_bytes(b"\xff\x00")
    assert readable(folder, home).mentioned("@large @binary") == Mentioned(
        notices=(
            "large has 70,000 bytes; only its path goes along, and the agent can read it.",
            "binary is not text; only its path goes along.",
        )
    )
