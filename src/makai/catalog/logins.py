"""Vendors and config.toml -> where one can log in.

In: the vendor table, the user's config, an environment. Out: `LoginProvider`s, and vendor rows for providers only the
config knows. Pure; it must not know flows' insides or stored credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from makai.auth.flows import KeyCheck, LoginProvider
from makai.auth.flows.table import TEST_FIXTURE, configured, with_vendor_login
from makai.catalog.addresses import base_url_of, key_source_of
from makai.catalog.builtin import ModelRow
from makai.catalog.vendors import ASSUMED_CAPABILITIES, ListingKind, Vendor, VendorTable
from makai.core.config import Config, ProviderConfig
from makai.core.errors import InvalidRequest

_CHECKS: dict[ListingKind, tuple[str, str, str, dict[str, str]]] = {
    "openai": ("/models", "Authorization", "Bearer ", {}),
    "anthropic": ("/v1/models", "x-api-key", "", {"anthropic-version": "2023-06-01"}),
    "google": ("/v1beta/models", "x-goog-api-key", "", {}),
    # OpenRouter lists its models to anyone; this says whether the key works.
    "openrouter": ("/key", "Authorization", "Bearer ", {}),
}
"""How a vendor's list of models is asked for with a key: path, header, prefix, further headers."""


def configured_vendors(config: Config) -> list[Vendor]:
    """Rows for the providers of config.toml."""
    return [_vendor(provider_id, provider) for provider_id, provider in config.providers.items()]


def configured_rows(config: Config) -> list[ModelRow]:
    """The models that config.toml names, for servers without a list of their own."""
    return [
        ModelRow(provider=provider_id, id=model_id, name=model_id, capabilities=ASSUMED_CAPABILITIES)
        for provider_id, provider in config.providers.items()
        for model_id in provider.models
    ]


def login_providers(vendors: VendorTable, config: Config, environ: Mapping[str, str]) -> list[LoginProvider]:
    """Everywhere a credential can be obtained for, in the order of the table; what needs none is left out."""
    return list(_providers(vendors, config, environ))


def _providers(vendors: VendorTable, config: Config, environ: Mapping[str, str]) -> Iterable[LoginProvider]:
    for vendor in vendors.values():
        if not vendor.can_log_in:
            continue
        written = config.providers.get(vendor.id)
        if vendor.id == TEST_FIXTURE.id:
            yield TEST_FIXTURE
        elif written is not None:
            yield configured(vendor.id, written)
        else:
            yield with_vendor_login(_from_vendor(vendor, environ))


def _from_vendor(vendor: Vendor, environ: Mapping[str, str]) -> LoginProvider:
    try:
        source = key_source_of(vendor, environ, {})
        base_url = base_url_of(vendor, vendor.api, environ, {})
    except InvalidRequest:
        # A broken address variable: the provider is still listed, and logging in says what is wrong.
        return LoginProvider(id=vendor.id, name=vendor.name, key_variables=vendor.key_variables)
    check = _CHECKS.get(vendor.listing) if base_url else None
    return LoginProvider(
        id=vendor.id,
        name=vendor.name,
        origins=tuple(sorted(source.origins)),
        key_variables=vendor.key_variables,
        required=vendor.needs_key,
        check=None
        if check is None
        else KeyCheck(url=base_url + check[0], header=check[1], prefix=check[2], headers=check[3]),
    )


def _vendor(provider_id: str, provider: ProviderConfig) -> Vendor:
    return Vendor(
        id=provider_id,
        name=provider.name or provider_id,
        api=provider.api,
        root=provider.base_url.rstrip("/"),
        paths={provider.api: ""},
        key_variables=(provider.key_variable,) if provider.key_variable else (),
        needs_key=provider.needs_key or provider.login is not None,
        default_model=provider.default_model,
        listing="openai" if provider.api.startswith("openai") else "none",
    )
