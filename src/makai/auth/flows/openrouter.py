"""Log in at OpenRouter: PKCE in the browser, which ends in an API key of the user's own.

Differences from the standard: the redirect URI is called `callback_url`, there is no client id, and no `state` comes
back, so it is part of the redirect's path.
"""

from __future__ import annotations

from typing import Final

from makai.auth.credentials import Account, ApiKey
from makai.auth.flows import LoginIO, LoginProvider, account_of, required_option
from makai.auth.flows.api_key import try_key
from makai.auth.flows.authorization_code import BrowserLogin, browser_code
from makai.auth.http import AuthHttp
from makai.auth.oauth import Pkce, successful_object, with_query
from makai.core.errors import AuthRequired, ProviderError
from makai.core.secret import Secret

KEY_PREFIX: Final = "sk-or-"


async def login(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """The browser flow; a key that is pasted instead of a code is fine too."""
    page = required_option(provider, "authorization_endpoint")

    def url(redirect_uri: str, pkce: Pkce, state: Secret) -> str:
        return with_query(
            page,
            {"callback_url": redirect_uri, "code_challenge": pkce.challenge, "code_challenge_method": "S256"},
        )

    browser = BrowserLogin(url=url, host="localhost", state_in_path=True)
    code = await browser_code(io, provider, browser)
    if code.code.reveal().startswith(KEY_PREFIX):
        if provider.check is not None:
            await try_key(io, provider, http, code.code, provider.check)
        return account_of(provider, ApiKey(key=code.code))
    await io.progress("Fetching the key.")
    answer = await http.post_json(
        required_option(provider, "token_endpoint"),
        {"code": code.code, "code_verifier": code.pkce.verifier, "code_challenge_method": "S256"},
    )
    if answer.status in (400, 403):
        raise AuthRequired(
            "OpenRouter refused the code.",
            provider_id=provider.id,
            hint=f"Codes work once and soon expire. Start again: `makai auth login {provider.id}`",
        )
    key = successful_object(answer, provider_id=provider.id).get("key")
    if not (isinstance(key, str) and key and key.isascii() and key.isprintable()):
        raise ProviderError("OpenRouter's answer holds no key.", provider_id=provider.id)
    return account_of(provider, ApiKey(key=Secret(key)))
