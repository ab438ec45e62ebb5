"""Log in with GitHub Copilot: GitHub's device flow, then the GitHub token is traded for a Copilot token.

The account's refresh token is the GitHub token; its access token is the short-lived Copilot one, bound to the API
address that GitHub names for this subscription.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from makai.auth.credentials import Account, OAuthToken
from makai.auth.flows import LoginIO, LoginProvider, account_of, required_option
from makai.auth.flows.device_code import device_login
from makai.auth.http import AuthHttp, HttpAnswer
from makai.auth.oauth import local_expiry_ms, successful_object
from makai.auth.origins import safe_origin
from makai.core.errors import AuthRequired, InvalidGrant, MakaiError, ProviderError
from makai.core.secret import Secret
from makai.core.version import __version__

REFRESHER: Final = "github_copilot"
PROVIDER_ID: Final = "github-copilot"
# The exchange refuses callers that do not name their editor; we name ourselves.
_HEADERS: Final = {"Editor-Version": f"makai/{__version__}"}


async def login(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """The device flow at GitHub (or the user's GHE.com host), then the exchange."""
    client_id = required_option(provider, "client_id")
    host = provider.options.get("host") or "github.com"
    api = provider.options.get("api") or f"https://api.{host}"
    web = provider.options.get("web") or f"https://{host}"
    answer = await device_login(
        io,
        provider,
        http,
        device_endpoint=f"{web}/login/device/code",
        token_endpoint=f"{web}/login/oauth/access_token",
        client_id=client_id,
        client_secret=None,
        scope=provider.options.get("scope", ""),
    )
    await io.progress("Asking GitHub for a Copilot token.")
    github = OAuthToken(
        access=answer.access,
        refresh=answer.access,
        refresher=REFRESHER,
        token_url=f"{api}/copilot_internal/v2/token",
        client_id=client_id,
    )
    token = await refresh(github, http)
    base_url = token.provider_data.get("base_url", "")
    if not base_url:
        raise ProviderError("GitHub did not say where Copilot is reached.", provider_id=provider.id)
    return account_of(
        provider, token, label=await _user_name(http, api, answer.access), origins=(safe_origin(base_url),)
    )


async def refresh(token: OAuthToken, http: AuthHttp) -> OAuthToken:
    """A new Copilot token for the GitHub token. The API address stays: the account is bound to it."""
    if token.refresh is None:
        raise InvalidGrant("There is no GitHub token to ask with.", provider_id=PROVIDER_ID)
    now_ms = time.time_ns() // 1_000_000
    answer = await http.get(token.token_url, {**_HEADERS, "Authorization": Secret(f"Bearer {token.refresh.reveal()}")})
    fields = _copilot_fields(answer)
    endpoints = fields.get("endpoints")
    told = endpoints.get("api") if isinstance(endpoints, dict) else None
    base_url = token.provider_data.get("base_url") or (told if isinstance(told, str) else "")
    return msgspec.structs.replace(
        token,
        access=Secret(str(fields["token"])),
        expires_at_ms=local_expiry_ms(fields.get("expires_at"), answer, now_ms),
        provider_data={**token.provider_data, "base_url": base_url.rstrip("/")},
    )


def _copilot_fields(answer: HttpAnswer) -> dict[str, object]:
    if answer.status == 401:
        raise InvalidGrant(
            "GitHub no longer accepts this login.",
            provider_id=PROVIDER_ID,
            hint=f"Log in again: `makai auth login {PROVIDER_ID}`",
        )
    if answer.status in (403, 404):
        raise AuthRequired(
            "This GitHub account may not use Copilot.",
            provider_id=PROVIDER_ID,
            hint="Check the subscription in GitHub's settings, or log in with another account.",
        )
    fields = successful_object(answer, provider_id=PROVIDER_ID)
    token = fields.get("token")
    if not (isinstance(token, str) and token and token.isascii() and token.isprintable()):
        raise ProviderError("GitHub's answer holds no Copilot token.", provider_id=PROVIDER_ID)
    return fields


async def _user_name(http: AuthHttp, api: str, token: Secret) -> str:
    """Only a label: a login does not fail for want of it."""
    try:
        answer = await http.get(f"{api}/user", {"Authorization": Secret(f"Bearer {token.reveal()}")}, deadline_s=10)
        name = successful_object(answer, provider_id=PROVIDER_ID).get("login")
    except MakaiError:
        return ""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 200 else ""
