"""Where the user can log in: `LoginProvider`s from the vendor table, this table of logins, and config.toml.

Client ids are public identifiers, not secrets; each can be replaced in config.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from makai.auth.credentials import origin_of, safe_origin
from makai.auth.flows import FlowName, KeyCheck, LoginProvider
from makai.auth.oauth import ENDPOINTS
from makai.catalog.models import ModelRow
from makai.catalog.vendors import ASSUMED_CAPABILITIES, ListingKind, Vendor, VendorTable, base_url_of, key_source_of
from makai.core.config import Config, LoginConfig, ProviderConfig
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret
from makai.core.usage import Price

_CHECKS: dict[ListingKind, KeyCheck] = {
    "openai": KeyCheck(url="/models"),
    "anthropic": KeyCheck(url="/v1/models", header="x-api-key", prefix="", headers={"anthropic-version": "2023-06-01"}),
    "google": KeyCheck(url="/v1beta/models", header="x-goog-api-key", prefix=""),
    # OpenRouter lists its models to anyone; this says whether the key works.
    "openrouter": KeyCheck(url="/key"),
}
"""How a vendor's list of models is asked for with a key, at a path below its base URL."""


class VendorLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What one vendor's login needs besides what its vendor row says."""

    flow: FlowName
    key_page: str = ""
    options: dict[str, str] = {}
    option_variables: dict[str, str] = {}


VENDOR_LOGINS: Final[dict[str, VendorLogin]] = {
    "anthropic": VendorLogin(flow="anthropic", key_page="https://platform.claude.com/settings/keys"),
    "openai": VendorLogin(flow="api_key", key_page="https://platform.openai.com/api-keys"),
    "google": VendorLogin(flow="api_key", key_page="https://aistudio.google.com/apikey"),
    "openai-codex": VendorLogin(
        flow="openai_codex",
        # Scopes, ports and endpoints of "Sign in with ChatGPT" as openai/codex has them in codex-rs/login; the client
        # id is the one many clients agree on. OpenAI offers no registration of other clients for it.
        options={
            "issuer": "https://auth.openai.com",
            "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
            "scope": "openid profile email offline_access",
        },
    ),
    "github-copilot": VendorLogin(
        flow="github_copilot",
        # The client id that GitHub's own editor plug-ins use for the device flow; the exchange behind it accepts tokens
        # of registered Copilot clients only. GH_HOST is what GitHub's command line reads too.
        options={"client_id": "Iv1.b507a08c87ecfe98", "scope": "read:user"},
        option_variables={"host": "GH_HOST"},
    ),
    "google-gemini-cli": VendorLogin(
        flow="google_gemini_cli",
        options={
            "scope": "openid email https://www.googleapis.com/auth/cloud-platform",
            "base_url": "https://cloudcode-pa.googleapis.com",
        },
        option_variables={
            "client_id": "GOOGLE_OAUTH_CLIENT_ID",
            "client_secret": "GOOGLE_OAUTH_CLIENT_SECRET",
            "project": "GOOGLE_CLOUD_PROJECT",
            "base_url": "CODE_ASSIST_ENDPOINT",
        },
    ),
    # https://openrouter.ai/docs/guides/overview/auth/oauth
    "openrouter": VendorLogin(
        flow="openrouter",
        options={
            "authorization_endpoint": "https://openrouter.ai/auth",
            "token_endpoint": "https://openrouter.ai/api/v1/auth/keys",
        },
    ),
}

_FLOWS_WITH_CLIENT: Final = frozenset({"openai_codex", "github_copilot", "google_gemini_cli"})
"""Vendors' own flows that a client of the user's can go through."""

TEST_LOGIN_VARIABLE: Final = "MAKAI_TEST_LOGIN"
"""Set by tests that need a login without a vendor. Without it the test fixture does not exist."""
TEST_FIXTURE: Final = LoginProvider(
    id="test-fixture", name="Test fixture", flow="test_fixture", origins=("https://test-fixture.invalid:443",)
)
TEST_VENDOR: Final = Vendor(
    id=TEST_FIXTURE.id,
    name=TEST_FIXTURE.name,
    api="scripted",
    root="https://test-fixture.invalid",
    paths={"scripted": ""},
    open_ended=False,
    default_model="fixture",
    listing="none",
)
TEST_MODEL: Final = ModelRow(
    provider=TEST_FIXTURE.id, id="fixture", name="Test fixture (scripted)", price=Price(input=0, output=0)
)


