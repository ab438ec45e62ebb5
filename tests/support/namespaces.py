"""Network namespaces as hosts: each two of them are joined by a cable of their own, which a test can cut.

A cut cable drops every packet without telling either side, as a broken switch does: connections stay open and silent.
(A cable is two veth devices on a bridge in a namespace of its own, and is cut at a port of that bridge.) Nothing of
this machine's own network changes. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

_CLONE_NEWNET: Final = 0x40000000
_DISABLED, _FORWARDING = "0", "3"


class Network:
    """Hosts by name. A host has one address per cable, so an address depends on who uses it."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = tuple(hosts)
        self._prefix = f"makai-{os.getpid()}"
        self._cables = {frozenset(pair): number for number, pair in enumerate(combinations(hosts, 2), start=1)}

    def create(self) -> Network:
        switch = self._namespace("switch")
        _ip("netns", "add", switch)
        for host in self._hosts:
            _ip("netns", "add", self._namespace(host))
            _ip("-n", self._namespace(host), "link", "set", "lo", "up")
        for pair, number in self._cables.items():
            _ip("-n", switch, "link", "add", f"cable{number}", "type", "bridge")
            _ip("-n", switch, "link", "set", f"cable{number}", "up")
            for host in sorted(pair):
                namespace, port, device = self._namespace(host), self._port(host, number), f"eth{number}"
                _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", device, "netns", namespace)
                _ip("-n", switch, "link", "set", port, "master", f"cable{number}", "up")
                (other,) = pair - {host}
                _ip("-n", namespace, "addr", "add", f"{self.address(host, other)}/24", "dev", device)
                _ip("-n", namespace, "link", "set", device, "up")
        return self

    def address(self, host: str, seen_from: str) -> str:
        """The address under which one host reaches another."""
        pair = frozenset((host, seen_from))
        return f"10.77.{self._cables[pair]}.{1 + sorted(pair).index(host)}"

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Sockets that this thread opens, and programs that it starts, are on this host until the block ends."""
        with open("/proc/thread-self/ns/net") as before:
            try:
                with open(f"/run/netns/{self._namespace(host)}") as namespace:
                    _enter(namespace.fileno())
                yield
            finally:
                _enter(before.fileno())

    def cut(self, one: str, other: str) -> None:
        """Drop every packet between two hosts."""
        self._set(one, other, _DISABLED)

    def join(self, one: str, other: str) -> None:
        """Undo `cut`."""
        self._set(one, other, _FORWARDING)

    def remove(self) -> None:
        for host in (*self._hosts, "switch"):
            subprocess.run(["ip", "netns", "del", self._namespace(host)], capture_output=True, check=False)

    def _set(self, one: str, other: str, state: str) -> None:
        number = self._cables[frozenset((one, other))]
        switch = self._namespace("switch")
        for host in (one, other):
            port = self._port(host, number)
            subprocess.run(["bridge", "-n", switch, "link", "set", "dev", port, "state", state], check=True)

    def _namespace(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def _port(self, host: str, cable: int) -> str:
        return f"p{cable}-{self._hosts.index(host)}"


@contextmanager
def network(*hosts: str) -> Iterator[Network]:
    """Hosts that reach each other, until the block ends; skips the test where namespaces cannot be made."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "bridge"))) or not Path("/proc/self/ns/net").exists():
        pytest.skip("network namespaces need root and iproute2: cut networks were not tried")
    made = Network(hosts)
    try:
        yield made.create()
    finally:
        made.remove()


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
