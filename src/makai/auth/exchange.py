"""What goes to a login server and what comes back, as plain data.

In: nothing. Out: `Fields`, `HttpAnswer` and the rule where secrets may be sent. It must not know OAuth or HTTP clients.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from makai.auth.origins import origin_of
from makai.auth.proxies import is_loopback
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret

Fields: TypeAlias = Mapping[str, str | Secret]
"""What is sent: names and values, of which some may not be shown."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """What a server answered. The body may hold tokens: it is never shown."""

    status: int
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes

    def __repr__(self) -> str:
        return f"HttpAnswer(status={self.status})"


def safe_origin(url: str) -> str:
    """The origin of a URL that secrets may be sent to: https, or this machine. Else `InvalidRequest`."""
    origin = origin_of(url)
    if origin.startswith("http:") and not is_loopback(urllib.parse.urlsplit(origin).hostname or ""):
        raise InvalidRequest(
            f"{origin} is not used for logins: secrets would travel unencrypted.", hint="Use its https address."
        )
    return origin
