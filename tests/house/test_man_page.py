"""The checked-in manual page is what the commands say, and `man` can show it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from makai.cli.commands import COMMANDS
from tools.man_page import PATH, man_page


def test_the_checked_in_manual_page_equals_the_commands() -> None:
    assert PATH.read_text(encoding="utf-8") == man_page(), "run `make schema` and review the change"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_shows_the_page_without_a_warning() -> None:
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", PATH],
        env={"PATH": os.environ["PATH"], "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stderr == ""
    assert [name for name in COMMANDS if f"   makai {name}\n" not in done.stdout] == []
    assert "makai run [OPTIONS] [@FILE]... [PROMPT]\n" in done.stdout
