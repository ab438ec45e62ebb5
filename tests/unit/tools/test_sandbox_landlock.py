"""What the Landlock child allows, and how it reads its options."""

from __future__ import annotations

from pathlib import Path

from makai.tools.sandbox.landlock_child import Orders, allowed_around


def test_everything_around_what_is_excluded_is_allowed(tmp_path: Path) -> None:
    for name in ("a/keep", "a/b/secret", "a/b/keep", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/file").write_text("")
    (tmp_path / "a/link").symlink_to("b/secret")

    allowed = sorted(allowed_around(str(tmp_path), [str(tmp_path / "a/b/secret"), str(tmp_path / "a/missing")]))

    assert [str(Path(path).relative_to(tmp_path)) for path in allowed] == ["a/b/keep", "a/file", "a/keep", "c"]


def test_a_folder_is_allowed_as_a_whole_or_not_at_all_when_nothing_in_it_is_excluded(tmp_path: Path) -> None:
    assert list(allowed_around(str(tmp_path), [str(tmp_path)])) == []
    assert list(allowed_around(str(tmp_path), [f"{tmp_path}-secret", "/elsewhere"])) == [str(tmp_path)]


def test_options_end_where_the_command_begins() -> None:
    orders = Orders(["--hidden", "/a", "--tmp", "/t", "--hidden", "/b", "--", "ls", "--", "--hidden"])

    assert (orders.all("hidden"), orders.one("tmp"), orders.one("network")) == (["/a", "/b"], "/t", "")
    assert orders.command == ["ls", "--", "--hidden"]
