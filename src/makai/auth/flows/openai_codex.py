"""Log in with a ChatGPT account (`openai-codex`): in the browser, or with a code on another device.

The account holds the ChatGPT account id, which every request must name. The browser part is standard; only the
redirect's port is fixed and the device part is OpenAI's own.
"""

from __future__ import annotations

from typing import Any, Final

from makai.auth.credentials import Account, OAuthToken
from makai.auth.flows import LoginIO, LoginProvider, account_of, required_option
from makai.auth.flows.authorization_code import BrowserLogin, Code, Switched, browser_token, exchange, standard_page
from makai.auth.flows.device_code import MAX_WAIT_S, poll, show
from makai.auth.flows.oidc import label_of, token_of
from makai.auth.http import AuthHttp
from makai.auth.oauth import DeviceAuthorization, Pkce, ServerMetadata, TokenAnswer, jwt_claims, successful_object
from makai.core.errors import AuthRequired, ProviderError
from makai.core.secret import Secret

PORTS: Final = (1455, 1457)
"""The redirect URIs registered for this client: http://localhost:1455/auth/callback, and 1457 where 1455 is taken."""
SWITCH_WORD: Final = "code"
_CLAIM: Final = "https://api.openai.com/auth"


async def login(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """Log in in the browser; the user may switch to a code."""
    client_id = required_option(provider, "client_id")
    issuer = required_option(provider, "issuer").rstrip("/")
    server = ServerMetadata(
        authorization_endpoint=f"{issuer}/oauth/authorize",
        token_endpoint=f"{issuer}/oauth/token",
        revocation_endpoint=f"{issuer}/oauth/revoke",
    )
    extra = {"id_token_add_organizations": "true", "codex_cli_simplified_flow": "true", "originator": "makai"}
    page = standard_page(
        server.authorization_endpoint,
        client_id=client_id,
        scope=provider.options.get("scope", ""),
        extra={**extra, "prompt": ""},
    )
    browser = BrowserLogin(url=page, host="localhost", ports=PORTS, path="/auth/callback")
    try:
        answer = await browser_token(
            io,
            provider,
            http,
            browser,
            token_endpoint=server.token_endpoint,
            client_id=client_id,
            switch_word=SWITCH_WORD,
        )
    except Switched:
        answer = await _device_answer(io, provider, http, issuer, server.token_endpoint)
    return account_of(provider, _token(provider, answer, server), label=label_of(answer))


def _token(provider: LoginProvider, answer: TokenAnswer, server: ServerMetadata) -> OAuthToken:
    claims = jwt_claims(answer.id_token).get(_CLAIM)
    account_id = claims.get("chatgpt_account_id") if isinstance(claims, dict) else None
    if not isinstance(account_id, str) or not account_id.isprintable():
        raise ProviderError(
            "OpenAI's answer names no ChatGPT account.", provider_id=provider.id, hint="Log in with a ChatGPT plan."
        )
    return token_of(provider, answer, server, account_id=account_id, revocation_encoding="json")


async def _device_answer(
    io: LoginIO, provider: LoginProvider, http: AuthHttp, issuer: str, token_endpoint: str
) -> TokenAnswer:
    """OpenAI's device flow: like RFC 8628, but it ends in a code that is then traded like the browser's."""
    client_id = provider.options["client_id"]
    started = successful_object(
        await http.post_json(f"{issuer}/api/accounts/deviceauth/usercode", {"client_id": client_id}),
        provider_id=provider.id,
    )
    device = _device(started, f"{issuer}/codex/device", provider.id)
    await show(io, device)

    async def ask() -> Code | str:
        body = {"device_auth_id": device.device_code, "user_code": device.user_code}
        answer = await http.post_json(f"{issuer}/api/accounts/deviceauth/token", body)
        if answer.status in (403, 404):  # not typed yet
            return "authorization_pending"
        fields = successful_object(answer, provider_id=provider.id)
        code, verifier = fields.get("authorization_code"), fields.get("code_verifier")
        if not (isinstance(code, str) and isinstance(verifier, str)):
            raise AuthRequired("OpenAI's answer holds no authorization code.", provider_id=provider.id)
        return Code(Secret(code), f"{issuer}/deviceauth/callback", Pkce(Secret(verifier), ""))

    code = await poll(provider, ask, interval_s=device.interval_s, expires_in_s=device.expires_in_s)
    return await exchange(provider, http, code, token_endpoint, client_id, None)


def _device(fields: dict[str, Any], page: str, provider_id: str) -> DeviceAuthorization:
    identifier, user_code = fields.get("device_auth_id"), fields.get("user_code", fields.get("usercode"))
    if not (isinstance(identifier, str) and isinstance(user_code, str) and user_code.isprintable()):
        raise ProviderError("OpenAI's answer holds no code to type.", provider_id=provider_id)
    interval = str(fields.get("interval", "5")).strip()  # comes as text
    return DeviceAuthorization(
        device_code=Secret(identifier),
        user_code=user_code,
        verification_uri=page,
        expires_in_s=MAX_WAIT_S,
        interval_s=int(interval) if interval.isascii() and interval.isdigit() and len(interval) < 4 else 5,
    )
