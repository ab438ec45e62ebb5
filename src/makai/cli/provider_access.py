"""Whether a provider can be used now, and what is missing; `models list` and `doctor` show it.

Only `reach_all` does network I/O, and no part of a credential is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from makai.auth.credentials import Credential, origin_of
from makai.auth.store import Keychain
from makai.catalog.models import AuthStatus
from makai.catalog.vendors import Vendor, base_url_of, key_source_of, override_of
from makai.core.errors import AuthError, MakaiError
from makai.providers.local.weights import SMOLLM2, has_llama, installed
from makai.providers.logins import Logins

if TYPE_CHECKING:
    from makai.providers.runtime import ModelRuntime


class ProviderAccess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    provider: str
    name: str
    ready: bool
    """Whether nothing is missing here; whether a server answers is another question."""
    status: str
    """In a few words: why it is ready, or what to do."""
    key_variable: str = ""
    """The variable the key was found in."""
    account: str = ""
    """The login that is used; it comes before a variable."""
    base_url: str = ""
    base_url_variable: str = ""
    """The variable that moved the base URL, when one did."""
    is_broken: bool = False
    """A setting cannot be used as it is; `status` says which."""
    is_own_server: bool = False
    """A server the user runs, such as Ollama: ready when it listens."""
    default_model: str = ""


def access_to(
    vendors: Iterable[Vendor], environ: Mapping[str, str], home: Path, logins: Logins
) -> list[ProviderAccess]:
    statuses = logins.statuses()
    return [
        access_of(vendor, environ, home, logins.keychain, expired=statuses.get(vendor.id) is AuthStatus.EXPIRED)
        for vendor in vendors
    ]


def access_of(
    vendor: Vendor, environ: Mapping[str, str], home: Path, keychain: Keychain | None = None, *, expired: bool = False
) -> ProviderAccess:
    if vendor.id == "local":
        return _local(vendor, home)
    try:
        key = (keychain or Keychain(environ)).find(key_source_of(vendor, environ, {}))
        base_url = base_url_of(vendor, vendor.api, environ, {})
        moved = vendor.base_url_variable if override_of(vendor, environ, {}) else ""
    except MakaiError as error:
        return ProviderAccess(provider=vendor.id, name=vendor.name, ready=False, status=str(error), is_broken=True)
    base_url = urlunsplit((*urlsplit(base_url)[:3], "", ""))  # shown; some gateways take their key in the query
    ready, status = _status(vendor, key, base_url, expired=expired)
    return ProviderAccess(
        provider=vendor.id,
        name=vendor.name,
        ready=ready,
        status=status,
        key_variable=key.source if key and not key.account else "",
        account=key.account if key else "",
        base_url=base_url,
        base_url_variable=moved,
        is_own_server=not vendor.needs_key,
        default_model=vendor.default_model,
    )


def _status(vendor: Vendor, key: Credential | None, base_url: str, *, expired: bool) -> tuple[bool, str]:
    variables = "" if key or not vendor.needs_key else " or ".join(vendor.key_variables)
    login = f"run: makai auth login {vendor.id}"
    if not base_url:
        return False, f"set {' and '.join(name for name in (variables, vendor.base_url_variable) if name)}"
    if not vendor.needs_key and not (key and key.account):
        return True, f"no key needed, when it runs at {base_url}"
    if key is None:
        return False, f"set {variables}, or {login}" if variables else login
    if expired:
        return False, f"the {key.source} has expired, {login}"
    if not key.may_be_sent_to(base_url):
        return False, f"the {key.source} is not for {origin_of(base_url)}, {login}"
    return True, f"ready ({key.source})"


def _local(vendor: Vendor, home: Path) -> ProviderAccess:
    missing = []
    if not has_llama():
        missing.append("pip install 'makai[local]'")
    if installed(home) is None:
        missing.append(f"makai models pull {SMOLLM2.name}")
    status = f"run: {' and '.join(missing)}" if missing else "ready (weights installed)"
    return ProviderAccess(
        provider=vendor.id, name=vendor.name, ready=not missing, status=status, default_model=vendor.default_model
    )


def lacks_model(models: ModelRuntime) -> bool:
    """Whether the default model could not answer, because of what is missing on this machine."""
    model = models.resolve(None)
    if model.provider == "local":
        return installed(models.home) is None or not has_llama()
    try:
        models.resolver.credential_for(model)
    except AuthError:
        return True
    return False


DEADLINE_S = 2.0
_PORTS = {"http": 80, "https": 443}


class Reachability(msgspec.Struct, frozen=True, omit_defaults=True):
    """`problem` is empty when a connection was opened."""

    problem: str = ""
    via_proxy: str = ""
    """host:port of the proxy that was tried instead, where the environment names one."""


async def reach_all(urls: Iterable[str], deadline_s: float = DEADLINE_S) -> dict[str, Reachability]:
    """Try every URL's host and port at the same time."""
    wanted = list(dict.fromkeys(urls))
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(_reach(url, deadline_s)) for url in wanted]
    return {url: attempt.result() for url, attempt in zip(wanted, tries, strict=True)}


async def _reach(url: str, deadline_s: float) -> Reachability:
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    host, port = _host_and_port(proxy or url)
    via_proxy = f"{host}:{port}" if proxy else ""
    try:
        async with asyncio.timeout(deadline_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Reachability(problem=f"no answer within {deadline_s:g} s", via_proxy=via_proxy)
    except (OSError, UnicodeError) as error:
        return Reachability(problem=_reason(error), via_proxy=via_proxy)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Reachability(via_proxy=via_proxy)


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)


def _reason(error: OSError | UnicodeError) -> str:
    """What the operating system says, without the addresses it tried."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower()
