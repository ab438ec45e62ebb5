"""Finds the credential for a request: the user's logins first, then environment variables.

A key that the caller gives explicitly wins over both and never comes here. A look-up costs one `stat` and refreshes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from makai.auth.credentials import Account, Credential, KeySource, OAuthToken, secret_of
from makai.auth.origins import origin_of
from makai.auth.store import CredentialStore
from makai.core.errors import AuthRequired
from makai.core.secret import Secret


class Keychain:
    """Looks up credentials in the store and in an environment."""

    def __init__(self, environ: Mapping[str, str], store: CredentialStore | None = None) -> None:
        self._environ = environ
        self._store = store

    def find(self, source: KeySource, account: str | None = None) -> Credential | None:
        """The credential for this provider, regardless of where it may be sent."""
        stored = self._store.snapshot().account(source.provider_id, account) if self._store is not None else None
        if stored is not None:
            # A login stored by an older version names no origins: it may go to the provider's own.
            bound = stored if stored.origins else msgspec.structs.replace(stored, origins=tuple(source.origins))
            return credential_of(source.provider_id, bound)
        return None if account else find_key(source, self._environ)

    def credential_for(self, source: KeySource, base_url: str, account: str | None = None) -> Credential | None:
        """The credential to use at `base_url`.

        `None` where the provider needs no key and none may be sent there; `AuthRequired` where it needs one.
        """
        credential = self.find(source, account)
        if credential is not None and credential.may_be_sent_to(base_url):
            return credential
        if account is not None and credential is None:
            raise AuthRequired(
                f"There is no account {account!r} of {source.name}.",
                provider_id=source.provider_id,
                hint=f"Run `makai auth login {source.provider_id} --account {account}`.",
            )
        if not source.required:
            return None
        if credential is None:
            missing = f"No API key for {source.name}." if source.variables else f"Not logged in: {source.name}."
            raise AuthRequired(missing, provider_id=source.provider_id, hint=_how_to_log_in(source))
        raise AuthRequired(
            f"{credential.source} is not sent to {origin_of(base_url)}: "
            f"a key of {source.name} may only go to {', '.join(sorted(credential.origins)) or 'its own servers'}.",
            provider_id=source.provider_id,
            hint=f"If you trust that server, set {source.base_url_variable} to it."
            if source.base_url_variable
            else None,
        )


def find_key(source: KeySource, environ: Mapping[str, str]) -> Credential | None:
    """The key in the first variable that is not empty; `AuthRequired` when that cannot be a key."""
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


def credential_of(provider_id: str, account: Account) -> Credential:
    """The credential to send for a stored account."""
    stored = account.credential
    token = stored if isinstance(stored, OAuthToken) else None
    return Credential(
        provider_id=provider_id,
        secret=secret_of(account),
        origins=frozenset(account.origins),
        source=f"login {account.name!r}",
        account=account.name,
        expires_at_ms=token.expires_at_ms if token else None,
        provider_data=token.provider_data if token else {},
    )


def _how_to_log_in(source: KeySource) -> str:
    login = f"Run `makai auth login {source.provider_id}`"
    return f"{login}, or set {' or '.join(source.variables)}." if source.variables else f"{login}."
