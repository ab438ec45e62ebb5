"""Vendors' own logins: ChatGPT (`openai-codex`), GitHub Copilot, Gemini Code Assist and OpenRouter."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from makai.auth import oauth
from makai.auth.credentials import Account, ApiKey, OAuthToken, safe_origin
from makai.auth.flows import LoginIO, LoginProvider, account_of, oauth2, required_option
from makai.auth.flows.api_key import try_key
from makai.auth.flows.oauth2 import BrowserLogin
from makai.auth.http import AuthHttp, HttpAnswer
from makai.auth.store import unix_milliseconds
from makai.core.errors import AuthRequired, InvalidGrant, InvalidRequest, MakaiError, ProviderError
from makai.core.secret import Secret
from makai.core.version import __version__

CODEX_PORTS: Final = (1455, 1457)
"""The redirect URIs registered for this client: http://localhost:1455/auth/callback, and 1457 where 1455 is taken."""
SWITCH_WORD: Final = "code"
_CLAIM: Final = "https://api.openai.com/auth"


async def login_openai_codex(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """Log in with a ChatGPT account in the browser, or with OpenAI's own kind of device code. The account holds the
    ChatGPT account id, which every request must name."""
    required_option(provider, "client_id")
    issuer = required_option(provider, "issuer").rstrip("/")
    server = oauth.ServerMetadata(
        authorization_endpoint=f"{issuer}/oauth/authorize",
        token_endpoint=f"{issuer}/oauth/token",
        revocation_endpoint=f"{issuer}/oauth/revoke",
    )
    extra = {"id_token_add_organizations": "true", "codex_cli_simplified_flow": "true", "originator": "makai"}
    page = oauth2.standard_page(server.authorization_endpoint, provider, {**extra, "prompt": ""})
    browser = BrowserLogin(url=page, host="localhost", ports=CODEX_PORTS, path="/auth/callback")
    try:
        answer = await oauth2.browser_token(io, provider, http, browser, server.token_endpoint, switch_word=SWITCH_WORD)
    except oauth2.Switched:
        answer = await _codex_device_answer(io, provider, http, issuer, server.token_endpoint)
    claims = oauth.jwt_claims(answer.id_token).get(_CLAIM)
    account_id = claims.get("chatgpt_account_id") if isinstance(claims, dict) else None
    if not isinstance(account_id, str) or not account_id.isprintable():
        raise ProviderError(
            "OpenAI's answer names no ChatGPT account.", provider_id=provider.id, hint="Log in with a ChatGPT plan."
        )
    token = oauth2.token_of(provider, answer, server, account_id=account_id, revocation_encoding="json")
    return account_of(provider, token, label=oauth2.label_of(answer))


async def _codex_device_answer(
    io: LoginIO, provider: LoginProvider, http: AuthHttp, issuer: str, token_endpoint: str
) -> oauth.TokenAnswer:
    """OpenAI's device flow: like RFC 8628, but it ends in a code that is then traded like the browser's."""
    asked = {"client_id": provider.options["client_id"]}
    answer = await http.post_json(f"{issuer}/api/accounts/deviceauth/usercode", asked)
    started = oauth.successful_object(answer, provider_id=provider.id)
    device = _codex_device(started, f"{issuer}/codex/device", provider.id)
    await oauth2.show(io, device)

    async def ask() -> oauth2.Code | str:
        body = {"device_auth_id": device.device_code, "user_code": device.user_code}
        answer = await http.post_json(f"{issuer}/api/accounts/deviceauth/token", body)
        if answer.status in (403, 404):  # not typed yet
            return "authorization_pending"
        fields = oauth.successful_object(answer, provider_id=provider.id)
        code, verifier = fields.get("authorization_code"), fields.get("code_verifier")
        if not (isinstance(code, str) and isinstance(verifier, str)):
            raise AuthRequired("OpenAI's answer holds no authorization code.", provider_id=provider.id)
        return oauth2.Code(Secret(code), f"{issuer}/deviceauth/callback", oauth.Pkce(Secret(verifier), ""))

    code = await oauth2.poll(provider, ask, device)
    return await oauth2.exchange(provider, http, code, token_endpoint)


def _codex_device(fields: dict[str, Any], page: str, provider_id: str) -> oauth.DeviceAuthorization:
    identifier, user_code = fields.get("device_auth_id"), fields.get("user_code", fields.get("usercode"))
    if not (isinstance(identifier, str) and isinstance(user_code, str) and user_code.isprintable()):
        raise ProviderError("OpenAI's answer holds no code to type.", provider_id=provider_id)
    interval = str(fields.get("interval", "5")).strip()  # comes as text
    return oauth.DeviceAuthorization(
        device_code=Secret(identifier),
        user_code=user_code,
        verification_uri=page,
        expires_in_s=oauth2.MAX_WAIT_S,
        interval_s=int(interval) if interval.isascii() and interval.isdigit() and len(interval) < 4 else 5,
    )


COPILOT_REFRESHER: Final = "github_copilot"
COPILOT_ID: Final = "github-copilot"
# The exchange refuses callers that do not name their editor; we name ourselves.
_HEADERS: Final = {"Editor-Version": f"makai/{__version__}"}


async def login_github_copilot(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """The device flow at GitHub (or the user's GHE.com host), then the GitHub token is traded for a Copilot token.

    The account's refresh token is the GitHub token; its access token is the short-lived Copilot one, bound to the API
    address that GitHub names for this subscription.
    """
    client_id = required_option(provider, "client_id")
    host = provider.options.get("host") or "github.com"
    api = provider.options.get("api") or f"https://api.{host}"
    web = provider.options.get("web") or f"https://{host}"
    answer = await oauth2.device_login(
        io, provider, http, f"{web}/login/device/code", f"{web}/login/oauth/access_token"
    )
    await io.progress("Asking GitHub for a Copilot token.")
    github = OAuthToken(
        access=answer.access,
        refresh=answer.access,
        refresher=COPILOT_REFRESHER,
        token_url=f"{api}/copilot_internal/v2/token",
        client_id=client_id,
    )
    token = await refresh_copilot(github, http)
    base_url = token.provider_data.get("base_url", "")
    if not base_url:
        raise ProviderError("GitHub did not say where Copilot is reached.", provider_id=provider.id)
    label = await _github_user(http, api, answer.access)
    return account_of(provider, token, label=label, origins=(safe_origin(base_url),))


async def refresh_copilot(token: OAuthToken, http: AuthHttp) -> OAuthToken:
    """A new Copilot token for the GitHub token. The API address stays: the account is bound to it."""
    if token.refresh is None:
        raise InvalidGrant("There is no GitHub token to ask with.", provider_id=COPILOT_ID)
    now_ms = unix_milliseconds()
    answer = await http.get(token.token_url, {**_HEADERS, "Authorization": Secret(f"Bearer {token.refresh.reveal()}")})
    fields = _copilot_fields(answer)
    endpoints = fields.get("endpoints")
    told = endpoints.get("api") if isinstance(endpoints, dict) else None
    base_url = token.provider_data.get("base_url") or (told if isinstance(told, str) else "")
    return msgspec.structs.replace(
        token,
        access=Secret(str(fields["token"])),
        expires_at_ms=oauth.local_expiry_ms(fields.get("expires_at"), answer, now_ms),
        provider_data={**token.provider_data, "base_url": base_url.rstrip("/")},
    )


def _copilot_fields(answer: HttpAnswer) -> dict[str, object]:
    if answer.status == 401:
        again = f"Log in again: `makai auth login {COPILOT_ID}`"
        raise InvalidGrant("GitHub no longer accepts this login.", provider_id=COPILOT_ID, hint=again)
    if answer.status in (403, 404):
        hint = "Check the subscription in GitHub's settings, or log in with another account."
        raise AuthRequired("This GitHub account may not use Copilot.", provider_id=COPILOT_ID, hint=hint)
    fields = oauth.successful_object(answer, provider_id=COPILOT_ID)
    token = fields.get("token")
    if not (isinstance(token, str) and token and token.isascii() and token.isprintable()):
        raise ProviderError("GitHub's answer holds no Copilot token.", provider_id=COPILOT_ID)
    return fields


async def _github_user(http: AuthHttp, api: str, token: Secret) -> str:
    """Only a label: a login does not fail for want of it."""
    try:
        answer = await http.get(f"{api}/user", {"Authorization": Secret(f"Bearer {token.reveal()}")}, deadline_s=10)
        name = oauth.successful_object(answer, provider_id=COPILOT_ID).get("login")
    except MakaiError:
        return ""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 200 else ""


# https://accounts.google.com/.well-known/openid-configuration
GOOGLE: Final = {
    "authorization_endpoint": "https://accounts.google.com/o/oauth2/v2/auth",
    "token_endpoint": "https://oauth2.googleapis.com/token",
    "revocation_endpoint": "https://oauth2.googleapis.com/revoke",
}
_METADATA: Final = {"ideType": "IDE_UNSPECIFIED", "platform": "PLATFORM_UNSPECIFIED", "pluginType": "GEMINI"}


async def login_google_gemini_cli(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """The browser flow for Gemini Code Assist, then one question about the Cloud project of the subscription. Client id
    and secret come from config.toml or the environment; none are built in."""
    required_option(provider, "client_id")
    if provider.client_secret is None:
        variable = provider.option_variables.get("client_secret", "")
        raise InvalidRequest(
            "Google's login needs the client secret of your own OAuth client (type: desktop app).",
            hint=f"Set client_id and client_secret in [providers.{provider.id}.login] of config.toml, or {variable}.",
        )
    addresses = {name: provider.options.get(name) or url for name, url in GOOGLE.items()}
    server = msgspec.convert(addresses, oauth.ServerMetadata)
    extra = {"access_type": "offline", "prompt": "consent"}
    browser = BrowserLogin(url=oauth2.standard_page(server.authorization_endpoint, provider, extra))
    answer = await oauth2.browser_token(io, provider, http, browser, server.token_endpoint)
    project = provider.options.get("project") or await _google_project(io, provider, http, answer.access)
    token = oauth2.token_of(provider, answer, server, project=project)
    return account_of(provider, token, label=oauth2.label_of(answer))


async def _google_project(io: LoginIO, provider: LoginProvider, http: AuthHttp, access: Secret) -> str:
    """The Cloud project that Code Assist keeps for this user. The login is good without it."""
    base_url = required_option(provider, "base_url").rstrip("/")
    try:
        answer = await http.post_json(
            f"{base_url}/v1internal:loadCodeAssist",
            {"metadata": _METADATA},
            {"Authorization": Secret(f"Bearer {access.reveal()}")},
        )
        project = oauth.successful_object(answer, provider_id=provider.id).get("cloudaicompanionProject")
    except MakaiError:
        project = None
    if isinstance(project, dict):
        project = project.get("id")
    if isinstance(project, str) and project.isprintable() and 0 < len(project) <= 200:
        return project
    await io.progress("Google named no Cloud project for this account: set GOOGLE_CLOUD_PROJECT if requests need one.")
    return ""


OPENROUTER_KEY_PREFIX: Final = "sk-or-"


async def login_openrouter(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """PKCE in the browser, which ends in an API key of the user's own; a key that is pasted instead is fine too.

    The redirect URI is called `callback_url`, there is no client id, and no `state` comes back, so it is part of the
    redirect's path.
    """
    page = required_option(provider, "authorization_endpoint")

    def url(redirect_uri: str, pkce: oauth.Pkce, state: Secret) -> str:
        asked = {"callback_url": redirect_uri, "code_challenge": pkce.challenge, "code_challenge_method": "S256"}
        return oauth.with_query(page, asked)

    code = await oauth2.browser_code(io, provider, BrowserLogin(url=url, host="localhost", state_in_path=True))
    if code.code.reveal().startswith(OPENROUTER_KEY_PREFIX):
        if provider.check is not None:
            await try_key(io, provider, http, code.code, provider.check)
        return account_of(provider, ApiKey(key=code.code))
    await io.progress("Fetching the key.")
    answer = await http.post_json(
        required_option(provider, "token_endpoint"),
        {"code": code.code, "code_verifier": code.pkce.verifier, "code_challenge_method": "S256"},
    )
    if answer.status in (400, 403):
        hint = f"Codes work once and soon expire. Start again: `makai auth login {provider.id}`"
        raise AuthRequired("OpenRouter refused the code.", provider_id=provider.id, hint=hint)
    key = oauth.successful_object(answer, provider_id=provider.id).get("key")
    if not (isinstance(key, str) and key and key.isascii() and key.isprintable()):
        raise ProviderError("OpenRouter's answer holds no key.", provider_id=provider.id)
    return account_of(provider, ApiKey(key=Secret(key)))
