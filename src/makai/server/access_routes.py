"""Who may do what without being asked, over plain HTTP: saved permissions (`/api/grants`), trusted folders
(`/api/trust`) and tokens (`/api/tokens`). Every route is one request of the sessions, with its scope."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from makai.core.access import Caller, TokenScope, new_token, token_digest
from makai.core.errors import InvalidRequest
from makai.server.http_json import answer, answering, read_body
from makai.server.scopes import ScopedSessions
from makai.server.session_names import session_id_of
from makai.sessions import requests as req
from makai.sessions.log.base import StoredToken
from makai.sessions.service import Sessions
from makai.transports.http_guard import caller_of

MAX_BODY: Final = 64 * 1024
MAX_PATH: Final = 4096


class GrantBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: str
    rule: str


class TrustBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: str
    trusted: bool
    shown: dict[str, str] = {}
    """`digests` of what the person saw."""


class TokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    scope: TokenScope
    lasts_s: int
    session: str | None = None
    """The only session that it opens, by its id or the beginning of it."""


class AccessRoutes:
    def __init__(self, sessions: Callable[[], Awaitable[Sessions]]) -> None:
        self._sessions = sessions

    def add_to(self, app: web.Application) -> None:
        for method, path, handler in (
            ("GET", "/api/grants", self._grants),
            ("POST", "/api/grants/revoke", self._revoke_grant),
            ("GET", "/api/trust", self._trusted),
            ("GET", "/api/trust/folder", self._trust_of),
            ("POST", "/api/trust", self._set_trust),
            ("GET", "/api/tokens", self._tokens),
            ("POST", "/api/tokens", self._create_token),
            ("DELETE", "/api/tokens/{token_id}", self._revoke_token),
        ):
            app.router.add_route(method, path, answering(handler))

    async def _open(self, request: web.Request) -> Sessions:
        return ScopedSessions(await self._sessions(), caller_of(request))

    async def _grants(self, request: web.Request) -> web.Response:
        return answer({"grants": await (await self._open(request)).dispatch(req.ListGrants())})

    async def _revoke_grant(self, request: web.Request) -> web.Response:
        body = await read_body(request, GrantBody, MAX_BODY)
        revoked = await (await self._open(request)).dispatch(req.RevokeGrant(body.folder, body.rule))
        return answer({"revoked": revoked})

    async def _trusted(self, request: web.Request) -> web.Response:
        folders = await (await self._open(request)).dispatch(req.ListTrusted())
        return answer({"folders": folders, "here": os.getcwd()})

    async def _trust_of(self, request: web.Request) -> web.Response:
        """What the project files of a folder set and start, and the digests that trusting them needs."""
        folder = await _folder(request.query.get("path", ""))
        found = await (await self._open(request)).dispatch(req.GetTrust(folder))
        changed = [{"path": diff.path} for diff in found.changed]
        shown = {"trusted": found.trusted, "wanted": found.wanted, "digests": found.digests, "changed": changed}
        return answer({"folder": folder, **shown})

    async def _set_trust(self, request: web.Request) -> web.Response:
        body = await read_body(request, TrustBody, MAX_BODY)
        folder = await _folder(body.folder, must_exist=body.trusted)
        done = await (await self._open(request)).dispatch(req.SetTrust(folder, body.trusted, body.shown))
        return answer({"done": done})

    async def _tokens(self, request: web.Request) -> web.Response:
        tokens = await (await self._open(request)).dispatch(req.ListTokens())
        return answer({"tokens": [_shown(token) for token in tokens], "current": caller_of(request).token_id})

    async def _create_token(self, request: web.Request) -> web.Response:
        """The answer is the only place that ever has the secret."""
        body = await read_body(request, TokenBody, MAX_BODY)
        if body.lasts_s < 1:
            raise InvalidRequest("A token lasts at least a second.")
        sessions = await self._open(request)
        token_id, secret = new_token()
        stored = await sessions.dispatch(
            req.CreateToken(
                token_id=token_id,
                name=body.name.strip(),
                scope=body.scope,
                digest=token_digest(secret),
                expires_ms=await _end_of(sessions, caller_of(request), body.lasts_s),
                session_id=None if body.session is None else await session_id_of(sessions, body.session),
            )
        )
        return answer(_shown(stored) | {"secret": secret.reveal()}, 201)

    async def _revoke_token(self, request: web.Request) -> web.Response:
        token_id = request.match_info["token_id"]
        if not await (await self._open(request)).dispatch(req.RevokeToken(token_id)):
            raise InvalidRequest("There is no such token.", hint="Reload the list.")
        return web.Response(status=204)


async def _end_of(sessions: Sessions, caller: Caller, lasts_s: int) -> int:
    """When a new token ends: never after the token that makes it, else a short one could renew itself."""
    wanted = time.time_ns() // 1_000_000 + lasts_s * 1000
    if not caller.token_id:
        return wanted
    known = await sessions.dispatch(req.ListTokens())
    return min([wanted, *(token.expires_ms for token in known if token.token_id == caller.token_id)])


async def _folder(path: str, *, must_exist: bool = True) -> str:
    """An absolute path with its links resolved."""
    return await asyncio.to_thread(_resolved, path, must_exist)


def _resolved(path: str, must_exist: bool) -> str:
    if not path or len(path) > MAX_PATH or "\0" in path:
        raise InvalidRequest("Name a folder by its absolute path.")
    expanded = os.path.expanduser(path)
    if not os.path.isabs(expanded):
        raise InvalidRequest(f"{path} is not an absolute path.", hint="Begin it with / or ~.")
    real = os.path.realpath(expanded)
    if must_exist and not os.path.isdir(real):
        raise InvalidRequest(f"There is no folder {real}.")
    return real


def _shown(token: StoredToken) -> dict[str, Any]:
    """Everything but the hash."""
    return {name: getattr(token, name) for name in token.__struct_fields__ if name != "digest"}
