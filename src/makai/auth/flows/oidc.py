"""Log in at any OAuth 2 or OpenID Connect server that config.toml describes, by its issuer or by its endpoints."""

from __future__ import annotations

import msgspec

from makai.auth.credentials import Account, OAuthToken
from makai.auth.flows import LoginIO, LoginProvider, account_of, required_option
from makai.auth.flows.authorization_code import BrowserLogin, browser_token, standard_page
from makai.auth.flows.device_code import device_login
from makai.auth.http import AuthHttp
from makai.auth.oauth import ServerMetadata, TokenAnswer, jwt_claims, read_metadata
from makai.auth.origins import safe_origin
from makai.core.errors import InvalidRequest

_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "device_authorization_endpoint", "revocation_endpoint")


async def login(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """Find the server, log in, return the tokens."""
    required_option(provider, "client_id")
    server = await _metadata(provider, http)
    answer = await _tokens(io, provider, http, server)
    return account_of(provider, token_of(provider, answer, server), label=label_of(answer))


async def _metadata(provider: LoginProvider, http: AuthHttp) -> ServerMetadata:
    """What the server says of itself; what the user wrote wins."""
    written = {name: provider.options[name] for name in _ENDPOINTS if provider.options.get(name)}
    for url in written.values():
        safe_origin(url)
    issuer = provider.options.get("issuer", "")
    if not issuer:
        return msgspec.convert(written, ServerMetadata)
    answer = await http.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    found = read_metadata(answer, issuer=issuer, provider_id=provider.id)
    return msgspec.structs.replace(found, **written)


async def _tokens(io: LoginIO, provider: LoginProvider, http: AuthHttp, server: ServerMetadata) -> TokenAnswer:
    client_id, scope = provider.options["client_id"], provider.options.get("scope", "")
    if provider.options.get("flow") == "device_code":
        return await device_login(
            io,
            provider,
            http,
            device_endpoint=_known(provider, "device_authorization_endpoint", server.device_authorization_endpoint),
            token_endpoint=_known(provider, "token_endpoint", server.token_endpoint),
            client_id=client_id,
            client_secret=provider.client_secret,
            scope=scope,
        )
    page = _known(provider, "authorization_endpoint", server.authorization_endpoint)
    browser = BrowserLogin(
        url=standard_page(page, client_id=client_id, scope=scope),
        issuer=server.issuer,
        ports=(int(provider.options.get("redirect_port", "0")),),
    )
    return await browser_token(
        io,
        provider,
        http,
        browser,
        token_endpoint=_known(provider, "token_endpoint", server.token_endpoint),
        client_id=client_id,
        client_secret=provider.client_secret,
    )


def token_of(provider: LoginProvider, answer: TokenAnswer, server: ServerMetadata, **data: str) -> OAuthToken:
    """What is kept of a standard answer: everything that refreshing and revoking need."""
    kept = {
        "revocation_endpoint": server.revocation_endpoint,
        "send_as": provider.options.get("send_as", ""),
        **data,
    }
    return OAuthToken(
        access=answer.access,
        refresh=answer.refresh,
        expires_at_ms=answer.expires_at_ms,
        token_url=server.token_endpoint,
        client_id=provider.options["client_id"],
        client_secret=provider.client_secret,
        scope=answer.scope or provider.options.get("scope", ""),
        provider_data={name: value for name, value in kept.items() if value},
    )


def label_of(answer: TokenAnswer) -> str:
    """Whose account it is, for people."""
    claims = jwt_claims(answer.id_token)
    for name in ("email", "preferred_username", "name", "sub"):
        value = claims.get(name)
        if isinstance(value, str) and value.isprintable() and 0 < len(value) <= 200:
            return value
    return ""


def _known(provider: LoginProvider, name: str, value: str) -> str:
    if not value:
        raise InvalidRequest(
            f"The login server of {provider.name} names no {name}.",
            hint=f"Set it in [providers.{provider.id}.login] of config.toml, or choose another `flow` there.",
        )
    return value
