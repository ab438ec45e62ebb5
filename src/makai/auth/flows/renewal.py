"""What happens to a token after the login: refreshing it, and ending it at logout.

In: a stored `OAuthToken`. Out: its successor, or `InvalidGrant` (over for good) or another error (may pass). Who calls
this, when, and under which lock is `auth.refresh`'s business.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from makai.auth.credentials import OAuthToken
from makai.auth.flows import github_copilot
from makai.auth.http import AuthHttp
from makai.auth.oauth import read_token_answer, refresh_form, revocation_form
from makai.core.errors import InvalidGrant, MakaiError

REVOKE_S: Final = 10.0

Procedure: TypeAlias = Callable[[OAuthToken, AuthHttp], Awaitable[OAuthToken]]


async def refresh_oauth2(token: OAuthToken, http: AuthHttp) -> OAuthToken:
    """The standard way (RFC 6749 section 6)."""
    server = urllib.parse.urlsplit(token.token_url).hostname or "its server"
    if token.refresh is None or not token.token_url:
        raise InvalidGrant("This login cannot be refreshed.", provider_id=server)
    now_ms = time.time_ns() // 1_000_000
    form = refresh_form(token.refresh, client_id=token.client_id, client_secret=token.client_secret)
    answer = read_token_answer(await http.post_form(token.token_url, form), provider_id=server, now_ms=now_ms)
    return msgspec.structs.replace(
        token,
        access=answer.access,
        # Section 6: the server "MAY issue a new refresh token"; where it does not, the old one stays.
        refresh=answer.refresh or token.refresh,
        expires_at_ms=answer.expires_at_ms,
        scope=answer.scope or token.scope,
    )


REFRESHERS: Final[Mapping[str, Procedure]] = {
    "oauth2": refresh_oauth2,
    github_copilot.REFRESHER: github_copilot.refresh,
}
"""By `OAuthToken.refresher`."""


async def revoke(token: OAuthToken, http: AuthHttp) -> bool:
    """End the login at its server (RFC 7009), where it has a place for that. False when it did not work: the token is
    forgotten here all the same, and expires there by itself."""
    endpoint = token.provider_data.get("revocation_endpoint", "")
    if not endpoint:
        return False
    # Section 2.1: ending a refresh token "SHOULD also invalidate all access tokens based on the same grant".
    secret, hint = (token.refresh, "refresh_token") if token.refresh else (token.access, "access_token")
    form = revocation_form(secret, hint, client_id=token.client_id, client_secret=token.client_secret)
    post = http.post_json if token.provider_data.get("revocation_encoding") == "json" else http.post_form
    try:
        answer = await post(endpoint, form, deadline_s=REVOKE_S)
    except MakaiError:
        return False
    return 200 <= answer.status < 300
