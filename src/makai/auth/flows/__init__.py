"""Login flows: each turns a `LoginIO` (how to talk to the user), a `LoginProvider` (plain data) and an HTTP client into
an `Account` that is not stored yet, or raises one typed error. A flow may be cancelled at any `await`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Literal, Protocol, TypeAlias

import msgspec

from makai.auth.credentials import DEFAULT_ACCOUNT, Account, StoredCredential
from makai.auth.http import AuthHttp
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret

FlowName: TypeAlias = Literal[
    "anthropic", "api_key", "github_copilot", "google_gemini_cli", "oidc", "openai_codex", "openrouter", "test_fixture"
]
"""Each has a function `login_<name>` in a module of this folder."""
_MODULES = {"anthropic": "api_key", "api_key": "api_key", "oidc": "oauth2", "test_fixture": "api_key"}


class LoginIO(Protocol):
    async def auth_url(self, url: str, instructions: str = "") -> None:
        """Show a page to open."""

    async def prompt(self, message: str, *, allow_empty: bool = False) -> str:
        """Ask, and wait for the answer; asks again while it is empty, unless that is allowed."""

    async def progress(self, message: str) -> None:
        """Report what is happening."""


class KeyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A cheap request that tells whether a key works."""

    url: str
    header: str = "Authorization"
    prefix: str = "Bearer "
    headers: dict[str, str] = {}


class LoginProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that the user can log in to, as plain data."""

    id: str
    name: str
    flow: FlowName = "api_key"
    origins: tuple[str, ...] = ()
    """Where the credential may be sent (canonical origins)."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that stand for a login."""
    address: str = ""
    """The base URL of its API, where that is known."""
    required: bool = True
    """Whether the provider refuses requests without a credential."""
    key_page: str = ""
    """The page on which the vendor shows API keys."""
    check: KeyCheck | None = None
    options: dict[str, str] = {}
    """What the flow needs to know: endpoints, client id, scopes. Never a secret."""
    client_secret: Secret | None = None
    option_variables: dict[str, str] = {}
    """Option (or `client_secret`) -> the environment variable that sets it."""


LoginProcedure: TypeAlias = Callable[[LoginIO, LoginProvider, AuthHttp], Awaitable[Account]]


def procedure_of(provider: LoginProvider) -> LoginProcedure:
    """The flow's login function; its module is imported only now."""
    module = import_module(f"{__name__}.{_MODULES.get(provider.flow, 'vendors')}")
    procedure: LoginProcedure = getattr(module, f"login_{provider.flow}")
    return procedure


def account_of(
    provider: LoginProvider, credential: StoredCredential, *, label: str = "", origins: tuple[str, ...] = ()
) -> Account:
    """The account for a credential, bound to where it may be sent."""
    return Account(name=DEFAULT_ACCOUNT, credential=credential, origins=origins or known_origins(provider), label=label)


def known_origins(provider: LoginProvider) -> tuple[str, ...]:
    """Where the provider's credential may be sent; `InvalidRequest` where none is configured."""
    if not provider.origins:
        raise InvalidRequest(
            f"It is not known where {provider.name} is reached, so a credential for it cannot be bound to a server.",
            hint="Set its base URL first, then log in.",
        )
    return provider.origins


def required_option(provider: LoginProvider, name: str) -> str:
    if value := provider.options.get(name, ""):
        return value
    variable = provider.option_variables.get(name)
    hint = f"Set it in [providers.{provider.id}.login] of config.toml" + (f" or in {variable}." if variable else ".")
    raise InvalidRequest(f"Logging in to {provider.name} needs `{name}`.", hint=hint)
