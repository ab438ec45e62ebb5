"""How logins are written into `auth.json`.

In: the file's JSON as plain values, or the logins at one provider. Out: the other of the two. Pure: it reads no file,
and it is the one place besides outgoing requests where secrets are shown.

    {provider_id: {"default": name, "accounts": {name: {"type", the credential's fields, "origins", "label", …}}}}

An older shape is understood too, as the account "default": `{provider_id: {"api_key"}}` and
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
"""The file as plain JSON: entries of providers that are not being changed are written back as they were."""


class Logins(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts at one provider, in the order they were added."""

    default: str = ""
    accounts: dict[str, Account] = {}


class UnreadableEntry(Exception):
    """Which provider's entry has another shape. It says nothing of what is in it: that may be a secret."""

    def __init__(self, provider_id: str) -> None:
        super().__init__(provider_id)
        self.provider_id = provider_id


def understood(entries: Entries) -> dict[str, Logins]:
    """What the entries mean; all of them, or `UnreadableEntry`."""
    logins: dict[str, Logins] = {}
    for provider_id, entry in entries.items():
        try:
            logins[provider_id] = _logins(provider_id, entry)
        except (msgspec.ValidationError, ParseError):
            raise UnreadableEntry(provider_id) from None
    return logins


def plain(logins: Logins) -> dict[str, Any]:
    """The entry of one provider."""
    accounts = {
        name: {
            **msgspec.to_builtins(account.credential, enc_hook=_revealed),
            "origins": list(account.origins),
            "label": account.label,
            "saved_at_ms": account.saved_at_ms,
        }
        for name, account in logins.accounts.items()
    }
    return {"default": logins.default, "accounts": accounts}


def encoded(entries: Entries) -> bytes:
    """The text of the file; what could not be read back (half a character, a NUL) is refused while nothing is lost."""
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


def _logins(provider_id: str, entry: Any) -> Logins:
    if not isinstance(entry, dict) or "accounts" not in entry:
        older = _older_account(provider_id, msgspec.convert(entry, _OlderEntry))
        return Logins(default=older.name, accounts={older.name: older})
    present = msgspec.convert(entry, _Entry)
    accounts = {name: _account(name, fields) for name, fields in present.accounts.items()}
    # A default that was edited away by hand is no reason to refuse the logins.
    default = present.default if present.default in accounts else next(iter(accounts), "")
    return Logins(default=default, accounts=accounts)


def _account(name: str, fields: dict[str, Any]) -> Account:
    credential: StoredCredential = msgspec.convert(fields, StoredCredential, dec_hook=_hidden)
    about = msgspec.convert(fields, _AboutAccount)
    return Account(
        name=name, credential=credential, origins=about.origins, label=about.label, saved_at_ms=about.saved_at_ms
    )


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


def _revealed(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value).__name__)
