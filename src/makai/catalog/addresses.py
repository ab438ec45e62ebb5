"""Where a vendor is reached, and where its key may be sent, under one environment. Pure.

A base URL that the user put into the environment also widens where the vendor's key may go: that is what a proxy or a
test server is for. A caller's `base_url` never does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from makai.auth.credentials import KeySource
from makai.auth.origins import origin_of
from makai.catalog.vendors import Vendor
from makai.core.errors import InvalidRequest

_OLLAMA_PORT = 11434
_UNSPECIFIED = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}
_HOST_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:/]*)(?::(?P<port>\d+))?(?P<path>/.*)?")


def override_of(vendor: Vendor, environ: Mapping[str, str], runtime: Mapping[str, str]) -> str:
    """The base URL of the vendor's default API as the runtime or the environment sets it; "" when neither does."""
    value = runtime.get(vendor.id) or environ.get(vendor.base_url_variable, "").strip()
    if not value:
        return ""
    if vendor.base_url_form == "ollama_host":
        value = ollama_url(value)
    value = value.rstrip("/")
    for suffix in vendor.tolerated_suffixes:
        value = value.removesuffix(suffix).rstrip("/")
    try:
        origin_of(value)
    except InvalidRequest as error:
        raise InvalidRequest(f"{vendor.base_url_variable or vendor.id}: {error.message}", hint=error.hint) from None
    return value


def base_url_of(vendor: Vendor, api: str, environ: Mapping[str, str], runtime: Mapping[str, str]) -> str:
    """The base URL of one of the vendor's APIs; "" when nothing says where the vendor is."""
    path = vendor.paths[api]
    override = override_of(vendor, environ, runtime)
    if not override:
        return vendor.root + path if vendor.root else ""
    written = vendor.paths[vendor.api]
    if path == written:
        return override
    return override.removesuffix(written) + path


def key_source_of(vendor: Vendor, environ: Mapping[str, str], runtime: Mapping[str, str]) -> KeySource:
    """Which variables may hold the vendor's key and which origins it may be sent to."""
    allowed = list(vendor.key_origins) or ([vendor.root] if vendor.root else [])
    if override := override_of(vendor, environ, runtime):
        allowed.append(override)
    return KeySource(
        provider_id=vendor.id,
        name=vendor.name,
        variables=vendor.key_variables,
        origins=frozenset(origin_of(url) for url in allowed),
        required=vendor.needs_key,
        base_url_variable=vendor.base_url_variable,
    )


def options_of(vendor: Vendor, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of one API that come from the environment, such as Azure's api-version."""
    found: dict[str, str] = {}
    for option, variables in vendor.option_variables.items():
        for variable in variables:
            if value := environ.get(variable, "").strip():
                found[option] = value
                break
    return found


def ollama_url(text: str) -> str:
    """OLLAMA_HOST in any of its forms: `host`, `host:port`, `:port`, `::1`, `http://host:port/path`.

    Without a scheme the port is Ollama's own; with one it is the scheme's. A server's bind-all address means this
    machine to a client.
    """
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        scheme, rest = "http", text.strip()
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"
    match = _HOST_PORT.fullmatch(rest)
    if match is None:
        raise InvalidRequest(
            "OLLAMA_HOST is not an address.", hint="Write it like 127.0.0.1:11434 or http://host:11434."
        )
    host = _UNSPECIFIED.get(match["host"], match["host"])
    port = match["port"] or ("" if separator else str(_OLLAMA_PORT))
    return f"{scheme}://{host}{':' + port if port else ''}{match['path'] or ''}"
