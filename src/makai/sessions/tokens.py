"""What a token has to be before it is stored."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from makai.core.errors import InvalidRequest
from makai.sessions.log.base import EventLog, StoredToken
from makai.sessions.requests import CreateToken

MAX_TOKEN_MS: Final = 366 * 24 * 3600 * 1000
_TOKEN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


async def store_token(log: EventLog, wanted: CreateToken, now: int) -> StoredToken:
    """Raises `InvalidRequest` for a bad name or time."""
    token = StoredToken(created_ms=now, **msgspec.structs.asdict(wanted))
    if not _TOKEN_NAME.fullmatch(token.name):
        raise InvalidRequest(
            "A token's name has 1 to 64 letters, digits, dots, dashes and underscores.", hint="Try --name ci."
        )
    if not token.created_ms < token.expires_ms <= token.created_ms + MAX_TOKEN_MS:
        raise InvalidRequest("A token lasts at least a moment and at most a year.", hint="Try --expires 30d.")
    await log.put_token(token)
    return token
