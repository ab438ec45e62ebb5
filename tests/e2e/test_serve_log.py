"""`makai serve --log-format json`: stderr holds JSON and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.cli import SOURCES


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_server_that_logs_json_writes_nothing_else_on_stderr(tmp_path: Path, log_format: str) -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "makai", "serve", "--port", "0", "--log-format", log_format]
    with subprocess.Popen(
        command, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("makai is listening on http://127.0.0.1:")
            server.send_signal(signal.SIGTERM)
            _, err = server.communicate(timeout=40)
        finally:
            server.kill()
    assert server.returncode == 0
    assert ("makai: stopped" in err) == (log_format == "text")
    lines = err.splitlines() if log_format == "json" else []
    assert [type(msgspec.json.decode(line)) for line in lines] == [dict] * len(lines)
