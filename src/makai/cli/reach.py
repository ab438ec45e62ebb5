"""Whether something listens at an address.

In: base URLs. Out: for each, nothing when a TCP connection could be opened, else why not. No byte is sent, so no
credential can leak. All addresses are tried at the same time, each under one deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

DEADLINE_S = 2.0
_PORTS = {"http": 80, "https": 443}


class Reach(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one try found. `problem` is empty when the connection was opened."""

    problem: str = ""
    via_proxy: str = ""
    """host:port of the proxy that was tried instead, where the environment names one."""


async def reach_all(urls: Iterable[str], deadline_s: float = DEADLINE_S) -> dict[str, Reach]:
    """Try every URL's host and port."""
    wanted = list(dict.fromkeys(urls))
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(_reach(url, deadline_s)) for url in wanted]
    return {url: attempt.result() for url, attempt in zip(wanted, tries, strict=True)}


async def _reach(url: str, deadline_s: float) -> Reach:
    host, port = _host_and_port(url)
    proxy = _proxy_for(url)
    if proxy:
        host, port = _host_and_port(proxy)
    via_proxy = f"{host}:{port}" if proxy else ""
    try:
        async with asyncio.timeout(deadline_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Reach(problem=f"no answer within {deadline_s:g} s", via_proxy=via_proxy)
    except (OSError, UnicodeError) as error:
        return Reach(problem=_reason(error), via_proxy=via_proxy)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Reach(via_proxy=via_proxy)


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    return None if proxy is None or proxy_bypass(parts.netloc) else proxy


def _reason(error: OSError | UnicodeError) -> str:
    """The operating system's words, without the addresses it tried."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower()
