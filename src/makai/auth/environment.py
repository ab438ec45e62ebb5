"""API keys from environment variables, each bound to the origins it may be sent to.

In: a `KeySource` (names of variables, origins: plain data) and an environment. Out: a `Credential` or None. It must not
know vendors, models or HTTP.

DESIGN §9: "Every stored credential, API keys too, is bound to the origins it may be sent to; a caller's `base_url`
outside them gets no credential."
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from makai.auth.origins import origin_of
from makai.core.errors import AuthRequired
from makai.core.secret import Secret


class KeySource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider's API key may come from and go to."""

    provider_id: str
    name: str
    """The provider as people call it, for messages."""
    variables: tuple[str, ...]
    """Environment variables in the order they are tried."""
    origins: frozenset[str]
    """Canonical origins (`origin_of`) the key may be sent to."""
    required: bool = True
    """Whether the provider refuses requests without a key."""
    base_url_variable: str = ""
    """The variable in which the user can name a further server the key may be sent to."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, who it belongs to, where it came from and where it may go."""

    provider_id: str
    secret: Secret
    origins: frozenset[str]
    source: str
    """For people: where it comes from, such as "OPENAI_API_KEY" or "login 'work'"."""
    account: str = ""
    """The stored account it belongs to; empty for a key from the environment."""
    expires_at_ms: int | None = None
    provider_data: dict[str, str] = {}
    """What else the vendor needs with each request (`OAuthToken.provider_data`)."""

    def may_be_sent_to(self, url: str) -> bool:
        """Whether the URL's origin is exactly one of this credential's."""
        return origin_of(url) in self.origins


def find_key(source: KeySource, environ: Mapping[str, str]) -> Credential | None:
    """The first variable that holds a key, wherever it may be sent. An empty variable is an absent one."""
    for variable in source.variables:
        value = environ.get(variable, "").strip()
        if not value:
            continue
        if not (value.isascii() and value.isprintable()):
            raise AuthRequired(
                f"{variable} holds characters that cannot be part of an API key.",
                provider_id=source.provider_id,
                hint=f"Set {variable} again, on one line and without quotes around it.",
            )
        return Credential(provider_id=source.provider_id, secret=Secret(value), origins=source.origins, source=variable)
    return None
