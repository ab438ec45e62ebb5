"""Log in with Google for Gemini Code Assist (`google-gemini-cli`), with an OAuth client of the user's own.

Client id and secret come from config.toml or the environment; none are built in. The account holds the tokens and,
where Google names one, the Cloud project of the subscription.
"""

from __future__ import annotations

from typing import Final

from makai.auth.credentials import Account
from makai.auth.flows import LoginIO, LoginProvider, account_of, required_option
from makai.auth.flows.authorization_code import BrowserLogin, browser_token, standard_page
from makai.auth.flows.oidc import label_of, token_of
from makai.auth.http import AuthHttp
from makai.auth.oauth import ServerMetadata, successful_object
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.secret import Secret

# https://accounts.google.com/.well-known/openid-configuration
GOOGLE: Final = ServerMetadata(
    authorization_endpoint="https://accounts.google.com/o/oauth2/v2/auth",
    token_endpoint="https://oauth2.googleapis.com/token",
    revocation_endpoint="https://oauth2.googleapis.com/revoke",
)
_METADATA: Final = {
    "ideType": "IDE_UNSPECIFIED",
    "platform": "PLATFORM_UNSPECIFIED",
    "pluginType": "GEMINI",
}


async def login(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """The browser flow, then one question about the project."""
    client_id = required_option(provider, "client_id")
    if provider.client_secret is None:
        variable = provider.option_variables.get("client_secret", "")
        raise InvalidRequest(
            "Google's login needs the client secret of your own OAuth client (type: desktop app).",
            hint=f"Set client_id and client_secret in [providers.{provider.id}.login] of config.toml, or {variable}.",
        )
    server = _server(provider)
    page = standard_page(
        server.authorization_endpoint,
        client_id=client_id,
        scope=provider.options.get("scope", ""),
        extra={"access_type": "offline", "prompt": "consent"},
    )
    answer = await browser_token(
        io,
        provider,
        http,
        BrowserLogin(url=page),
        token_endpoint=server.token_endpoint,
        client_id=client_id,
        client_secret=provider.client_secret,
    )
    project = provider.options.get("project") or await _project(io, provider, http, answer.access)
    return account_of(provider, token_of(provider, answer, server, project=project), label=label_of(answer))


def _server(provider: LoginProvider) -> ServerMetadata:
    written = {
        name: provider.options.get(name) or getattr(GOOGLE, name)
        for name in ("authorization_endpoint", "token_endpoint", "revocation_endpoint")
    }
    return ServerMetadata(**written)


async def _project(io: LoginIO, provider: LoginProvider, http: AuthHttp, access: Secret) -> str:
    """The Cloud project that Code Assist keeps for this user. The login is good without it."""
    base_url = required_option(provider, "base_url").rstrip("/")
    try:
        answer = await http.post_json(
            f"{base_url}/v1internal:loadCodeAssist",
            {"metadata": _METADATA},
            {"Authorization": Secret(f"Bearer {access.reveal()}")},
        )
        project = successful_object(answer, provider_id=provider.id).get("cloudaicompanionProject")
    except MakaiError:
        project = None
    if isinstance(project, dict):
        project = project.get("id")
    if isinstance(project, str) and project.isprintable() and 0 < len(project) <= 200:
        return project
    await io.progress("Google named no Cloud project for this account: set GOOGLE_CLOUD_PROJECT if requests need one.")
    return ""
