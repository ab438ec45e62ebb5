"""Addresses that open the web page."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.cli.browser import page_address


@pytest.mark.parametrize(
    ("listening", "opened"),
    [
        ("http://127.0.0.1:8717", "http://127.0.0.1:8717"),
        ("http://0.0.0.0:8717", "http://127.0.0.1:8717"),
        ("https://[::]:8717", "https://[::1]:8717"),
        ("http://10.0.0.7:8717", "http://10.0.0.7:8717"),
    ],
)
def test_the_page_of_a_server_on_every_address_is_opened_on_this_machine(
    tmp_path: Path, listening: str, opened: str
) -> None:
    tmp_path.chmod(0o700)

    assert page_address(listening, tmp_path).partition("/#token=")[0] == opened
