"""Credentials as data: what a login stores, where a key may come from, and the origins it may be sent to.

Secrets are `Secret` and cannot be encoded by accident. Every credential, API keys too, is bound to origins (scheme,
host and port, such as `https://api.openai.com:443`, compared exactly): a caller's `base_url` outside of them gets no
credential. So everything that two URL parsers could read differently (userinfo, backslashes, white space, non-ASCII
hosts) is refused here, never guessed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.secret import Secret

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
        unsafe = f"{origin} is not used for logins: secrets would travel unencrypted."
        raise InvalidRequest(unsafe, hint="Use its https address.")
    return origin


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or literal address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
PROXY_VARIABLES = (*_PROXY_NAMES, *map(str.lower, _PROXY_NAMES))


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The proxy the environment names for this URL (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), read per request. Loopback
    addresses never use one: a proxy could not reach them. `environ` replaces the environment of this process."""
    parsed = urlsplit(url)
    if is_loopback(parsed.hostname or ""):
        return None
    from urllib import request  # loads ssl

    if environ is None:
        proxy = request.getproxies().get(parsed.scheme)
        return None if proxy is None or request.proxy_bypass(parsed.netloc) else proxy
    # Names in lower case count before those in upper case, as in every program that reads them.
    named = {name.lower().removesuffix("_proxy"): environ.get(name, "") for name in _PROXY_NAMES}
    named |= {kind: value for kind in named if (value := environ.get(f"{kind}_proxy", ""))}
    bypassed: bool = request.proxy_bypass_environment(parsed.netloc, named)  # type: ignore[attr-defined]
    return None if bypassed else named.get(parsed.scheme) or None


def _refused(url: str, why: str) -> InvalidRequest:
    """The message never repeats the URL: it may hold a password."""
    hint = f"Write it like https://host:port/path (it has {len(url)} characters now)."
    return InvalidRequest(f"the base URL is not usable: {why}.", hint=hint)


DEFAULT_ACCOUNT = "default"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="api_key"):
    """A key the user pasted."""

    key: Secret


class OAuthToken(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="oauth", omit_defaults=True):
    """What an OAuth server issued, and everything needed to refresh it without asking the user."""

    access: Secret
    refresh: Secret | None = None
    expires_at_ms: int | None = None
    """None when the server did not say: then only a refusal shows that it has expired."""
    refresher: str = "oauth2"
    """The refresh procedure: a key of `auth.refresh.REFRESHERS`."""
    token_url: str = ""
    client_id: str = ""
    client_secret: Secret | None = None
    """Only for clients that the user registered with a secret in config.toml."""
    scope: str = ""
    provider_data: dict[str, str] = {}
    """What else the vendor needs with each request, such as an account or project id. Never a secret."""


StoredCredential: TypeAlias = ApiKey | OAuthToken


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One login at one provider."""

    name: str
    credential: StoredCredential
    origins: tuple[str, ...]
    """Canonical origins (`origin_of`) the credential may be sent to."""
    label: str = ""
    """Shown to the user: an e-mail address or the like, when the provider gave one."""
    saved_at_ms: int = 0


def secret_of(account: Account) -> Secret:
    """What is sent to the provider: the key, or the access token."""
    credential = account.credential
    return credential.key if isinstance(credential, ApiKey) else credential.access


class KeySource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider's API key may come from and where it may be sent."""

    provider_id: str
    name: str
    """The provider's display name, for messages."""
    variables: tuple[str, ...]
    """Environment variables in the order they are tried."""
    origins: frozenset[str]
    """Canonical origins (`origin_of`) the key may be sent to."""
    required: bool = True
    """Whether the provider refuses requests without a key."""
    base_url_variable: str = ""
    """The variable in which the user can name a further server the key may be sent to."""


def how_to_log_in(provider_id: str, variables: tuple[str, ...]) -> str:
    login = f"Run `makai auth login {provider_id}`"
    return f"{login}, or set {' or '.join(variables)}." if variables else f"{login}."


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A secret to send, with its provider, its source and the origins it may be sent to."""

    provider_id: str
    secret: Secret
    origins: frozenset[str]
    source: str
    """Shown to the user, such as "OPENAI_API_KEY" or "login 'work'"."""
    account: str = ""
    """The stored account it belongs to; empty for a key from the environment."""
    expires_at_ms: int | None = None
    provider_data: dict[str, str] = {}
    """`OAuthToken.provider_data`."""

    def may_be_sent_to(self, url: str) -> bool:
        return origin_of(url) in self.origins
