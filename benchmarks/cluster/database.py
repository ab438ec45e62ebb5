"""A PostgreSQL server of its own for the cluster benchmark, with its defaults: every commit waits for the disk.

In: nothing. Out: its address, its CPU time, its WAL and what its statements took. It runs as the user `postgres` when
the benchmark runs as root, and is removed with its data when the block ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.process import cpu_seconds

START_S = 60.0
SETTINGS = ("max_connections=300", "shared_buffers=256MB", "shared_preload_libraries=pg_stat_statements")


class Database:
    """A running server."""

    def __init__(self, programs: Path, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self._programs = programs
        self._folder = folder
        self._port = port
        self._process = process
        self._count = 0

    @property
    def folder(self) -> Path:
        """On the disk that commits wait for."""
        return self._folder

    def new(self) -> str:
        """The address of an empty database."""
        self._count += 1
        self.sql(f"CREATE DATABASE bench{self._count}")
        return f"postgres://makai@127.0.0.1:{self._port}/bench{self._count}"

    def sql(self, statement: str, url: str = "") -> str:
        """What `psql` prints, without headings."""
        address = url or f"postgres://makai@127.0.0.1:{self._port}/postgres"
        command = [self._programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", address, "-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def version(self) -> str:
        return self.sql("SHOW server_version").split()[0]

    def cpu_seconds(self) -> float:
        """Of all its processes, those that have ended included."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return cpu_seconds(self._process.pid) + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def connections(self, url: str) -> set[str]:
        """The processes that serve clients of one database, but for the one that is asked."""
        name = url.rpartition("/")[2]
        found = self.sql(f"SELECT pid FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()")
        return set(found.split())

    def wait_for_end(self, url: str, connections: set[str]) -> None:
        """Until these processes have ended, so that their CPU time is all counted."""
        deadline = time.monotonic() + START_S
        while connections & self.connections(url) and time.monotonic() < deadline:
            time.sleep(0.05)

    def wal_bytes(self) -> int:
        """Written since the server was made."""
        return int(self.sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))

    def stored_bytes(self, url: str) -> int:
        """Of all tables and indexes of one database."""
        return int(self.sql("SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables", url))

    def statement_ms(self, url: str) -> float:
        """What the server worked on statements of one database since `forget_statements`."""
        name = url.rpartition("/")[2]
        where = f"(SELECT oid FROM pg_database WHERE datname = '{name}')"
        return float(self.sql(f"SELECT coalesce(sum(total_exec_time), 0) FROM pg_stat_statements WHERE dbid = {where}"))

    def forget_statements(self) -> None:
        self.sql("SELECT pg_stat_statements_reset()")


@contextmanager
def database() -> Iterator[Database]:
    """A new server until the block ends; raises FileNotFoundError when PostgreSQL is not installed."""
    programs = installed()
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="makai-bench-", dir="/tmp" if user else None))
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    initdb = [programs / "initdb", "-D", data, "-E", "UTF8", "--locale=C.UTF-8", "-A", "trust", "-k", "-U", "makai"]
    process = None
    try:
        subprocess.run(initdb, user=user, check=True, stdout=subprocess.DEVNULL)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        command = [programs / "postgres", "-D", data]
        for setting in (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", *SETTINGS):
            command += ["-c", setting]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, user=user, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        _wait_until_ready(programs, port, process)
        server = Database(programs, folder, port, process)
        server.sql("CREATE EXTENSION pg_stat_statements")
        yield server
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=START_S)
        shutil.rmtree(folder, ignore_errors=True)


def installed() -> Path:
    """The folder of PostgreSQL's programs, the newest version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise FileNotFoundError("PostgreSQL is not installed")
    return found[-1] if found else Path(str(on_path)).resolve().parent


def _wait_until_ready(programs: Path, port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(ready, check=False).returncode != 0:
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError("PostgreSQL did not start")
        time.sleep(0.05)
