"""The proxy of the user's own network, as the environment names it, for requests that makai's proxy has allowed."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from makai.tools.sandbox.proxy_requests import MAX_HEAD_BYTES, ProxyRequest

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r\n)")


class UpstreamProxy(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    port: int
    authorization: str = ""
    """The value of `Proxy-Authorization`; never logged and never shown."""

    def connect_request(self, request: ProxyRequest) -> bytes:
        lines = [f"CONNECT {request.host} HTTP/1.1", f"Host: {request.host}"]
        lines += [f"Proxy-Authorization: {self.authorization}"] if self.authorization else []
        return "\r\n".join([*lines, "", ""]).encode("ascii")


def upstream_for(environ: Mapping[str, str], request: ProxyRequest) -> UpstreamProxy | str | None:
    """The proxy for a request, None when there is none, or why the one that is named cannot be used."""
    if _is_excepted(_value(environ, "no_proxy"), request):
        return None
    scheme = "http_proxy" if request.protocol == "http" else "https_proxy"
    address = _value(environ, scheme) or _value(environ, "all_proxy")
    if not address:
        return None
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        name, port = url.hostname, url.port or 80
    except ValueError:
        return f"{scheme.upper()} is not a URL"
    if url.scheme != "http" or not name:
        return f"{scheme.upper()} does not name a proxy that is reached by http://"
    authorization = ""
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
    return UpstreamProxy(name=name, port=port, authorization=authorization)


def connect_status(head: bytes) -> tuple[int, bytes] | None:
    """The status of the proxy's answer and what follows its head; None while it is incomplete. 0 is no HTTP."""
    end = head.find(b"\r\n\r\n")
    if end < 0:
        return None if len(head) < MAX_HEAD_BYTES else (0, b"")
    status = _STATUS_LINE.match(head)
    return (int(status[1]) if status else 0), head[end + 4 :]


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_excepted(no_proxy: str, request: ProxyRequest) -> bool:
    for entry in no_proxy.split(","):
        name = entry.strip().lower().removeprefix("*").removeprefix(".")
        if entry.strip() == "*" or (name and f".{request.name}".endswith(f".{name}")):
            return True
    return False
