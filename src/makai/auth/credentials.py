"""Credentials as data: what a login stores, where a key may come from, and what is sent with a request.

Secrets are `Secret` and cannot be encoded by accident. Every credential, API keys too, is bound to the origins it may
be sent to: a caller's `base_url` outside of them gets no credential.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from makai.auth.origins import origin_of
from makai.core.secret import Secret

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
