"""The log in PostgreSQL when the database vanishes during a change: the answer is right, or says what is not known."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from support.log_events import NOW_MS, steps
from support.postgres import shared_server
from support.postgres_trials import opened, until
from support.tcp_proxy import TcpProxy, tcp_proxy

from makai.core.errors import LogConflict, OwnershipLost, StorageUnavailable
from makai.sessions.log.base import StoredToken
from makai.sessions.log.postgres import writer

WAIT_S = 90.0
LOST = "the answer to this is lost"
UNKNOWN = "Whether the last change was stored is not known yet"


@pytest.fixture
def url() -> str:
    return shared_server().new_schema()


def through(proxy: TcpProxy, url: str) -> str:
    return url.replace(f":{shared_server().port}", f":{proxy.port}")


def token(name: str) -> StoredToken:
    return StoredToken(
        token_id=name, name=name, scope="observe", digest="d", created_ms=NOW_MS, expires_ms=NOW_MS + 10**9
    )


@pytest.mark.parametrize("is_idle", [True, False], ids=["idle connection", "ended connection"])
async def test_a_removal_whose_commit_was_not_confirmed_is_answered_as_it_was_made(url: str, is_idle: bool) -> None:
    async with tcp_proxy(shared_server().port) as proxy, opened(through(proxy, url)) as log:
        await log.append("s", steps(1), 0)
        await log.put_token(token("t"))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("INSERT INTO permission_grant VALUES ('/work', 'Bash(ls)', 'x', 0)")
        for remove in (log.delete("s"), log.revoke("/work", "Bash(ls)"), log.revoke_token("t", NOW_MS + 5)):
            if not is_idle:
                proxy.cut()
            proxy.lose_answer_to(b"COMMIT")
            assert await remove

        assert proxy.lost_answers == 3
        assert await log.last("s") == 0
        assert [(each.token_id, each.revoked_ms) for each in await log.tokens()] == [("t", NOW_MS + 5)]
        assert not await log.delete("s")
        assert not await log.revoke("/work", "Bash(ls)")


async def test_a_change_that_cannot_be_looked_up_says_that_its_outcome_is_unknown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_S", 0.3)
    async with tcp_proxy(shared_server().port) as proxy, opened(through(proxy, url)) as log:
        await log.append("s", steps(1), 0)
        await log.append("other", steps(1), 0)
        await log.trust("/work", True)
        proxy.refuses = True
        proxy.lose_answer_to(b"COMMIT")
        with pytest.raises(StorageUnavailable, match=UNKNOWN):
            await log.delete("s")
        proxy.lose_answer_to(LOST.encode())
        with pytest.raises(StorageUnavailable, match=UNKNOWN):
            await log.append("other", steps(1, LOST), 1)
        with pytest.raises(StorageUnavailable, match="Make sure that the database runs") as certain:
            await log.append("other", steps(1), 1)
        assert UNKNOWN not in certain.value.message

        proxy.refuses = False
        assert not await log.delete("s")
        with pytest.raises(LogConflict):
            await log.append("other", steps(1), 1)
        assert await log.append("other", steps(1), 2) == (3, 3)


async def test_what_was_not_sent_waits_for_the_database_no_longer_than_the_lease(url: str) -> None:
    async with tcp_proxy(shared_server().port) as proxy, opened(through(proxy, url), lease_s=2) as log:
        claims = {}
        for name in ("a", "b", "c"):
            await log.append(name, steps(1), 0)
            claims[name] = (await log.claim(name)).generation
        proxy.refuses = True
        proxy.cut()

        async def is_noticed() -> bool:
            return not log.is_connected

        await until(is_noticed)
        async with asyncio.timeout(WAIT_S):
            refused = await asyncio.gather(
                *(log.append(name, steps(1), 1, generation) for name, generation in claims.items()),
                return_exceptions=True,
            )
        assert [type(each) for each in refused] == [OwnershipLost] * 3
        assert log.is_read_only
