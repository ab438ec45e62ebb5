"""Where a URL leads: scheme, host and port, compared exactly.

In: URL text as a user, a caller or the catalog wrote it. Out: a canonical origin such as `https://api.openai.com:443`.
It must not know any vendor. Credentials are bound to origins (DESIGN §9), so everything that two URL parsers could
read differently (userinfo, backslashes, white space, non-ASCII hosts) is refused here, never guessed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

from makai.core.errors import InvalidRequest

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?")
_IPV6 = re.compile(r"[0-9a-f:.]+")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\x9f\\]")


@lru_cache(maxsize=1024)
def origin_of(url: str) -> str:
    """The canonical origin of an http(s) URL; `InvalidRequest` when it has none that is beyond doubt."""
    if _UNSAFE.search(url):
        raise _refused(url, "it contains a space, a control character or a backslash")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _refused(url, "its host or port cannot be read") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise _refused(url, "it must start with http:// or https://")
    if "@" in parts.netloc:
        raise _refused(url, "it carries a user name or password")
    if not host:
        raise _refused(url, "it names no host")
    if ":" in host:
        if not _IPV6.fullmatch(host):
            raise _refused(url, "its IPv6 address is malformed")
        host = f"[{host}]"
    elif not _NAME.fullmatch(host):
        raise _refused(url, "its host name may only hold ASCII letters, digits, dots and hyphens")
    return f"{parts.scheme}://{host}:{_DEFAULT_PORTS[parts.scheme] if port is None else port}"


def _refused(url: str, why: str) -> InvalidRequest:
    """The text never repeats the URL itself: what was refused may hold a password."""
    return InvalidRequest(
        f"the base URL is not usable: {why}.",
        hint=f"Write it like https://host:port/path (it has {len(url)} characters now).",
    )
