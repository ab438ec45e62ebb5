"""Log in by pasting an API key, which is tested before it is stored.

A key that could not be tested is not stored: a wrong key is best noticed while the right one is still in the clipboard.

Anthropic takes a key or a token that the user's own Claude Code issued (`claude setup-token` is its documented way to
hand one out). There is no login page: plan logins belong to Anthropic's own programs, which makai does not imitate.
"""

from __future__ import annotations

import secrets
from typing import Final

from makai.auth.credentials import Account, ApiKey, OAuthToken
from makai.auth.flows import KeyCheck, LoginIO, LoginProvider, account_of, known_origins
from makai.auth.http import AuthHttp
from makai.auth.oauth import try_again
from makai.auth.store import unix_milliseconds
from makai.core.errors import AuthRequired, ProviderError
from makai.core.secret import Secret

ATTEMPTS: Final = 3
ANTHROPIC_TOKEN_PREFIX: Final = "sk-ant-oat"
MAX_KEY: Final = 8 * 1024
_CANNOT_CHECK: Final = frozenset({404, 405, 501})
"""Answers of servers without such an endpoint: they say nothing about the key."""


async def login_api_key(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    where = f" (you find it at {provider.key_page})" if provider.key_page else ""
    key = await ask(io, provider, f"Paste your API key for {provider.name}{where}:")
    if provider.check is None:
        await io.progress("The key is stored without a test: this provider has no request for that.")
    else:
        await try_key(io, provider, http, key, provider.check)
    return account_of(provider, ApiKey(key=key))


async def login_anthropic(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    where = f" (from {provider.key_page})" if provider.key_page else ""
    pasted = await ask(
        io, provider, f"Paste your Anthropic API key{where}, or the token that `claude setup-token` printed:"
    )
    is_token = pasted.reveal().startswith(ANTHROPIC_TOKEN_PREFIX)
    if provider.check is not None:
        await try_key(io, provider, http, pasted, _as_bearer(provider.check) if is_token else provider.check)
    return account_of(provider, OAuthToken(access=pasted) if is_token else ApiKey(key=pasted))


def _as_bearer(check: KeyCheck) -> KeyCheck:
    """Tokens go into another header than keys, under a beta name (the `anthropic_messages` adapter does the same)."""
    headers = {**check.headers, "anthropic-beta": "oauth-2025-04-20"}
    return KeyCheck(url=check.url, header="Authorization", prefix="Bearer ", headers=headers)


async def ask(io: LoginIO, provider: LoginProvider, message: str) -> Secret:
    """What the user pasted, once it has the shape of a key. Fails before asking where the key could not be used."""
    known_origins(provider)
    for _ in range(ATTEMPTS):
        text = (await io.prompt(message)).strip().strip("\"'")
        if text and len(text) <= MAX_KEY and text.isascii() and text.isprintable() and " " not in text:
            return Secret(text)
        await io.progress("That is not an API key: it must be one word of plain letters, digits and signs.")
    raise try_again(f"No usable API key for {provider.name} was given.", provider.id)


async def try_key(io: LoginIO, provider: LoginProvider, http: AuthHttp, key: Secret, check: KeyCheck) -> None:
    """Ask the vendor whether the key works; an error when it does not, or when that cannot be determined."""
    await io.progress(f"Trying the key at {provider.name}.")
    value = Secret(f"{check.prefix}{key.reveal()}")
    answer = await http.get(check.url, {**check.headers, check.header: value})
    if 200 <= answer.status < 300:
        return
    if answer.status in _CANNOT_CHECK:
        await io.progress(f"{provider.name} has no request to test a key with; it is stored untested.")
        return
    if answer.status in (401, 403):
        copied = "Copy it again as a whole, and check that it is for this provider and not revoked."
        restricted = "The key may be restricted: let it list models, or check its project and your region."
        raise AuthRequired(
            f"{provider.name} refused the key (HTTP {answer.status}). It was not stored.",
            provider_id=provider.id,
            hint=copied if answer.status == 401 else restricted,
        )
    raise ProviderError(
        f"{provider.name} could not tell whether the key works (HTTP {answer.status}). It was not stored.",
        provider_id=provider.id,
        status=answer.status,
        hint=f"Try again in a while: `makai auth login {provider.id}`",
    )


TEST_LIFETIME_MS: Final = 3600 * 1000


async def login_test_fixture(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """A login without a vendor and without network, for tests (see `catalog.logins`): the answer must be "ok"."""
    answer = await io.prompt('Type "ok" to log in:')
    if answer.strip() != "ok":
        raise try_again('The answer was not "ok".', provider.id)
    token = OAuthToken(
        access=Secret(f"test-fixture-{secrets.token_urlsafe(16)}"), expires_at_ms=unix_milliseconds() + TEST_LIFETIME_MS
    )
    return account_of(provider, token, label="test")
