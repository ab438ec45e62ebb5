"""Compares confinements: whether what a rule opens covers what a call asks for, and how rules write it.

A rule for commands may end in what it opens, such as `Bash(git commit:*)+git`, `Bash(make)+network(example.org)`,
`Bash(npm test:*)+network`, `Bash(make dist)+write(/srv/dist)` or `Bash(docker build .)+no-sandbox`. An allowing rule
covers a call when it opens at least what the call asks for; a restricting one when they have anything in common.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final

from makai.core.confinement import Confinement
from makai.core.errors import InvalidRequest
from makai.tools.sandbox.hosts import DEFAULT_PORTS, HostPattern, normalised_hosts, parse_host
from makai.tools.sandbox.policy import is_beneath

EVERY_ADDRESS: Final = "*"
SUFFIX: Final = r"(?:\+[a-z-]+(?:\([^()]*\))?)*"
"""What a rule opens, as a regular expression; `parse_suffix` reads it."""
_PART: Final = re.compile(r"\+(?P<name>[a-z-]+)(?:\((?P<inside>[^()]*)\))?")
_NOT_IN_PATHS: Final = frozenset("()+*?\\,")
HINT: Final = "A rule for commands may end in +git, +network, +network(host,host), +write(/folder) and +no-sandbox."


def wanted_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Hosts in the one form that is compared and shown; `*` among them stands for all."""
    return (EVERY_ADDRESS,) if EVERY_ADDRESS in (host.strip() for host in hosts) else normalised_hosts(hosts)


def named_hosts(confinement: Confinement) -> tuple[str, ...]:
    """The hosts that can be reached when not all of the network is opened."""
    return () if EVERY_ADDRESS in confinement.network else confinement.network


def parse_suffix(text: str) -> Confinement:
    """What `+git+network(index.example.org)` opens; `InvalidRequest` when it cannot be read."""
    network: list[str] = []
    folders: list[str] = []
    names: set[str] = set()
    for part in _PART.finditer(text):
        match part["name"], part["inside"]:
            case "git" | "no-sandbox" as name, None:
                names.add(name)
            case "network", None:
                network.append(EVERY_ADDRESS)
            case "network", hosts if hosts.strip():
                network += hosts.split(",")
            case "write", str(folder) if os.path.isabs(folder.strip()):
                folders.append(os.path.normpath(folder.strip()))
            case _:
                raise InvalidRequest(f"{part.group()!r} is nothing that a rule can open.", hint=HINT)
    return Confinement(
        network=wanted_hosts(network),
        git="git" in names,
        folders=tuple(sorted(set(folders))),
        unsandboxed="no-sandbox" in names,
    )


def suffix_of(confinement: Confinement) -> str | None:
    """How a rule writes it; None when it cannot."""
    if any(_NOT_IN_PATHS.intersection(folder) or not folder.isprintable() for folder in confinement.folders):
        return None
    parts = ["+no-sandbox"] if confinement.unsandboxed else []
    parts += ["+git"] if confinement.git else []
    if confinement.network:
        hosts = "" if EVERY_ADDRESS in confinement.network else f"({','.join(confinement.network)})"
        parts.append(f"+network{hosts}")
    return "".join([*parts, *(f"+write({folder})" for folder in confinement.folders)])


def covers(granted: Confinement, wanted: Confinement) -> bool:
    """Whether all that is wanted is granted."""
    if granted.unsandboxed:
        return True
    return (
        not wanted.unsandboxed
        and (granted.git or not wanted.git)
        and _all_covered(granted.network, wanted.network, _host_covers)
        and _all_covered(granted.folders, wanted.folders, lambda held, path: is_beneath(path, held))
    )


def overlaps(restricted: Confinement, wanted: Confinement) -> bool:
    """Whether anything that is wanted is restricted. Without a sandbox, everything is wanted."""
    if not restricted.opens:
        return True
    if wanted.unsandboxed:
        return True
    return (
        (restricted.git and wanted.git)
        or any(_hosts_meet(one, other) for one in restricted.network for other in wanted.network)
        or any(is_beneath(a, b) or is_beneath(b, a) for a in restricted.folders for b in wanted.folders)
    )


def _all_covered(granted: Sequence[str], wanted: Sequence[str], covers_one: Callable[[str, str], bool]) -> bool:
    return all(any(covers_one(one, each) for one in granted) for each in wanted)


def _host_covers(granted: str, wanted: str) -> bool:
    if granted in (EVERY_ADDRESS, wanted):
        return True
    if wanted == EVERY_ADDRESS:
        return False
    one, other = parse_host(granted), parse_host(wanted)
    if not _ports(one) >= _ports(other):
        return False
    if one.below:
        return other.name.endswith(f".{one.name}") or (other.below and other.name == one.name)
    return not other.below and other.name == one.name


def _ports(host: HostPattern) -> frozenset[int]:
    return DEFAULT_PORTS if host.port is None else frozenset({host.port})


def _hosts_meet(one: str, other: str) -> bool:
    """Whether a host may be meant by both; ports are not looked at, so that a restriction holds for all of them."""
    if EVERY_ADDRESS in (one, other):
        return True

    def reaches(a: HostPattern, b: HostPattern) -> bool:
        return a.name == b.name or (a.below and b.name.endswith(f".{a.name}"))

    first, second = parse_host(one), parse_host(other)
    return reaches(first, second) or reaches(second, first)
