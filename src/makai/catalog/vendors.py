"""The `Vendor` type and look-ups by id or alias. Adding a vendor is adding a row to `vendor_table`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

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
    """One place that serves models.

    A base URL is `root + paths[api]`, and is what the vendor's official SDK takes: OpenAI style ends in /v1,
    Anthropic's, Google's and Ollama's have no version in them.
    """

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
    option_variables: dict[str, tuple[str, ...]] = {}
    """Option of `Model.options` -> environment variables that set it."""

    @property
    def can_log_in(self) -> bool:
        """Whether there is anything to log in for: it wants a key, or takes one."""
        return self.needs_key or bool(self.key_variables)

    @property
    def apis(self) -> tuple[str, ...]:
        """Every API the vendor speaks, its default first."""
        return (self.api, *(api for api in self.paths if api != self.api))


class VendorTable(Mapping[str, Vendor]):
    """Vendors by id; `find` also knows their other names."""

    def __init__(self, rows: Iterable[Vendor]) -> None:
        self._by_id = {vendor.id: vendor for vendor in rows}
        self._by_alias = {alias: vendor for vendor in self._by_id.values() for alias in vendor.aliases}
        self.apis = frozenset(api for vendor in self._by_id.values() for api in vendor.paths)
        """Every API id any vendor speaks."""

    def __getitem__(self, vendor_id: str) -> Vendor:
        return self._by_id[vendor_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, name: str) -> Vendor | None:
        return self._by_id.get(name) or self._by_alias.get(name)

    def with_rows(self, rows: Iterable[Vendor]) -> VendorTable:
        """This table with more rows; one of the same id replaces the row here."""
        return VendorTable({**self._by_id, **{vendor.id: vendor for vendor in rows}}.values())
