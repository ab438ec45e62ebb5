"""The credential for a request: the user's logins first, then the environment.

In: a `KeySource`, a base URL, perhaps an account's name. Out: a `Credential`, `None` where none is needed, or
`AuthRequired` that says what to do. Precedence: what the caller gives explicitly (not asked here) > store >
environment. It refreshes nothing and must not know vendors, models or HTTP; a look-up is one `stat` and a few dicts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from makai.auth.credentials import Account, ApiKey
from makai.auth.environment import Credential, KeySource, find_key
from makai.auth.origins import origin_of
from makai.auth.store import CredentialStore
from makai.core.errors import AuthRequired


class Keychain:
    """Where credentials come from."""

    def __init__(self, environ: Mapping[str, str], store: CredentialStore | None = None) -> None:
        self._environ = environ
        self._store = store

    def find(self, source: KeySource, account: str | None = None) -> Credential | None:
        """What we have for this provider, wherever it may be sent."""
        stored = self._stored(source.provider_id, account)
        if stored is not None:
            # A login kept by an older version does not say where it may go: to its own vendor, then.
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

    def _stored(self, provider_id: str, account: str | None) -> Account | None:
        return self._store.snapshot().account(provider_id, account) if self._store is not None else None


def credential_of(provider_id: str, account: Account) -> Credential:
    """A stored account as something to send."""
    stored = account.credential
    where = f"login {account.name!r}"
    if isinstance(stored, ApiKey):
        return Credential(
            provider_id=provider_id,
            secret=stored.key,
            origins=frozenset(account.origins),
            source=where,
            account=account.name,
        )
    return Credential(
        provider_id=provider_id,
        secret=stored.access,
        origins=frozenset(account.origins),
        source=where,
        account=account.name,
        expires_at_ms=stored.expires_at_ms,
        provider_data=stored.provider_data,
    )


def _how_to_log_in(source: KeySource) -> str:
    login = f"Run `makai auth login {source.provider_id}`"
    return f"{login}, or set {' or '.join(source.variables)}." if source.variables else f"{login}."
