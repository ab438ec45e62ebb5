"""Whether an address belongs to the public internet.

In: an IP address as text. Out: yes or no. Pure. What a model fetches must not reach this machine, the local network or
a cloud's metadata service, by whatever notation: IPv4 inside IPv6 (mapped, 6to4, NAT64, compatible) is looked at too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_INTERNAL = (ipaddress.ip_network("168.63.129.16/32"), ipaddress.ip_network("192.0.0.0/24"))
"""Azure's host agent, public by its number alone; IETF protocol assignments, whole since RFC 6890 but not in every
Python, in which Oracle's cloud keeps its metadata."""


def is_public(address: str) -> bool:
    """Whether anybody on the internet would reach the same machine there."""
    try:
        outer = ipaddress.ip_address(address)
    except ValueError:
        return False
    return all(
        each.is_global
        and not (each.is_multicast or each.is_private or each.is_reserved or each.is_link_local or each.is_loopback)
        and not any(each in network for network in _INTERNAL)
        for each in _with_inner(outer)
    )


def _with_inner(address: Address) -> Iterator[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and (address in _COMPATIBLE or any(address in network for network in _NAT64)):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is None and not any(address in network for network in _NAT64):
        # A mapped address is its IPv4 address, and NAT64 is a way to one; older Pythons call both reserved.
        yield address
    if inner is not None:
        yield inner
