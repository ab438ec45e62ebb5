"""The names of hosts that a confined command may reach: how they are written, normalised and compared.

A name is compared in one form only, the ASCII form that is also resolved: lower case, without the last dot, with
internationalised labels in punycode. Addresses are never names here, in no notation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from makai.core.errors import InvalidRequest

DEFAULT_PORTS: Final = frozenset({80, 443})
"""What a host without a port may be reached at: http and https."""
MAX_HOSTS: Final = 100
_MAX_NAME: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
"""A name whose last label is a number is read as an IPv4 address by programs (WHATWG URL, "ends in a number")."""
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_HINT: Final = "Write a name such as example.com, *.example.com or example.com:8443."


class HostPattern(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """In the form of `canonical_name`."""
    below: bool = False
    """Whether it stands for every name below `name`, and not for `name` itself."""
    port: int | None = None
    """None stands for `DEFAULT_PORTS`."""

    def covers(self, name: str, port: int) -> bool:
        """Whether it allows a name in the form of `canonical_name`."""
        if port != self.port if self.port is not None else port not in DEFAULT_PORTS:
            return False
        return name.endswith(f".{self.name}") if self.below else name == self.name

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{'*.' if self.below else ''}{self.name}{port}"


def canonical_name(text: str) -> str | None:
    """The name of a host in the one form that is compared and resolved; None when it is not the name of a host."""
    name = text.lower() if text.isascii() else _ascii_name(text)
    if name is None or len(name := name.removesuffix(".")) > _MAX_NAME:
        return None
    labels = name.split(".")
    return name if all(map(_LABEL.fullmatch, labels)) and not _NUMBER.fullmatch(labels[-1]) else None


def parse_host(text: str) -> HostPattern:
    """A pattern as a person or a model writes it; `InvalidRequest` when it is none."""
    host, colon, port = text.strip().partition(":")
    below, host = host.startswith("*."), host.removeprefix("*.")
    name = canonical_name(host)
    is_port = not colon or (_PORT.fullmatch(port) and 0 < int(port) < 65536)
    if name is None or not is_port:
        raise InvalidRequest(f"{text[:_MAX_NAME]!r} does not name a host.", hint=_HINT)
    if below and "." not in name:
        message = f"*.{name} would allow all that is below a whole top-level domain."
        raise InvalidRequest(message, hint="Name the hosts, or ask for the whole network.")
    return HostPattern(name=name, below=below, port=int(port) if colon else None)


def normalised_hosts(texts: Iterable[str]) -> tuple[str, ...]:
    """The patterns in one form, sorted, each once, as policies hold them and people are shown them."""
    found = tuple(sorted({str(parse_host(text)) for text in texts}))
    if len(found) > MAX_HOSTS:
        raise InvalidRequest(f"A command may be allowed {MAX_HOSTS} hosts at most.", hint="Ask for the whole network.")
    return found


def _ascii_name(text: str) -> str | None:
    import yarl

    try:
        return yarl.URL.build(scheme="http", host=text).raw_host
    except ValueError:
        return None
