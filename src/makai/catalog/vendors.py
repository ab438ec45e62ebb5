"""What a vendor is: where it lives, which APIs it speaks, which variables hold its key, how its dialect differs.

In: nothing. Out: the `Vendor` type and look-ups by id or alias. The rows are data in `vendor_table`; adding a vendor is
adding a row. It must not know models, credentials' values or HTTP.
"""

from __future__ import annotations

from functools import cache
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
"""For a model we have no row for: ask, and let the vendor refuse, rather than drop tools or images silently."""


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
    option_variables: dict[str, tuple[str, ...]] = {}
    """Option of `Model.options` -> environment variables that set it."""

    @property
    def apis(self) -> tuple[str, ...]:
        """Every API the vendor speaks, its default first."""
        return (self.api, *(api for api in self.paths if api != self.api))


@cache
def vendors() -> dict[str, Vendor]:
    """Every vendor by its id."""
    from makai.catalog.vendor_table import VENDORS  # 20 rows are built only when someone asks

    return {vendor.id: vendor for vendor in VENDORS}


@cache
def _by_any_name() -> dict[str, Vendor]:
    names = {alias: vendor for vendor in vendors().values() for alias in vendor.aliases}
    return names | vendors()


def find_vendor(name: str) -> Vendor | None:
    """The vendor of that id or alias."""
    return _by_any_name().get(name)


@cache
def known_apis() -> frozenset[str]:
    """Every API id any vendor speaks."""
    return frozenset(api for vendor in vendors().values() for api in vendor.paths)
