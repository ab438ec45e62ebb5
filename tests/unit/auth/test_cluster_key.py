from __future__ import annotations

import os
from pathlib import Path

import pytest

from makai.auth.cluster_key import KEY_VARIABLE, derived_key, load_cluster_key
from makai.core.config import ClusterConfig
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret

KEY = "the key of a cluster, 32 or longer"


def test_the_key_comes_from_the_file_that_is_named_and_else_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    environ = {KEY_VARIABLE: f" {KEY[::-1]}\n"}
    assert load_cluster_key(environ, ClusterConfig(key_file=str(file))) == Secret(KEY)
    assert load_cluster_key(environ, ClusterConfig()) == Secret(KEY[::-1])


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", f"There is no cluster key: {KEY_VARIABLE} is empty or not set."),
        ("k" * 31, f"The cluster key in {KEY_VARIABLE} has fewer than 32 characters."),
    ],
)
def test_without_a_key_that_cannot_be_guessed_the_error_says_how_to_make_one(key: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_cluster_key({KEY_VARIABLE: key}, ClusterConfig())
    assert refused.value.message == why
    assert "openssl rand" in str(refused.value.hint)


def test_a_key_file_that_other_users_can_change_or_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o602)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff" * 40)
    (tmp_path / "bytes").chmod(0o600)
    for name, why in (
        ("key", "is open to other users"),
        ("pipe", "is not a file"),
        ("bytes", "holds no cluster key"),
        ("missing", "No such file or directory"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            load_cluster_key({KEY_VARIABLE: KEY}, ClusterConfig(key_file=str(tmp_path / name)))


def test_each_purpose_has_a_key_of_its_own_that_is_the_same_on_every_node() -> None:
    first, second = derived_key(Secret(KEY), "credentials"), derived_key(Secret(KEY), "links")
    assert first == derived_key(Secret(KEY), "credentials")
    assert len({first, second, derived_key(Secret(KEY + "."), "credentials")}) == 3
    # Recorded: another value would make every stored credential unreadable.
    assert first.hex() == "826fb23a561873c5530ff7be8dd79d5d9656ca33ff4074de7fbbf88fb492c1f4"
