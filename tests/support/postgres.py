"""A real PostgreSQL server for tests, and an empty database for each of them.

The server runs as the user `postgres` when the tests run as root, which PostgreSQL refuses. It lives as long as the
process of the tests; its data folder is removed with it.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import psycopg
import pytest

START_S: Final = 60.0
_PROGRAMS: Final = "/usr/lib/postgresql/*/bin"
_names = count(1)


def programs() -> Path:
    """The folder of `initdb` and `postgres`; skips the test when there is none."""
    found = sorted(Path("/").glob(_PROGRAMS.lstrip("/")), key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        pytest.skip("PostgreSQL is not installed: the store in PostgreSQL was not tried")
    return found[-1] if found else Path(str(on_path)).resolve().parent


def run_as() -> str | None:
    """The user to run the server as; None for this one."""
    return "postgres" if os.geteuid() == 0 else None


class PostgresServer:
    """One server. `stop`, `kill` and `start` may be used in any order."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` are settings, such as `fsync=off`, on top of the defaults."""
        self._programs = programs()
        self._folder = folder
        self._data = folder / "data"
        self.port = free_port()
        self._options = options
        self._server: subprocess.Popen[bytes] | None = None
        if (user := run_as()) is not None:
            shutil.chown(folder, user)
        # Trust is for tests: the socket's folder is private.
        self._run("initdb", "-D", str(self._data), "-E", "UTF8", "--locale=C.UTF-8", "-A", "trust", "-k", "-U", "makai")

    @property
    def url(self) -> str:
        """Of the database that every server has."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgres://makai@127.0.0.1:{self.port}/{database}"

    def start(self) -> PostgresServer:
        settings = (f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}")
        command = [str(self._programs / "postgres"), "-D", str(self._data)]
        for setting in (*settings, "max_connections=300", *self._options):
            command += ["-c", setting]
        log = (self._folder / "log").open("ab")
        with log:
            self._server = subprocess.Popen(
                command, user=run_as(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), check=False) != 0:
            if time.monotonic() > deadline or self._server.poll() is not None:
                raise AssertionError((self._folder / "log").read_text()[-2000:])
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """End it in an orderly way, and cut its clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the server and all its processes."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()

    def new_database(self) -> str:
        """The address of an empty database."""
        name = f"test_{os.getpid()}_{next(_names)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def new_schema(self) -> str:
        """The address of an empty schema in the database that every server has: made faster than a database."""
        name = f"test_{os.getpid()}_{next(_names)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.url}?options=-csearch_path%3D{name}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement, and return what `psql` prints, without headings."""
        command = [str(self._programs / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", self.url_of(database)]
        return subprocess.run([*command, "-c", statement], check=True, capture_output=True, text=True).stdout.strip()

    def remove(self) -> None:
        if self._server is not None and self._server.poll() is None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        assert self._server is not None
        self._server.send_signal(number)
        self._server.wait(timeout=START_S)

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        return subprocess.run(
            [str(self._programs / program), *arguments], user=run_as(), check=check, stdout=subprocess.DEVNULL
        ).returncode


def private_folder() -> Path:
    """A folder that the server's user can reach; those of pytest are closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="makai-pg-", dir="/tmp" if run_as() else None))
    if (user := run_as()) is not None:
        shutil.chown(folder, pwd.getpwnam(user).pw_uid)
    return folder


@cache
def shared_server() -> PostgresServer:
    """One server for all tests of this process. It does not wait for the disk: tests of durability make their own."""
    server = PostgresServer(private_folder(), "fsync=off", "shared_buffers=32MB").start()
    atexit.register(server.remove)
    return server


@pytest.fixture
def database() -> str:
    """The address of an empty database."""
    return shared_server().new_database()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
