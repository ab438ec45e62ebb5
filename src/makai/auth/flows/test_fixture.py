"""A login without a vendor and without network, for tests: one question, one answer (see `catalog.logins`)."""

from __future__ import annotations

import secrets
import time
from typing import Final

from makai.auth.credentials import Account, OAuthToken
from makai.auth.flows import LoginIO, LoginProvider, account_of
from makai.auth.http import AuthHttp
from makai.core.errors import AuthRequired
from makai.core.secret import Secret

LIFETIME_MS: Final = 3600 * 1000


async def login(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """Succeed when the answer is "ok"."""
    answer = await io.prompt('Type "ok" to log in:')
    if answer.strip() != "ok":
        raise AuthRequired(
            'The answer was not "ok".', provider_id=provider.id, hint=f"Try again: `makai auth login {provider.id}`"
        )
    token = OAuthToken(
        access=Secret(f"test-fixture-{secrets.token_urlsafe(16)}"),
        expires_at_ms=time.time_ns() // 1_000_000 + LIFETIME_MS,
    )
    return account_of(provider, token, label="test")
