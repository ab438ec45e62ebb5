"""Which network addresses a model's requests may reach: the public internet, and never this machine.

One place for every client that connects on behalf of a model: resolve a name once, ask `may_be_reached` for each
address, and connect to exactly those. The answer about this machine comes from the kernel at the time of the call,
because addresses come and go while makai runs.

IPv6 is a positive list: global unicast space without its tunnels and special blocks, mapped IPv4 addresses, and the
well-known NAT64 prefix, both judged by the IPv4 address inside. Python's own `is_global` differs between versions.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            # IANA IPv4 Special-Purpose Address Registry
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # Azure's host agent, public by its number alone
            # IANA IPv6 Special-Purpose Address Registry: protocol assignments (Teredo among them), documentation, 6to4
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
"""The upper half of an interface identifier that holds an IPv4 address (RFC 5214 section 6.1)."""

_ROUTE_REQUEST: Final = struct.Struct("=IHHII BBBBBBBBI HH")  # nlmsghdr, rtmsg, rtattr; see rtnetlink(7)
_RTM_NEWROUTE, _RTM_GETROUTE, _RTA_DST, _NLM_F_REQUEST = 24, 26, 1, 1
_TYPE_OFFSET: Final = 16 + 7  # rtm_type in an answer: behind the header, the eighth byte of rtmsg
_OWN_TYPES: Final = frozenset({2, 3, 4, 5})  # RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST, RTN_MULTICAST
_NO_ROUTE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL})
_KERNEL_DEADLINE_S: Final = 1.0
_MAX_LOOKUPS: Final = 8


async def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of `host`. Raises `OSError` or `UnicodeError` when there is none."""
    look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_lookups(), look_up)
    return [str(address[0]) for *_, address in found]


@functools.cache
def _lookups() -> ThreadPoolExecutor:
    """Threads of their own: a lookup that hangs, of a name that a model chose, holds up no other work of makai."""
    return ThreadPoolExecutor(_MAX_LOOKUPS, thread_name_prefix="lookup")


def may_be_reached(address: str) -> bool:
    """Whether `address` is on the public internet and not one of this machine's."""
    found = _public(address)
    return found is not None and not any(map(is_own, {address, str(found)}))


def is_public(address: str) -> bool:
    """Whether this address is the same machine for everyone on the internet, in any notation (IPv4 inside IPv6 too)."""
    return _public(address) is not None


def is_own(address: str) -> bool:
    """Whether packets to `address` stay on this machine or go to all of its network, by the kernel's routes: every
    address of an interface, and whole networks that are routed to this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return _route_type(family, socket.inet_pton(family, address)) in _OWN_TYPES
    except OSError:  # no route netlink, as on macOS and in some containers
        return _can_bind(family, address)


def _public(address: str) -> Address | None:
    """The address whose owner decides, which for mapped and NAT64 addresses is the one inside; `None` if not public."""
    try:
        found: Address = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return None
        if found.ipv4_mapped is not None or found in _NAT64:
            found = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        elif found not in _GLOBAL_UNICAST or (int(found) >> 32) & 0xFFFF_FFFF in _ISATAP:
            return None
    if not found.is_global or any(found in network for network in _SPECIAL if network.version == found.version):
        return None
    return found


def _route_type(family: int, packed: bytes) -> int:
    """The type of the kernel's route to an address (RTN_UNICAST is 1), or 0 without a route."""
    size = _ROUTE_REQUEST.size + len(packed)
    header = (size, _RTM_GETROUTE, _NLM_F_REQUEST, 0, 0)
    route = (family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    request = _ROUTE_REQUEST.pack(*header, *route, 4 + len(packed), _RTA_DST) + packed
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError("no netlink")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(_KERNEL_DEADLINE_S)
        kernel.send(request)
        answer = kernel.recv(8192)
    _, kind, _, _, _, failure = struct.unpack_from("=IHHIIi", answer)
    if kind == _RTM_NEWROUTE:
        return answer[_TYPE_OFFSET]
    if -failure in _NO_ROUTE:
        return 0
    raise OSError(-failure, os.strerror(-failure))


def _can_bind(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
