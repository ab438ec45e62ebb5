"""What a login leaves behind: credentials, and the accounts they belong to.

In: values from a login flow or from the store's file. Out: frozen Structs. Nothing here reads files, talks to servers
or knows a vendor; secrets are `Secret` and cannot be encoded by accident.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

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
    """None when the server did not say: then only a refusal shows that it is over."""
    refresher: str = "oauth2"
    """Which refresh procedure applies: the standard one, or a vendor's (a file of `auth.flows`)."""
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
    """Where the credential may be sent (canonical origins). A foreign `base_url` gets none (DESIGN §9)."""
    label: str = ""
    """For people: an e-mail address or the like, when the provider told one."""
    saved_at_ms: int = 0
