"""Who sends a request, and how much that caller may do. Scopes are ordered: each includes the ones before it. A process
of the same user, over the owner's socket or in process, is `LOCAL` and may do everything."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from makai.core.secret import Secret

TokenScope: TypeAlias = Literal["observe", "prompt", "approve", "admin"]
SCOPES: Final[tuple[TokenScope, ...]] = get_args(TokenScope)
TOKEN_MARK: Final = "mkt_"
"""How every stored token begins, and every cookie that stands for one."""
_TOKEN: Final = re.compile(r"mkt_(?P<id>[0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_SECRET_BYTES: Final = 32
_TRACE_PARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The token that authorised a request. It never holds the secret."""

    name: str
    scope: TokenScope
    token_id: str = ""
    """Empty for local processes and for the server's own token, which do not expire."""
    session_id: str | None = None
    """The only session that this caller may use; None for all."""
    trace_parent: str = ""
    """The `traceparent` of the request; empty when it has none or not a valid one."""

    @property
    def label(self) -> str:
        """How the log names the token: a name can be used again, its id cannot."""
        return f"{self.name}/{self.token_id}" if self.token_id else self.name

    def may(self, needed: TokenScope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(needed)


LOCAL: Final = Caller(name="local", scope="admin")
"""A process of the same user that reads the same MAKAI_HOME."""
SERVER: Final = Caller(name="server", scope="admin")
"""A holder of the token in MAKAI_HOME/server-token."""


def trace_parent_of(header: str) -> str:
    """A `traceparent` of W3C Trace Context that can be used; empty for any other text, which must not reach a log."""
    return header if _TRACE_PARENT.fullmatch(header) else ""


def new_token() -> tuple[str, Secret]:
    """The id and the whole text of a new token."""
    import secrets

    token_id = secrets.token_hex(6)
    return token_id, Secret(f"{TOKEN_MARK}{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}")


def token_id_of(candidate: str) -> str | None:
    """The id in a text that has the form of a stored token, which says nothing about whether it is one."""
    found = _TOKEN.fullmatch(candidate)
    return found["id"] if found else None


def token_digest(token: Secret) -> str:
    """What a store keeps of a token. It has 256 random bits, so that a plain hash cannot be searched."""
    import hashlib  # a program that an editor starts has no tokens

    return hashlib.sha256(token.reveal().encode()).hexdigest()


def is_digest_of(digest: str, candidate: str) -> bool:
    import hmac

    return hmac.compare_digest(token_digest(Secret(candidate)), digest)
