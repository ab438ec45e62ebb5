"""The gateways under test: each started as its users start it, on loopback, in front of the benchmark's upstream.

In: which one, and the upstream's base URL (without /v1). Out: a running server with its address and key. It has a core
that neither the upstream nor the load generator use.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from machine import PEERS_PYTHON, PINNED_PEERS_PYTHON, ROOT, child_environment
from stream.cores import take_core
from stream.traffic import MODEL_ID

LITELLM_COMMAND = PINNED_PEERS_PYTHON.parent / "litellm"
LITELLM_KEY = "sk-bench-0123456789"
READY_DEADLINE_S = 120.0
STOP_DEADLINE_S = 10.0


@dataclass(frozen=True)
class Server:
    """A running gateway."""

    pid: int
    port: int
    key: str


class NotInstalledError(Exception):
    """The gateway's environment is missing."""


@contextmanager
def running(name: str, upstream_url: str) -> Iterator[Server]:
    """The gateway of that name until the block ends."""
    with tempfile.TemporaryDirectory(prefix="makai-bench-") as folder:
        start = {"makai": _start_makai, "floor": _start_floor, "litellm": _start_litellm}[name]
        with open(Path(folder) / "log", "wb") as log, start(Path(folder), upstream_url, log.fileno()) as server:
            yield server


@contextmanager
def _start_makai(folder: Path, upstream_url: str, log: int) -> Iterator[Server]:
    environment = {"MAKAI_HOME": str(folder), "LLAMA_CPP_BASE_URL": f"{upstream_url}/v1"}
    command = [str(PEERS_PYTHON), "-m", "makai", "serve", "--port", "0"]
    with _process(command, environment, subprocess.PIPE, log) as process:
        port = _announced_port(process, folder / "log")
        yield Server(process.pid, port, (folder / "server-token").read_text().strip())


@contextmanager
def _start_floor(folder: Path, upstream_url: str, log: int) -> Iterator[Server]:
    command = [str(PEERS_PYTHON), str(ROOT / "benchmarks" / "gateway" / "floor.py"), f"{upstream_url}/v1"]
    with _process(command, {}, subprocess.PIPE, log) as process:
        yield Server(process.pid, _announced_port(process, folder / "log"), "no-key-needed")


def _announced_port(process: subprocess.Popen[bytes], log: Path) -> int:
    """From the first line on its standard output, which ends in the port."""
    assert process.stdout is not None
    announced = process.stdout.readline().decode()
    if "http://" not in announced:
        raise RuntimeError(f"the server did not start: {log.read_text()[-500:]}")
    return int(announced.strip().rpartition(":")[2])


@contextmanager
def _start_litellm(folder: Path, upstream_url: str, log: int) -> Iterator[Server]:
    if not LITELLM_COMMAND.exists():
        raise NotInstalledError("not installed: no .venv-bench-litellm (see benchmarks/README.md)")
    parameters = {"model": f"openai/{MODEL_ID}", "api_base": f"{upstream_url}/v1", "api_key": "no-key-needed"}
    config = {
        "model_list": [{"model_name": MODEL_ID, "litellm_params": parameters}],
        "general_settings": {"master_key": LITELLM_KEY},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    port = _free_port()
    command = [str(LITELLM_COMMAND), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--num_workers", "1", "--telemetry", "False"]
    with _process(command, {}, log, log) as process:
        _wait_until_healthy(process, f"http://127.0.0.1:{port}/health/liveliness", folder / "log")
        yield Server(process.pid, port, LITELLM_KEY)


@contextmanager
def _process(
    command: list[str], environment: dict[str, str], output: int, errors: int
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        env=child_environment() | environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        preexec_fn=lambda: take_core("client"),
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()[-500:]}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"the server was not ready after {READY_DEADLINE_S:g} s: {os.linesep}{log.read_text()[-500:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
