from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.places import mode, umask

from makai.auth.cluster_key import KEY_VARIABLE
from makai.auth.opening import open_server_token
from makai.auth.private_files import FILE_NAME, load_or_create_token
from makai.core.config import Config, StoreConfig
from makai.core.errors import InvalidRequest

GOOD = "0123456789abcdefghijklmnopqrstuvwxyzABCDEF_-"


def plant(home: Path, text: str = GOOD, permissions: int = 0o600) -> Path:
    home.mkdir(mode=0o700, parents=True)
    path = home / FILE_NAME
    path.write_text(text, encoding="utf-8")
    path.chmod(permissions)
    return path


@pytest.mark.proof("L10")
def test_the_first_use_makes_a_token_for_this_user_alone_and_later_ones_find_it(home: Path) -> None:
    token = load_or_create_token(home)

    assert load_or_create_token(home) == token
    assert len(token.reveal()) >= 43  # 256 bits
    assert (mode(home), mode(home / FILE_NAME)) == (0o700, 0o600)
    assert [path.name for path in home.iterdir()] == [FILE_NAME]


def test_the_umask_does_not_widen_it(home: Path) -> None:
    with umask(0):
        load_or_create_token(home)

    assert (mode(home), mode(home / FILE_NAME)) == (0o700, 0o600)


def test_two_homes_have_two_tokens(tmp_path: Path) -> None:
    assert load_or_create_token(tmp_path / "a") != load_or_create_token(tmp_path / "b")


def test_processes_that_start_together_agree(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(load_or_create_token, [home] * 32))

    assert len(tokens) == 1
    assert [path.name for path in home.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("permissions", [0o640, 0o604, 0o660, 0o644, 0o610, 0o666])
def test_a_file_that_others_could_use_is_refused(home: Path, permissions: int) -> None:
    plant(home, permissions=permissions)

    with pytest.raises(InvalidRequest, match="open to other users"):
        load_or_create_token(home)


@pytest.mark.parametrize("permissions", [0o755, 0o770, 0o701, 0o777])
def test_a_directory_that_others_could_use_is_refused(home: Path, permissions: int) -> None:
    plant(home)
    home.chmod(permissions)

    with pytest.raises(InvalidRequest, match="open to other users"):
        load_or_create_token(home)


def test_a_link_is_refused_wherever_it_leads(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(GOOD)
    elsewhere.chmod(0o600)
    home.mkdir(mode=0o700, parents=True)
    (home / FILE_NAME).symlink_to(elsewhere)

    with pytest.raises(InvalidRequest, match="cannot be opened safely"):
        load_or_create_token(home)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "directory"])
def test_what_is_no_file_is_refused_without_waiting(home: Path, make: object) -> None:
    home.mkdir(mode=0o700, parents=True)
    assert callable(make)
    make(home / FILE_NAME, 0o600)

    with pytest.raises(InvalidRequest):
        load_or_create_token(home)


@pytest.mark.parametrize("text", ["", "\n", "short", "has space in it 0123456789 0123456789", "x" * 5000, "ü" * 40])
def test_a_file_without_a_token_is_refused_and_says_what_to_do(home: Path, text: str) -> None:
    path = plant(home, text)

    with pytest.raises(InvalidRequest, match="holds no token") as refused:
        load_or_create_token(home)
    assert str(path) in refused.value.message
    assert refused.value.hint == "Remove it to get a new token."


@pytest.mark.proof("L10")
def test_a_foreign_owner_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(home)
    someone_else = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: someone_else)

    with pytest.raises(InvalidRequest, match="belongs to another user"):
        load_or_create_token(home)


def test_nodes_of_a_cluster_have_the_token_of_its_key_also_where_a_home_had_one_of_its_own(tmp_path: Path) -> None:
    shared, own = Config(store=StoreConfig(url="postgres://database/makai")), Config()
    environ = {KEY_VARIABLE: "k" * 40}
    before = load_or_create_token(tmp_path / "b")

    nodes = [open_server_token(tmp_path / name, shared, environ) for name in ("a", "b", "a")]
    assert len({*nodes, before}) == 2
    assert [load_or_create_token(tmp_path / name) for name in ("a", "b")] == nodes[:2]
    assert [path.name for path in (tmp_path / "b").iterdir()] == [FILE_NAME]
    assert mode(tmp_path / "b" / FILE_NAME) == 0o600
    others = [open_server_token(tmp_path / "c", shared, {}), open_server_token(tmp_path / "d", own, environ)]
    assert len({*nodes, *others}) == 3  # without a shared store, or a key, a home has its own
    assert open_server_token(tmp_path / "a", shared, {KEY_VARIABLE: "x" * 40}) not in nodes


def test_a_token_that_cannot_be_replaced_is_named_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plant(tmp_path / "home")

    def refused(*_: object) -> None:
        raise OSError(16, "Device or resource busy")  # a file that a container mounts

    monkeypatch.setattr(os, "replace", refused)
    config = Config(store=StoreConfig(url="postgres://database/makai"))
    with pytest.raises(InvalidRequest, match="cannot be replaced") as raised:
        open_server_token(tmp_path / "home", config, {KEY_VARIABLE: "k" * 40})
    assert (str(path) in raised.value.message, GOOD in str(raised.value)) == (True, False)
    assert [found.name for found in path.parent.iterdir()] == [FILE_NAME]
