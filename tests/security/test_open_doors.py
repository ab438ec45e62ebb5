"""makai does not listen for other machines without TLS unless it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import Cli


@pytest.mark.proof("L8")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_makai_refuses_to_listen_for_other_machines_without_tls(tmp_path: Path, host: str) -> None:
    finished = await Cli(tmp_path)("serve", "--host", host, "--port", "0")

    assert finished.code == 2
    assert f"refusing to listen on {host} without TLS" in finished.err
