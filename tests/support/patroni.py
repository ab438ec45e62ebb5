"""PostgreSQL with a synchronous standby under Patroni and etcd, on this machine, for tests of failover.

The primary acknowledges a commit only when the standby has it on disk. A crashed primary is not started again in place
(`primary_start_timeout: 0`): the standby becomes the primary. Everything runs as the user `postgres` when the tests run
as root, keeps its files in one private folder, and ends with `remove`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from support.postgres import free_port, private_folder, programs, run_as

READY_S: Final = 120.0
"""How long a start, a promotion and the return of a standby may take on a busy machine."""
TTL_S: Final = 20
"""The smallest that Patroni allows: the loss of a whole node is noticed after about this time."""
_POLL_S: Final = 0.05
_SCOPE: Final = "makai"


class DatabaseNode:
    """One PostgreSQL server and the Patroni that supervises it."""

    def __init__(self, name: str, folder: Path, etcd_port: int) -> None:
        self.name = name
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._rest_port = free_port()
        self._data = folder / name
        self._log = folder / f"{name}.log"
        self._settings = folder / f"{name}.json"
        # Patroni reads YAML, of which JSON is a part.
        self._settings.write_text(json.dumps(self._configuration(folder, etcd_port), indent=1))
        self._patroni: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._patroni = _started(["patroni", str(self._settings)], self._log)

    def members(self) -> list[Mapping[str, Any]]:
        """All members as this node's Patroni sees them; none while it is not there."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._rest_port}/cluster", timeout=2) as answer:
                seen: list[Mapping[str, Any]] = json.load(answer)["members"]
        except (OSError, ValueError):
            return []
        return seen

    def is_primary(self) -> bool:
        """Whether Patroni says that this node is the primary and holds the leader's key."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._rest_port}/primary", timeout=2):
                return True
        except OSError:
            return False

    def kill_server(self) -> None:
        """kill -9 of PostgreSQL with all its processes. Patroni lives."""
        for process in self._server_processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def kill(self) -> None:
        """kill -9 of Patroni and of PostgreSQL, as when the machine is lost."""
        if self._patroni is not None:
            with suppress(ProcessLookupError):
                self._patroni.kill()
            self._patroni.wait()
        self._patroni = None
        self.kill_server()

    def is_running(self) -> bool:
        return self._patroni is not None and self._patroni.poll() is None

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""

    def _server_processes(self) -> list[int]:
        """The postmaster first, so that it starts no others."""
        try:
            postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return []
        return [postmaster, *_children(postmaster)]

    def _configuration(self, folder: Path, etcd_port: int) -> dict[str, Any]:
        cluster = {
            "ttl": TTL_S,
            "loop_wait": 2,
            "retry_timeout": 5,
            "maximum_lag_on_failover": 1 << 30,
            "synchronous_mode": True,
            "primary_start_timeout": 0,
            "postgresql": {
                "use_pg_rewind": True,
                "parameters": {
                    "max_connections": 200,
                    "shared_buffers": "32MB",
                    "wal_keep_size": "256MB",
                    "unix_socket_directories": str(folder),
                },
            },
        }
        return {
            "scope": _SCOPE,
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self._rest_port}", "connect_address": f"127.0.0.1:{self._rest_port}"},
            "etcd3": {"hosts": f"127.0.0.1:{etcd_port}"},
            "bootstrap": {"dcs": cluster, "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"]},
            "postgresql": {
                "listen": self.address,
                "connect_address": self.address,
                "data_dir": str(self._data),
                "bin_dir": str(programs()),
                "pgpass": str(folder / f"{self.name}.pgpass"),
                # Trust is for tests: nothing but this machine can connect.
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
                "authentication": {"superuser": {"username": "makai"}, "replication": {"username": "replicator"}},
            },
        }


class PatroniCluster:
    """A primary, a synchronous standby, and one etcd."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._client_port, peer_port = free_port(), free_port()
        client, peer = f"http://127.0.0.1:{self._client_port}", f"http://127.0.0.1:{peer_port}"
        self._etcd_command = ["etcd", "--name", "e1", "--data-dir", str(folder / "etcd")]
        self._etcd_command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        self._etcd_command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self._etcd_command += ["--initial-cluster", f"e1={peer}"]
        self._etcd: subprocess.Popen[bytes] | None = None
        self.nodes = [DatabaseNode(name, folder, self._client_port) for name in ("db1", "db2")]

    @property
    def url(self) -> str:
        """Of the database on whichever server is the primary."""
        hosts = ",".join(node.address for node in self.nodes)
        return f"postgres://makai@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=2"

    def start(self) -> PatroniCluster:
        self._etcd = _started(self._etcd_command, self._folder / "etcd.log")
        self.nodes[0].start()
        self._wait(self.nodes[0].is_primary)
        self.nodes[1].start()
        self.wait_for_standby()
        return self

    def primary(self) -> DatabaseNode:
        """The node that is the primary now."""
        return next(node for node in self.nodes if node.is_primary())

    def wait_for_primary(self, other_than: DatabaseNode) -> DatabaseNode:
        """Wait until another node has been promoted."""
        (other,) = [node for node in self.nodes if node is not other_than]
        self._wait(other.is_primary)
        return other

    def wait_for_standby(self) -> None:
        """Wait until every commit is on both servers again."""
        self._wait(lambda: sorted(self._roles()) == ["leader", "sync_standby"])

    def restore(self, node: DatabaseNode) -> None:
        """Start a node again if it was killed, and wait until it is the synchronous standby."""
        if not node.is_running():
            node.start()
        self.wait_for_standby()

    def remove(self) -> None:
        for node in self.nodes:
            node.kill()
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _roles(self) -> list[str]:
        seen = next((members for node in self.nodes if (members := node.members())), [])
        return [member["role"] for member in seen if member.get("state") in ("running", "streaming")]

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError("\n".join(node.said() for node in self.nodes))
            time.sleep(_POLL_S)


@contextmanager
def patroni_cluster() -> Iterator[PatroniCluster]:
    """Two servers, of which one is a synchronous standby, until the block ends; skips the test without the programs."""
    if missing := [name for name in ("etcd", "patroni") if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not installed: failover of PostgreSQL was not tried")
    programs()
    cluster = PatroniCluster(private_folder())
    try:
        yield cluster.start()
    finally:
        cluster.remove()


def _started(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(log.parent), "LANG": "C.UTF-8"}
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            user=run_as(),
            env=environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
