"""Which proxy a request goes through.

In: a URL and the process environment. Out: the proxy's address, or None. It must not know who asks or what for.
"""

from __future__ import annotations

import ipaddress
import urllib.parse
import urllib.request


def proxy_for(url: str) -> str | None:
    """The proxy the environment names for this URL (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), read per request.

    Never for this machine itself: a proxy cannot reach our loopback, and what we send there is none of its business.
    """
    parsed = urllib.parse.urlsplit(url)
    if is_loopback(parsed.hostname or ""):
        return None
    proxy = urllib.request.getproxies().get(parsed.scheme)
    return None if proxy is None or urllib.request.proxy_bypass(parsed.netloc) else proxy


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or literal address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
