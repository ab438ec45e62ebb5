"""The text that holds logins, `auth.json` or its encrypted copy in a database, and the accounts in it. Pure.

    {provider_id: {"default": name, "accounts": {name: {"type", the credential's fields, "origins", "label", …}}}}

An older shape is read too, as the account "default": `{provider_id: {"api_key"}}` and
`{provider_id: {"access", "refresh", "expires", "provider_data"}}`. It names no origins.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from makai.auth.credentials import DEFAULT_ACCOUNT, Account, ApiKey, OAuthToken, StoredCredential
from makai.core.errors import InvalidRequest, ParseError
from makai.core.secret import Secret
from makai.wire import strict_json

MAX_BYTES: Final = 4 * 1024 * 1024

Entries: TypeAlias = dict[str, Any]
"""The text as plain JSON: entries of providers that are not being changed are written back as they were."""


class ProviderAccounts(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts at one provider, in the order they were added."""

    default: str = ""
    accounts: dict[str, Account] = {}


class StoreSnapshot(msgspec.Struct, frozen=True):
    """The stored accounts at one moment."""

    logins: dict[str, ProviderAccounts] = {}

    def account(self, provider_id: str, name: str | None = None) -> Account | None:
        if logins := self.logins.get(provider_id):
            return logins.accounts.get(logins.default if name is None else name)
        return None

    def providers(self) -> tuple[str, ...]:
        return tuple(self.logins)

    def accounts(self, provider_id: str) -> tuple[Account, ...]:
        """All accounts at the provider, in the order they were added."""
        return tuple(self.logins.get(provider_id, ProviderAccounts()).accounts.values())

    def default(self, provider_id: str) -> str | None:
        """The name of the account that is used where none is named."""
        return self.logins.get(provider_id, ProviderAccounts()).default or None


class UnreadableText(Exception):
    """The text is not what a store of logins holds. Says nothing of what is in it: that may be a secret."""


def decoded(data: bytes) -> Entries:
    """The entries of a text; `UnreadableText` says what it is instead."""
    try:
        entries = strict_json.decode(data, max_bytes=MAX_BYTES)
    except ParseError:
        raise UnreadableText("holds no valid JSON") from None
    if not isinstance(entries, dict):
        raise UnreadableText("holds no JSON object")
    return entries


def snapshot_of(entries: Entries) -> StoreSnapshot:
    """The accounts; `UnreadableText` names the provider whose entry cannot be read."""
    return StoreSnapshot(
        {provider_id: _provider_accounts(provider_id, entry) for provider_id, entry in entries.items()}
    )


def _provider_accounts(provider_id: str, entry: Any) -> ProviderAccounts:
    try:
        return _logins(provider_id, entry)
    except (msgspec.ValidationError, ParseError):
        raise UnreadableText(f"has an entry for {provider_id!r} that this version cannot read") from None


def plain(logins: ProviderAccounts) -> dict[str, Any]:
    accounts = {
        name: {
            **msgspec.to_builtins(account.credential, enc_hook=Secret.reveal),
            "origins": list(account.origins),
            "label": account.label,
            "saved_at_ms": account.saved_at_ms,
        }
        for name, account in logins.accounts.items()
    }
    return {"default": logins.default, "accounts": accounts}


def encoded(entries: Entries) -> bytes:
    """The text of entries; what could not be read back (half a character, a NUL) is refused while nothing is lost."""
    try:
        data = msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n"
        strict_json.decode(data, max_bytes=MAX_BYTES)
    except (ValueError, ParseError):
        raise InvalidRequest("A name or credential has characters that cannot be stored, or is too long.") from None
    return data


class _Entry(msgspec.Struct):
    accounts: dict[str, dict[str, Any]]
    default: str = ""


class _AboutAccount(msgspec.Struct):
    """What an account's fields say besides the credential."""

    origins: tuple[str, ...]
    label: str = ""
    saved_at_ms: int = 0


class _OlderEntry(msgspec.Struct):
    api_key: str = ""
    access: str = ""
    refresh: str = ""
    expires: int | None = None
    provider_data: str = "{}"


def _logins(provider_id: str, entry: Any) -> ProviderAccounts:
    if not isinstance(entry, dict) or "accounts" not in entry:
        older = _older_account(provider_id, msgspec.convert(entry, _OlderEntry))
        return ProviderAccounts(default=older.name, accounts={older.name: older})
    present = msgspec.convert(entry, _Entry)
    accounts = {name: _account(name, fields) for name, fields in present.accounts.items()}
    # A default that was edited away by hand is no reason to refuse the logins.
    default = present.default if present.default in accounts else next(iter(accounts), "")
    return ProviderAccounts(default=default, accounts=accounts)


def _account(name: str, fields: dict[str, Any]) -> Account:
    credential: StoredCredential = msgspec.convert(fields, StoredCredential, dec_hook=_hidden)
    about = msgspec.structs.asdict(msgspec.convert(fields, _AboutAccount))
    return Account(name=name, credential=credential, **about)


def _older_account(provider_id: str, older: _OlderEntry) -> Account:
    if older.api_key:
        return Account(name=DEFAULT_ACCOUNT, credential=ApiKey(key=Secret(older.api_key)), origins=())
    if not older.access:
        raise msgspec.ValidationError("neither a key nor a token")
    data = msgspec.convert(strict_json.decode(older.provider_data), dict[str, Any])
    token = OAuthToken(
        access=Secret(older.access),
        refresh=Secret(older.refresh) if older.refresh else None,
        expires_at_ms=older.expires,
        refresher=provider_id.replace("-", "_"),  # only vendors' own flows wrote this shape
        provider_data={key: value for key, value in data.items() if isinstance(value, str)},
    )
    return Account(name=DEFAULT_ACCOUNT, credential=token, origins=())


def _hidden(kind: type, value: Any) -> Secret:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise msgspec.ValidationError("not a secret")