def additional_vendors(config: Config, environ: Mapping[str, str]) -> list[Vendor]:
    """Rows that the vendor table does not have: the providers of config.toml, and the fixture a test asks for."""
    vendors = [_vendor(provider_id, provider) for provider_id, provider in config.providers.items()]
    return [*vendors, TEST_VENDOR] if environ.get(TEST_LOGIN_VARIABLE) else vendors


def additional_rows(config: Config, environ: Mapping[str, str]) -> list[ModelRow]:
    """The models that config.toml names, for servers without a list of their own, and the test fixture's."""
    rows = [
        ModelRow(provider=provider_id, id=model_id, name=model_id, capabilities=ASSUMED_CAPABILITIES)
        for provider_id, provider in config.providers.items()
        for model_id in provider.models
    ]
    return [*rows, TEST_MODEL] if environ.get(TEST_LOGIN_VARIABLE) else rows


def login_providers(vendors: VendorTable, config: Config, environ: Mapping[str, str]) -> list[LoginProvider]:
    """Every provider a credential can be obtained for, in the order of the table."""
    providers = []
    for vendor in vendors.values():
        if not vendor.can_log_in:
            continue
        written = config.providers.get(vendor.id)
        if vendor.id == TEST_FIXTURE.id:
            providers.append(TEST_FIXTURE)
        elif written is not None:
            providers.append(configured(vendor.id, written))
        else:
            providers.append(with_vendor_login(_from_vendor(vendor, environ)))
    return providers


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
        address=base_url,
        check=msgspec.structs.replace(check, url=base_url + check.url) if check else None,
    )


def _vendor(provider_id: str, provider: ProviderConfig) -> Vendor:
    return Vendor(
        id=provider_id,
        name=provider.name or provider_id,
        api=provider.api,
        root=provider.base_url.rstrip("/"),
        paths={provider.api: ""},
        key_variables=(provider.key_variable,) if provider.key_variable else (),
        needs_key=provider.is_keyed,
        takes_key=True,
        default_model=provider.default_model,
        listing="openai" if provider.api.startswith("openai") else "none",
        is_configured=True,
    )


def with_vendor_login(provider: LoginProvider) -> LoginProvider:
    """The provider with what the table knows of its login; one it does not know takes an API key."""
    known = VENDOR_LOGINS.get(provider.id)
    if known is None:
        return provider
    return msgspec.structs.replace(
        provider,
        flow=known.flow,
        key_page=known.key_page or provider.key_page,
        options={**known.options, **provider.options},
        option_variables={**known.option_variables, **provider.option_variables},
    )


def configured(provider_id: str, config: ProviderConfig) -> LoginProvider:
    provider = LoginProvider(
        id=provider_id,
        name=config.name or provider_id,
        origins=(origin_of(config.base_url),),
        key_variables=(config.key_variable,) if config.key_variable else (),
        required=config.is_keyed,
    )
    return with_login_config(provider, config.login) if config.login is not None else provider


def with_login_config(provider: LoginProvider, login: LoginConfig) -> LoginProvider:
    """The provider with what the user wrote about its login. A vendor whose login differs from the standard keeps its
    own flow: then this is about the client to log in with."""
    known = VENDOR_LOGINS.get(provider.id)
    if known is not None and known.flow in _FLOWS_WITH_CLIENT:
        provider = with_vendor_login(provider)
    else:
        provider = msgspec.structs.replace(provider, flow="oidc")
    addresses = {name: getattr(login, name) for name in ("issuer", *ENDPOINTS) if getattr(login, name)}
    for name, url in addresses.items():
        try:
            safe_origin(url)
        except InvalidRequest as error:
            where = f"[providers.{provider.id}.login] {name}"
            raise InvalidRequest(f"{where}: {error.message}", hint=error.hint) from None
    others = {
        "client_id": login.client_id,
        "scope": " ".join(login.scopes),
        "flow": login.flow,
        "redirect_port": str(login.redirect_port) if login.redirect_port else "",
        "send_as": login.send_as if login.send_as != "Authorization" else "",
    }
    options = addresses | {name: value for name, value in others.items() if value}
    return msgspec.structs.replace(
        provider,
        options={**provider.options, **options},
        client_secret=Secret(login.client_secret) if login.client_secret else provider.client_secret,
    )
