"""Saved permissions of a store of several databases.

A decision is stored with the event that makes it, so each shard has its own. Every run asks for all of them before it
uses a tool, also while a shard is away: what that one said last holds until it answers again. A shard that has said
nothing yet is an error, because a saved refusal may be in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from makai.core.errors import MakaiError, StorageUnavailable
from makai.sessions.log.base import StoredGrant
from makai.sessions.log.postgres.log import PostgresLog

log = logging.getLogger(__name__)

EVERY_S: Final = 30.0
"""How often all decisions are read, so that those of other nodes are known when a shard goes away."""


class ShardGrants:
    def __init__(self, shards: Mapping[str, PostgresLog]) -> None:
        self._shards = shards
        self._known: dict[str, list[StoredGrant]] = {}
        """All decisions that each shard said last."""

    async def keep(self) -> None:
        """Read all decisions again and again, until this task is cancelled."""
        while True:
            await asyncio.gather(*(self._refresh(name) for name in self._shards))
            await asyncio.sleep(EVERY_S)

    async def of(self, folder: str | None) -> list[StoredGrant]:
        """As `EventLog.grants`. Of two decisions about the same in two shards the later one counts, by the clocks of
        the nodes; of two at the same time, the refusal."""
        newest: dict[tuple[str, str], StoredGrant] = {}
        for found in await asyncio.gather(*(self._of_shard(name, folder) for name in self._shards)):
            for grant in found:
                key = (grant.folder, grant.rule)
                if key not in newest or _rank(newest[key]) < _rank(grant):
                    newest[key] = grant
        return [newest[key] for key in sorted(newest)]

    async def revoke(self, folder: str, rule: str) -> bool:
        """Remove a decision from all shards; raises when one of them did not answer, after the others did."""
        revoked = await asyncio.gather(
            *(self._revoke_in(name, folder, rule) for name in self._shards), return_exceptions=True
        )
        for answer in revoked:
            if isinstance(answer, BaseException):
                raise answer
        return any(revoked)

    async def _revoke_in(self, name: str, folder: str, rule: str) -> bool:
        revoked = await self._shards[name].revoke(folder, rule)
        if (known := self._known.get(name)) is not None:
            self._known[name] = [grant for grant in known if (grant.folder, grant.rule) != (folder, rule)]
        return revoked

    async def _of_shard(self, name: str, folder: str | None) -> list[StoredGrant]:
        shard = self._shards[name]
        if name not in self._known or not shard.is_read_only:
            try:
                found = await shard.grants(folder)
            except StorageUnavailable:
                if name not in self._known:
                    raise
            else:
                self._note(name, folder, found)
                return found
        return [grant for grant in self._known[name] if folder is None or grant.folder == folder]

    def _note(self, name: str, folder: str | None, found: list[StoredGrant]) -> None:
        if folder is None:
            self._known[name] = found
        elif name in self._known:
            self._known[name] = [grant for grant in self._known[name] if grant.folder != folder] + found

    async def _refresh(self, name: str) -> None:
        known = self._known.get(name)
        try:
            found = await self._shards[name].grants(None)
        except MakaiError as error:
            log.debug("%s", error)
        else:
            if self._known.get(name) is known:  # else a later answer is there
                self._known[name] = found


def _rank(grant: StoredGrant) -> tuple[int, bool]:
    return grant.ts, not grant.allow
