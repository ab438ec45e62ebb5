"""Log in to Anthropic: an API key, or a token that the user's own Claude Code issued.

In: what the user pastes. Out: an account with an `ApiKey`, or an `OAuthToken` without a refresh token. It offers no
login page: plan logins belong to Anthropic's own programs, which we do not imitate. `claude setup-token` is their
documented way to hand out a token for other places.
"""

from __future__ import annotations

from typing import Final

from makai.auth.credentials import Account, ApiKey, OAuthToken
from makai.auth.flows import KeyCheck, LoginIO, LoginProvider, account_of
from makai.auth.flows.api_key import ask, try_key
from makai.auth.http import AuthHttp

TOKEN_PREFIX: Final = "sk-ant-oat"


async def login(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """Ask for a key or token, try it, return it."""
    where = f" (from {provider.key_page})" if provider.key_page else ""
    pasted = await ask(
        io, provider, f"Paste your Anthropic API key{where}, or the token that `claude setup-token` printed:"
    )
    is_token = pasted.reveal().startswith(TOKEN_PREFIX)
    if provider.check is not None:
        await try_key(io, provider, http, pasted, _as_bearer(provider.check) if is_token else provider.check)
    return account_of(provider, OAuthToken(access=pasted) if is_token else ApiKey(key=pasted))


def _as_bearer(check: KeyCheck) -> KeyCheck:
    """Tokens go into another header than keys, under a beta name (the `anthropic_messages` adapter does the same)."""
    headers = {**check.headers, "anthropic-beta": "oauth-2025-04-20"}
    return KeyCheck(url=check.url, header="Authorization", prefix="Bearer ", headers=headers)
