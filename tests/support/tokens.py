"""Stored tokens for tests: made through the sessions, as `makai tokens create` does."""

from __future__ import annotations

import time
from collections.abc import Mapping

from makai.core.access import TokenScope, new_token, token_digest
from makai.core.secret import Secret
from makai.sessions.requests import CreateToken
from makai.sessions.service import Sessions

HOUR_S = 3600.0


async def make_token(
    sessions: Sessions,
    scope: TokenScope,
    *,
    name: str | None = None,
    lasts_s: float = HOUR_S,
    session_id: str | None = None,
) -> tuple[str, Secret]:
    """The id and the text of a new token."""
    token_id, token = new_token()
    expires_ms = int((time.time() + lasts_s) * 1000)
    wanted = CreateToken(
        token_id=token_id,
        name=name or f"{scope}-{token_id}",
        scope=scope,
        digest=token_digest(token),
        expires_ms=expires_ms,
        session_id=session_id,
    )
    await sessions.dispatch(wanted)
    return token_id, token


def bearer(token: Secret) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token.reveal()}"}
