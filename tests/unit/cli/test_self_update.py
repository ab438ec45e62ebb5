"""What makai says about updating itself, for every way to install it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from makai.cli.self_update import Installation, find_installation

PYTHON = "/opt/a b/bin/python"
WHEEL = json.dumps({"url": "file:///tmp/makai-0.1.0-py3-none-any.whl", "archive_info": {}})
FOLDER = json.dumps({"url": "file:///tmp/source%20of%20makai", "dir_info": {}})
GIT = json.dumps({"url": "https://git.example/makai.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}})


@pytest.mark.parametrize(
    ("mark", "installer", "direct_url", "extras", "method", "commands"),
    [
        ("", "pip", "", [], "pip", [f"'{PYTHON}' -m pip install --upgrade makai"]),
        ("", "pip", "", ["local", "grpc"], "pip", [f"'{PYTHON}' -m pip install --upgrade 'makai[local,grpc]'"]),
        ("", "pip", WHEEL, [], "pip", [f"'{PYTHON}' -m pip install --upgrade NEWER_FILE"]),
        ("", "pip", FOLDER, ["local"], "pip", [f"'{PYTHON}' -m pip install --upgrade '/tmp/source of makai[local]'"]),
        (
            "",
            "pip",
            GIT,
            [],
            "pip",
            [f"'{PYTHON}' -m pip install --upgrade 'makai @ git+https://git.example/makai.git'"],
        ),
        ("", "uv", "", [], "uv", [f"uv pip install --python '{PYTHON}' --upgrade makai"]),
        ("pipx_metadata.json", "pip", "", ["local"], "pipx", ["pipx upgrade makai"]),
        ("pipx_metadata.json", "uv", WHEEL, ["local"], "pipx", ["pipx install --force 'NEWER_FILE[local]'"]),
        ("uv-receipt.toml", "uv", "", [], "uv-tool", ["uv tool upgrade makai"]),
        ("makai-image", "pip", "", [], "docker", ["git pull", "docker build --pull -t makai ."]),
        ("", "conda", "", [], "unknown", []),
        ("", "", "{", [], "unknown", []),
    ],
)
def test_the_commands_fit_the_installation(
    tmp_path: Path, mark: str, installer: str, direct_url: str, extras: list[str], method: str, commands: list[str]
) -> None:
    (tmp_path / (mark or "other")).touch()

    found = find_installation(tmp_path, PYTHON, direct_url, installer, extras)

    assert (found.method, list(found.commands)) == (method, commands)


def test_a_checkout_is_updated_where_it_is(tmp_path: Path) -> None:
    editable = json.dumps({"url": "file:///home/me/my%20makai", "dir_info": {"editable": True}})

    assert find_installation(tmp_path, PYTHON, editable, "pip", ["local"]) == Installation(
        method="checkout",
        description="from the checkout /home/me/my makai",
        commands=("git -C '/home/me/my makai' pull", "make -C '/home/me/my makai' run"),
    )
