"""The `Vendor` type, look-ups by id or alias, and where a vendor is reached under one environment. Pure.

Adding a vendor is adding a row to `vendor_table`. A base URL that the user put into the environment also widens where
the vendor's key may go: that is what a proxy or a test server is for. A caller's `base_url` never does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from makai.auth.credentials import KeySource, origin_of
from makai.core.errors import InvalidRequest
from makai.core.model import ChatQuirks, ModelCapability

ListingKind: TypeAlias = Literal["openai", "anthropic", "google", "ollama", "openrouter", "none"]
"""How the vendor's own list of models is read, where it has one."""

ASSUMED_CAPABILITIES = (
    ModelCapability.CHAT,
    ModelCapability.STREAMING,
    ModelCapability.TOOLS,
    ModelCapability.VISION,
    ModelCapability.REASONING,
)
"""Of a model without a row: let the vendor refuse, rather than drop tools or images silently."""


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One place that serves models. A base URL is `root + paths[api]`, and is what the vendor's official SDK takes:
    OpenAI style ends in /v1, Anthropic's, Google's and Ollama's have no version in them."""

    id: str
    name: str
    api: str
    """The API used when a request names none."""
    root: str
    """Empty where only the environment or the runtime knows the address."""
    paths: dict[str, str]
    """API id -> what its base URL adds to the root."""
    key_variables: tuple[str, ...] = ()
    base_url_variable: str = ""
    """Holds the base URL of `api`, as users write it for the official SDK."""
    base_url_form: Literal["url", "ollama_host"] = "url"
    tolerated_suffixes: tuple[str, ...] = ()
    """Endings people add to that variable although the SDK does not want them."""
    key_origins: tuple[str, ...] = ()
    """Where the key may go, when that is not simply the root."""
    needs_key: bool = True
    takes_key: bool = False
    """Whether the user can store a key for it although it needs none."""
    open_ended: bool = True
    """Whether ids without a catalog row are passed on: vendors add models faster than we release."""
    default_model: str = ""
    aliases: tuple[str, ...] = ()
    listing: ListingKind = "openai"
    quirks: ChatQuirks = ChatQuirks()
    headers: dict[str, str] = {}
    """Sent with every request. Never a secret."""
    account_headers: dict[str, str] = {}
    """Header -> what the login learned that it carries (`OAuthToken.provider_data`)."""
    is_configured: bool = False
    """Whether a `[providers.ID]` table of the user's config.toml describes it."""
    option_variables: dict[str, tuple[str, ...]] = {}
    """Option of `Model.options` -> environment variables that set it."""

    @property
    def can_log_in(self) -> bool:
        """Whether there is anything to log in for: it wants a key, or takes one."""
        return self.needs_key or self.takes_key or bool(self.key_variables)

    @property
    def apis(self) -> tuple[str, ...]:
        """Every API the vendor speaks, its default first."""
        return (self.api, *(api for api in self.paths if api != self.api))


class VendorTable(dict[str, Vendor]):
    """Vendors by id; `find` also knows their other names."""

    def __init__(self, rows: Iterable[Vendor]) -> None:
        super().__init__((vendor.id, vendor) for vendor in rows)
        self._by_alias = {alias: vendor for vendor in self.values() for alias in vendor.aliases}
        self.apis = frozenset(api for vendor in self.values() for api in vendor.paths)
        """Every API id any vendor speaks."""

    def find(self, name: str) -> Vendor | None:
        return self.get(name) or self._by_alias.get(name)

    def with_rows(self, rows: Iterable[Vendor]) -> VendorTable:
        """This table with more rows; one of the same id replaces the row here."""
        return VendorTable((*self.values(), *rows))


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
    return {
        option: value
        for option, variables in vendor.option_variables.items()
        if (value := next(filter(None, (environ.get(variable, "").strip() for variable in variables)), ""))
    }


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
        hint = "Write it like 127.0.0.1:11434 or http://host:11434."
        raise InvalidRequest("OLLAMA_HOST is not an address.", hint=hint)
    host = _UNSPECIFIED.get(match["host"], match["host"])
    port = match["port"] or ("" if separator else str(_OLLAMA_PORT))
    return f"{scheme}://{host}{':' + port if port else ''}{match['path'] or ''}"
