"""Where a URL leads: its canonical origin, whether secrets may go there, and through which proxy.

An origin is scheme, host and port, such as `https://api.openai.com:443`, compared exactly. Credentials are bound to
origins, so everything that two URL parsers could read differently (userinfo, backslashes, white space,
non-ASCII hosts) is refused here, never guessed.
"""

from __future__ import annotations

import ipaddress
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
    """The canonical origin of an http(s) URL; `InvalidRequest` when it is ambiguous or missing."""
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


def safe_origin(url: str) -> str:
    """The origin of a URL that secrets may be sent to: https, or this machine. Else `InvalidRequest`."""
    origin = origin_of(url)
    if origin.startswith("http:") and not is_loopback(urlsplit(origin).hostname or ""):
        raise InvalidRequest(
            f"{origin} is not used for logins: secrets would travel unencrypted.", hint="Use its https address."
        )
    return origin


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or literal address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str) -> str | None:
    """The proxy the environment names for this URL (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), read per request.

    Loopback addresses never use one: a proxy could not reach them.
    """
    parsed = urlsplit(url)
    if is_loopback(parsed.hostname or ""):
        return None
    from urllib.request import getproxies, proxy_bypass  # loads ssl

    proxy = getproxies().get(parsed.scheme)
    return None if proxy is None or proxy_bypass(parsed.netloc) else proxy


def _refused(url: str, why: str) -> InvalidRequest:
    """The message never repeats the URL: it may hold a password."""
    return InvalidRequest(
        f"the base URL is not usable: {why}.",
        hint=f"Write it like https://host:port/path (it has {len(url)} characters now).",
    )
