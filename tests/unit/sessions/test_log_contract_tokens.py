"""What every log keeps of tokens; and what the durable one does with rows that are not what was stored."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from support.log_events import NOW_MS
from support.stores import sqlite_log

from makai.core.access import new_token, token_digest, token_id_of
from makai.core.errors import InvalidRequest
from makai.core.secret import MASK
from makai.sessions.log import schema, tokens
from makai.sessions.log.base import EventLog, LogProblem, StoredToken
from makai.sessions.log.repair import check, repair

DAY_MS = 24 * 3600 * 1000
TOKEN = StoredToken(
    token_id="0123456789ab", name="ci", scope="prompt", digest="d" * 64, created_ms=NOW_MS, expires_ms=NOW_MS + DAY_MS
)


def another(**changes: object) -> StoredToken:
    return msgspec.structs.replace(TOKEN, **({"token_id": "ba9876543210", "name": "other"} | changes))


def test_a_new_token_has_256_random_bits_an_id_and_cannot_be_printed() -> None:
    token_id, token = new_token()
    text = token.reveal()

    assert (len(text), text[:5], token_id_of(text)) == (60, f"mkt_{token_id}"[:5], token_id)
    assert (repr(token), f"{token}", str(token)) == (MASK, MASK, MASK)
    assert text not in token_digest(token)
    assert new_token()[1] != token
    assert [token_id_of(other) for other in (text[:-1], f"{text}x", text.upper(), "", text.removeprefix("mkt_"))] == (
        [None] * 5
    )


async def test_tokens_are_listed_by_the_time_they_were_made(log: EventLog) -> None:
    first, second = another(created_ms=NOW_MS - 1, session_id="one"), TOKEN
    await log.put_token(second)
    await log.put_token(first)

    assert await log.tokens() == [first, second]


async def test_two_live_tokens_do_not_share_a_name(log: EventLog) -> None:
    await log.put_token(TOKEN)
    await log.put_token(TOKEN)  # the same one, said again
    with pytest.raises(InvalidRequest, match="There is a token 'ci' already"):
        await log.put_token(another(name="ci"))
    assert await log.tokens() == [TOKEN]

    assert await log.revoke_token(TOKEN.token_id, NOW_MS + 5)
    await log.put_token(another(name="ci"))
    assert [token.revoked_ms for token in await log.tokens()] == [NOW_MS + 5, None]


async def test_a_revoked_token_stays_revoked_since_the_first_time(log: EventLog) -> None:
    await log.put_token(TOKEN)

    assert [await log.revoke_token(TOKEN.token_id, NOW_MS + 1), await log.revoke_token(TOKEN.token_id, NOW_MS + 9)] == (
        [True, True]
    )
    assert await log.tokens() == [msgspec.structs.replace(TOKEN, revoked_ms=NOW_MS + 1)]
    assert not await log.revoke_token("nothing", NOW_MS)


async def test_the_last_use_is_kept(log: EventLog) -> None:
    await log.put_token(TOKEN)
    await log.note_token_use((TOKEN.token_id, "unknown"), NOW_MS + 7)

    assert await log.tokens() == [msgspec.structs.replace(TOKEN, used_ms=NOW_MS + 7)]


async def test_tokens_that_ended_long_ago_make_room_and_their_number_is_bounded(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    await log.put_token(TOKEN)
    await log.put_token(another())
    with pytest.raises(InvalidRequest, match="2 tokens"):
        await log.put_token(another(token_id="c" * 12, name="third"))

    late = NOW_MS + DAY_MS + tokens.KEPT_MS + 1
    third = another(token_id="c" * 12, name="third", created_ms=late, expires_ms=late + 1)
    await log.put_token(third)
    assert await log.tokens() == [third]


def test_a_token_lives_until_it_expires_or_is_revoked() -> None:
    assert TOKEN.is_live(NOW_MS + DAY_MS - 1)
    assert not TOKEN.is_live(NOW_MS + DAY_MS)
    assert not msgspec.structs.replace(TOKEN, revoked_ms=NOW_MS).is_live(NOW_MS)


@pytest.mark.parametrize(
    "change",
    [
        "scope = 'admin'",
        "scope = 'root'",
        "expires_ms = 9e15",
        "revoked_ms = NULL",
        "digest = x'ff'",
        "session_id = ''",
    ],
)
async def test_a_row_that_was_changed_is_no_token_and_a_repair_keeps_the_others(home: Path, change: str) -> None:
    async with sqlite_log(home) as log:
        await log.put_token(TOKEN)
        await log.revoke_token(TOKEN.token_id, NOW_MS + 1)
        await log.put_token(another())
    with closing(sqlite3.connect(home / schema.FILE_NAME)) as database, database:
        database.execute(f"UPDATE token SET {change} WHERE token_id = ?", (TOKEN.token_id,))

    async with sqlite_log(home) as log:
        assert await log.tokens() == [another()]
    assert check(home).problems == (LogProblem("", None, "1 tokens are damaged"),)
    repair(home)
    assert check(home).problems == ()
    async with sqlite_log(home) as log:
        assert await log.tokens() == [another()]


@pytest.fixture
def former(home: Path) -> Path:
    """A store of the version before tokens."""
    home.mkdir(mode=0o700)
    schema.open_writer(home / schema.FILE_NAME, schema.MIGRATIONS[:3]).close()
    return home


async def test_a_store_of_the_former_format_gets_the_table(former: Path) -> None:

    async with sqlite_log(former) as log:
        assert await log.tokens() == []
        await log.put_token(TOKEN)
        assert await log.tokens() == [TOKEN]
