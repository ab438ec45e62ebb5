"""The stored tokens as a listener knows them. Reads of the store are paced, so that a flood of wrong tokens costs a
constant number of reads. A new token counts at once; a revoked one stops counting within `FRESH_S` for requests, and
within `WATCH_S` for connections that are open; an expired one at its time, by the clock of this process. When the store
cannot be read, no stored token counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from makai.aio.tasks import BackgroundTasks
from makai.core.access import TOKEN_MARK, Caller, is_digest_of, token_id_of
from makai.core.errors import MakaiError
from makai.sessions.log.base import StoredToken
from makai.sessions.requests import ListTokens, NoteTokenUse
from makai.sessions.service import Sessions

log = logging.getLogger(__name__)

FRESH_S: Final = 1.0
WATCH_S: Final = 1.0
PACE_S: Final = 0.05
"""Two reads of the store are at least so far apart."""
READ_DEADLINE_S: Final = 10.0
NOTED_EVERY_MS: Final = 60_000
CLOSE_S: Final = 5.0


class TokenBook:
    """Implements `guard.KnownTokens`. Make one inside the event loop that uses it."""

    def __init__(
        self, sessions: Callable[[], Awaitable[Sessions]], wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._sessions = sessions
        self._wall_clock = wall_clock
        self._tokens: dict[str, StoredToken] = {}
        self._used_ms: dict[str, int] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._held: dict[object, tuple[str, Callable[[], object]]] = {}
        self._tasks = BackgroundTasks()
        self._watcher: asyncio.Task[None] | None = None

    async def refresh(self, candidate: str) -> None:
        token_id = token_id_of(candidate) or candidate.removeprefix(TOKEN_MARK).partition(".")[0]
        asked = asyncio.get_running_loop().time()
        if token_id not in self._tokens or asked - self._read_at >= FRESH_S:
            await self._read(asked)

    def find(self, candidate: str) -> Caller | None:
        token_id = token_id_of(candidate)
        token = self._tokens.get(token_id) if token_id is not None else None
        return self._caller(token) if token is not None and is_digest_of(token.digest, candidate) else None

    def by_id(self, token_id: str) -> Caller | None:
        token = self._tokens.get(token_id)
        return self._caller(token) if token is not None else None

    @contextmanager
    def hold(self, caller: Caller, end: Callable[[], object]) -> Iterator[None]:
        if not caller.token_id:
            yield
            return
        key = object()
        self._held[key] = (caller.token_id, end)
        if self._watcher is None or self._watcher.done():
            self._watcher = self._tasks.start(self._watch(), "makai-token-watch")
        try:
            yield
        finally:
            self._held.pop(key, None)

    async def close(self) -> None:
        await self._tasks.close(CLOSE_S)

    def _caller(self, token: StoredToken) -> Caller | None:
        now_ms = int(self._wall_clock() * 1000)
        if not token.is_live(now_ms):
            return None
        self._used_ms[token.token_id] = now_ms
        return Caller(name=token.name, scope=token.scope, token_id=token.token_id, session_id=token.session_id)

    async def _watch(self) -> None:
        """Ends with the last connection that a stored token opened."""
        while self._held:
            await asyncio.sleep(WATCH_S)
            await self._read(asyncio.get_running_loop().time())
            now_ms = self._wall_clock() * 1000
            for key, (token_id, end) in list(self._held.items()):
                token = self._tokens.get(token_id)
                if token is None or not token.is_live(now_ms):
                    del self._held[key]
                    end()

    async def _read(self, asked: float) -> None:
        """Read the store, unless that was begun after `asked`."""
        async with self._reading:
            loop = asyncio.get_running_loop()
            if self._read_at >= asked:
                return
            await asyncio.sleep(self._read_at + PACE_S - loop.time())
            self._read_at = loop.time()
            try:
                async with asyncio.timeout(READ_DEADLINE_S):
                    sessions = await self._sessions()
                    self._tokens = {token.token_id: token for token in await sessions.dispatch(ListTokens())}
                    await self._note_use(sessions)
            except (MakaiError, TimeoutError) as error:
                self._tokens = {}
                log.warning("the tokens cannot be read: %s", error)

    async def _note_use(self, sessions: Sessions) -> None:
        used, self._used_ms = self._used_ms, {}
        noted = {token.token_id: token.used_ms or 0 for token in self._tokens.values()}
        due = tuple(sorted(name for name, now_ms in used.items() if now_ms - noted.get(name, now_ms) >= NOTED_EVERY_MS))
        if due:
            await sessions.dispatch(NoteTokenUse(due))
