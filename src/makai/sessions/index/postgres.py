"""The index of sessions in PostgreSQL, beside the log: one for all nodes.

Words are split in Python (`words`), so that a query finds what it finds in SQLite and no extension is needed; they are
kept as a `tsvector` without positions under a GIN index. PostgreSQL counts positions only up to 16,383 and 256 for a
word: phrases are compared in the sequence of words beside the text instead.

A GIN index has no order. A common word is therefore searched in the newest sessions first, and all of the index is
asked only when too few of them have it.

PostgreSQL keeps deleted rows until a VACUUM, and their words in the GIN index until it is built again: `erase` does
both, one node at a time and for a tenth of the time at most. Freed space is not overwritten, and the write-ahead log,
standbys and backups have their own copies.

Pages are committed without waiting for the disk or a standby: what a crash loses is lost with its cursor, and read from
the log again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

import msgspec
from psycopg import errors

from makai.sessions.index import postgres_schema as schema
from makai.sessions.index.base import (
    FoundSession,
    IndexCursor,
    IndexDamaged,
    IndexPage,
    SearchEntry,
    SearchMatch,
    SearchScope,
    SessionFold,
    UsageEntry,
    UsageRow,
)
from makai.sessions.index.ranking import KINDS, SLOT_MS, FoundEntry, counts, ranked, shown, usage_row
from makai.sessions.index.search_text import Highlighter, SearchQuery, SearchTerm
from makai.sessions.index.words import MAX_LEXEME, as_sequence, lexemes, split_words
from makai.sessions.log.postgres.arrays import integers, texts
from makai.sessions.log.postgres.connecting import Connection, ConnectionPool, Database
from makai.sessions.log.postgres.rows import is_storable

T = TypeVar("T")
_Row: TypeAlias = tuple[Any, ...]

_QUERY_S: Final = 30.0
_ERASE_S: Final = 900.0
_ERASE_SHARE: Final = 10
"""After an `erase` the next one waits this many times as long as it took."""
_MAX_TEXT: Final = 40_000
"""Characters of an entry: a tsvector holds less than 1 MB."""
_WINDOW: Final = 100
"""Sessions, the newest ones, in which every query is tried first."""
_MAX_LOOKED_AT: Final = 20_000
_FOLD: Final = msgspec.json.Decoder(SessionFold)
_DAMAGE: Final = (errors.UndefinedTable, errors.UndefinedColumn, errors.DataCorrupted, errors.IndexCorrupted)

_SETTINGS: Final = (
    "SET jit = off",  # compiling a statement takes longer than running it
    "SET synchronous_commit = off",
    f"SET statement_timeout = {int(_QUERY_S * 1000)}",
)

_NEW_SESSIONS: Final = """
INSERT INTO index_session (session_id, created_ms, updated_ms, last, archived, fold)
SELECT new.session_id, 0, 0, -1, false, '' FROM unnest(%s::text[]) AS new (session_id) ORDER BY 1
ON CONFLICT DO NOTHING
"""
_LOCKED_SESSIONS: Final = """
SELECT session_id, session_key, created_ms, last FROM index_session WHERE session_id = ANY(%s)
ORDER BY session_id FOR UPDATE
"""
_MOVED: Final = """
UPDATE index_session SET created_ms = %s, updated_ms = %s, last = %s, cwd = %s, archived = %s, fold = %s
WHERE session_key = %s
"""
_NEW_ENTRIES: Final = """
WITH new AS (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])
    AS new (session_key, event_id, kind, lexemes, text, sequence)
), entries AS (
    INSERT INTO index_entry
    SELECT session_key, event_id, kind, array_to_tsvector(string_to_array(lexemes, ' ')) FROM new
)
INSERT INTO index_text SELECT session_key, event_id, text, sequence FROM new
"""
_NEW_USAGE: Final = """
INSERT INTO index_usage AS known
SELECT * FROM unnest(
    %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[],
    %s::numeric[], %s::numeric[], %s::numeric[], %s::numeric[], %s::float8[]
) ON CONFLICT (session_key, slot, model_ref, harness, cwd) DO UPDATE SET
    runs = known.runs + excluded.runs,
    input = known.input + excluded.input,
    output = known.output + excluded.output,
    cache_read = known.cache_read + excluded.cache_read,
    cache_write = known.cache_write + excluded.cache_write,
    cost_usd = coalesce(known.cost_usd + excluded.cost_usd, known.cost_usd, excluded.cost_usd)
"""
_REMOVE_SESSIONS: Final = "DELETE FROM index_session WHERE session_id = ANY(%s) RETURNING session_key"
_REMOVE_TITLES: Final = """
WITH gone AS (
    DELETE FROM index_entry WHERE session_key = ANY(%s) AND kind = 0 RETURNING session_key, event_id
)
DELETE FROM index_text USING gone
WHERE index_text.session_key = gone.session_key AND index_text.event_id = gone.event_id
"""
_WANTED: Final = """
(%(archived)s::boolean IS NULL OR s.archived = %(archived)s) AND (%(cwd)s::text IS NULL OR s.cwd = %(cwd)s)
AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s)
"""
_NEWEST: Final = f"""
SELECT s.session_key FROM index_session AS s WHERE {_WANTED} ORDER BY s.updated_ms DESC, s.session_id LIMIT %(window)s
"""
_IN_PHRASES: Final = """
AND NOT EXISTS (
    SELECT 1 FROM unnest(%(phrases)s::text[]) AS phrase (words) WHERE strpos((
        SELECT t.sequence FROM index_text AS t WHERE t.session_key = e.session_key AND t.event_id = e.event_id
    ), phrase.words) = 0
)
"""
# With the function in place of its operator, which the GIN index is not asked for: it would be, for every session.
_FOUND_IN: Final = """
SELECT s.session_key, s.session_id, e.event_id, e.kind, s.updated_ms
FROM unnest(%(keys)s::bigint[]) AS newest (key) JOIN index_session AS s ON s.session_key = newest.key
CROSS JOIN LATERAL (
    SELECT e.event_id, e.kind FROM index_entry AS e
    WHERE e.session_key = newest.key AND ts_match_vq(e.words, %(query)s::tsquery) {phrases} OFFSET 0
) AS e LIMIT %(most)s
"""
_FOUND: Final = f"""
SELECT s.session_key, s.session_id, e.event_id, e.kind, s.updated_ms
FROM index_entry AS e JOIN index_session AS s USING (session_key)
WHERE e.words @@ %(query)s::tsquery AND {_WANTED} {{phrases}}
ORDER BY s.updated_ms DESC, e.event_id DESC LIMIT %(most)s
"""
_TEXTS: Final = """
SELECT t.session_key, t.event_id, t.text FROM unnest(%s::bigint[], %s::bigint[]) AS found (key, event_id)
JOIN index_text AS t ON t.session_key = found.key AND t.event_id = found.event_id
"""
_USAGE: Final = """
SELECT (slot * 900000 + %(shift)s) / 86400000 AS day, model_ref, harness, cwd, sum(runs), sum(input), sum(output),
       sum(cache_read), sum(cache_write), sum(cost_usd)
FROM index_usage WHERE slot >= %(since)s AND (%(session_id)s::text IS NULL OR session_key = (
    SELECT session_key FROM index_session WHERE session_id = %(session_id)s
))
GROUP BY day, model_ref, harness, cwd
ORDER BY day DESC, model_ref COLLATE "C", harness COLLATE "C", cwd COLLATE "C"
"""
_MAY_COMPARE: Final = """
UPDATE index_state SET compares = %(holder)s, compares_to = clock_timestamp() + %(seconds)s * interval '1 s'
WHERE compares = %(holder)s OR compares_to < clock_timestamp() RETURNING compared_ms
"""
_COMPARED: Final = """
UPDATE index_state SET compares_to = '-infinity', compared_ms = least(
    coalesce(%(compared_ms)s, compared_ms), (extract(epoch FROM clock_timestamp()) * 1000)::bigint
)
WHERE compares = %(holder)s
"""
_MAY_ERASE: Final = """
UPDATE index_state SET erases_after = clock_timestamp() + %s * interval '1 s'
WHERE deletions > erased AND erases_after < clock_timestamp() RETURNING deletions
"""
_ERASED: Final = """
UPDATE index_state SET erased = %s, erases_after = clock_timestamp() + %s * interval '1 s'
"""
_UNFINISHED_INDEXES: Final = """
SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'index_entry'::regclass AND NOT indisvalid
"""


class PostgresIndex:
    """`SharedIndex`. Tables are made when they are first needed."""

    def __init__(self, database: Database) -> None:
        self._holder = str(uuid4())
        self._writing = ConnectionPool(database, 1, *_SETTINGS)
        # The planner knows too little of new tables, and would rather read all of them than ask the GIN index.
        self.reading = ConnectionPool(database, 2, *_SETTINGS, "SET enable_seqscan = off")
        self._is_prepared = False

    async def cursors(self, session_ids: Sequence[str] | None = None) -> Mapping[str, IndexCursor]:
        statement = "SELECT session_id, created_ms, last, fold FROM index_session WHERE last >= 0"
        if session_ids is None:
            rows = await self._run(self.reading, lambda connection: _rows(connection, statement))
        else:
            chosen = {"ids": texts([each for each in session_ids if is_storable(each)])}
            of_them = f"{statement} AND session_id = ANY(%(ids)s)"
            rows = await self._run(self.reading, lambda connection: _rows(connection, of_them, chosen))
        return {
            session_id: IndexCursor(created_ms=created_ms, last=last, fold=_FOLD.decode(fold))
            for session_id, created_ms, last, fold in rows
        }

    async def add(self, pages: Sequence[IndexPage], *, is_backlog: bool) -> None:
        """Whether they are of a backlog makes no difference here: sessions are ordered by the time of their last
        event."""
        await self._run(self._writing, lambda connection: _add(connection, pages))

    async def forget(self, session_ids: Sequence[str]) -> None:
        await self._run(self._writing, lambda connection: _forget(connection, session_ids))

    async def erase(self) -> None:
        """Returns at once while another process erases, and for a while afterwards: the next call makes up for it."""
        granted = await self._run(self._writing, lambda connection: _rows(connection, _MAY_ERASE, (_ERASE_S,)))
        if granted:
            began = time.monotonic()
            await self._run(self.reading, _erase, _ERASE_S)
            pause_s = _ERASE_SHARE * (time.monotonic() - began)
            done = (granted[0][0], pause_s)
            await self._run(self._writing, lambda connection: connection.execute(_ERASED, done))

    async def find(self, query: SearchQuery, scope: SearchScope) -> list[FoundSession]:
        wanted = _search(query, scope)
        if wanted is None:
            return []
        return await self._run(self.reading, lambda connection: _find(connection, wanted, query, scope))

    async def usage(self, since_ms: int, tz_minutes: int, session_id: str | None) -> list[UsageRow]:
        wanted: dict[str, Any] = {"since": -(-since_ms // SLOT_MS), "shift": tz_minutes * 60_000}
        wanted["session_id"] = _storable(session_id)
        rows = await self._run(self.reading, lambda connection: _rows(connection, _USAGE, wanted))
        return [usage_row(row) for row in rows]

    async def begin_compare(self, seconds: float) -> int | None:
        wanted = {"holder": self._holder, "seconds": seconds}
        rows = await self._run(self._writing, lambda connection: _rows(connection, _MAY_COMPARE, wanted))
        return int(rows[0][0]) if rows else None

    async def end_compare(self, compared_ms: int | None) -> None:
        wanted = {"holder": self._holder, "compared_ms": compared_ms}
        await self._run(self._writing, lambda connection: connection.execute(_COMPARED, wanted))

    async def compared_ms(self) -> int:
        rows = await self._run(
            self.reading, lambda connection: _rows(connection, "SELECT compared_ms FROM index_state")
        )
        if not rows:
            raise IndexDamaged("its state is missing")
        return int(rows[0][0])

    async def reset(self) -> None:
        self._is_prepared = False
        await self._writing.run(schema.reset, _QUERY_S)

    async def close(self) -> None:
        await self.reading.close()
        await self._writing.close()

    async def _run(
        self, pool: ConnectionPool, ask: Callable[[Connection], Awaitable[T]], seconds: float = _QUERY_S
    ) -> T:
        if not self._is_prepared:
            await self._writing.run(schema.prepare, _QUERY_S)
            self._is_prepared = True

        async def asked(connection: Connection) -> T:
            try:
                return await ask(connection)
            except (*_DAMAGE, msgspec.DecodeError) as error:
                raise IndexDamaged(str(error)) from None

        return await pool.run(asked, seconds)


async def _rows(
    connection: Connection, statement: str, wanted: Mapping[str, object] | Sequence[object] = ()
) -> list[_Row]:
    return await (await connection.execute(statement.encode(), wanted or None, prepare=False)).fetchall()


async def _add(connection: Connection, pages: Sequence[IndexPage]) -> None:
    async with connection.transaction():
        await connection.execute(_NEW_SESSIONS, (texts([page.session_id for page in pages if not page.after]),))
        rows = await _rows(connection, _LOCKED_SESSIONS, (texts([page.session_id for page in pages]),))
        known = {session_id: (key, created_ms, last) for session_id, key, created_ms, last in rows}
        following: list[tuple[int, IndexPage]] = []
        for page in pages:
            key, *before = known.get(page.session_id, (None, 0, 0))
            if key is not None and (not page.after or before == [page.cursor.created_ms, page.after]):
                following.append((key, page))
                known[page.session_id] = (key, page.cursor.created_ms, page.cursor.last)
        await _remove_entries(connection, [key for key, page in following if not page.after])
        has_title = [key for key, page in following if any(entry.kind == "title" for entry in page.entries)]
        await connection.execute(_REMOVE_TITLES, (integers(has_title),))
        await _move(connection, following)
        await _insert(connection, [(key, entry) for key, page in following for entry in page.entries])
        await _count(connection, [(key, used) for key, page in following for used in page.usage])


async def _move(connection: Connection, pages: Iterable[tuple[int, IndexPage]]) -> None:
    async with connection.cursor() as cursor:
        await cursor.executemany(
            _MOVED,
            [
                (
                    page.cursor.created_ms,
                    page.updated_ms,
                    page.cursor.last,
                    _storable(page.cursor.fold.cwd),
                    page.cursor.fold.archived,
                    msgspec.json.encode(page.cursor.fold),
                    key,
                )
                for key, page in pages
            ],
        )


async def _insert(connection: Connection, entries: Iterable[tuple[int, SearchEntry]]) -> None:
    found = [(key, entry, entry.text[:_MAX_TEXT]) for key, entry in entries if entry.text.strip()]
    words = [split_words(text) for _, _, text in found]
    await connection.execute(
        _NEW_ENTRIES,
        (
            integers([key for key, _, _ in found]),
            integers([entry.event_id for _, entry, _ in found]),
            integers([KINDS.index(entry.kind) for _, entry, _ in found]),
            texts([" ".join(lexemes(some)) for some in words]),
            texts([_storable(text) for _, _, text in found]),
            texts([as_sequence(some) for some in words]),
        ),
    )


async def _count(connection: Connection, used: Iterable[tuple[int, UsageEntry]]) -> None:
    """One statement changes a row once only: what belongs together is added up before."""
    sums: dict[tuple[int, int, str, str, str], list[Any]] = {}
    for key, one in used:
        place = (key, one.ts // SLOT_MS, _storable(one.model_ref), _storable(one.harness), _storable(one.cwd or ""))
        known = sums.setdefault(place, [0, 0, 0, 0, 0, None])
        known[:5] = [before + count for before, count in zip(known, (1, *counts(one.usage)), strict=False)]
        if one.usage.cost_usd is not None:
            known[5] = (known[5] or 0.0) + one.usage.cost_usd
    if sums:
        rows = [(*place, *counted) for place, counted in sums.items()]
        await connection.execute(_NEW_USAGE, [list(column) for column in zip(*rows, strict=True)])


async def _remove_entries(connection: Connection, keys: Sequence[int]) -> None:
    for table in ("index_entry", "index_text", "index_usage"):
        await connection.execute(f"DELETE FROM {table} WHERE session_key = ANY(%s)".encode(), (integers(keys),))


async def _forget(connection: Connection, session_ids: Sequence[str]) -> None:
    async with connection.transaction():
        gone = await _rows(connection, _REMOVE_SESSIONS, (texts([each for each in session_ids if is_storable(each)]),))
        if gone:
            await _remove_entries(connection, [key for (key,) in gone])
            await connection.execute("UPDATE index_state SET deletions = deletions + 1")


async def _erase(connection: Connection) -> None:
    await connection.execute(f"SET statement_timeout = {int(_ERASE_S * 1000)}".encode())
    try:
        for (name,) in await _rows(connection, _UNFINISHED_INDEXES):  # of an attempt that was interrupted
            await connection.execute(f"DROP INDEX IF EXISTS {name}".encode())
        for table in schema.NAMES:
            await connection.execute(f"VACUUM {table}".encode())
        await connection.execute("REINDEX INDEX CONCURRENTLY index_entry_words")
    finally:
        await connection.execute(_SETTINGS[-1].encode())


def _search(query: SearchQuery, scope: SearchScope) -> dict[str, Any] | None:
    """The parameters of the statements that search; None when nothing can fit."""
    split = [(term, split_words(term.text)) for term in query.terms]
    if not all(words for _, words in split):
        return None
    return {
        "query": " & ".join(dict.fromkeys(chain.from_iterable(_conditions(term, words) for term, words in split))),
        "phrases": [_phrase(term, words) for term, words in split if len(words) > 1 or len(words[0]) > MAX_LEXEME],
        "archived": None if scope.archived == "with" else scope.archived == "only",
        "cwd": _storable(scope.cwd),
        "session_id": _storable(scope.session_id),
        "window": max(_WINDOW, 4 * scope.limit),
        "most": _MAX_LOOKED_AT,
    }


def _conditions(term: SearchTerm, words: Sequence[str]) -> Iterable[str]:
    """In the syntax of tsquery. A word has nothing in it that has a meaning there."""
    whole = words[:-1] if term.is_prefix else words
    yield from (f"'{lexeme}'" for lexeme in sorted(lexemes(whole)))
    if term.is_prefix:
        yield f"'{words[-1][:MAX_LEXEME]}':*"


def _phrase(term: SearchTerm, words: Sequence[str]) -> str:
    return as_sequence(words).rstrip() if term.is_prefix else as_sequence(words)


async def _find(
    connection: Connection, wanted: Mapping[str, Any], query: SearchQuery, scope: SearchScope
) -> list[FoundSession]:
    newest = [key for (key,) in await _rows(connection, _NEWEST, wanted)]
    phrases = _IN_PHRASES if wanted["phrases"] else ""
    rows = await _rows(connection, _FOUND_IN.format(phrases=phrases), {**wanted, "keys": integers(newest)})
    has_all = len(newest) < wanted["window"] or len({row[0] for row in rows}) > scope.limit + scope.limit // 2
    if not has_all:
        rows = await _rows(connection, _FOUND.format(phrases=phrases), wanted)
    best = [shown(found) for found in ranked((FoundEntry(*row) for row in rows), scope.now_ms)[: scope.limit]]
    places = [place for found in best for place in found]
    read = (integers([place.key for place in places]), integers([place.event_id for place in places]))
    known = {(key, event_id): text for key, event_id, text in await _rows(connection, _TEXTS, read)}
    highlighter = Highlighter(query)

    def match(place: FoundEntry) -> SearchMatch:
        text, marks = highlighter.snippet(known.get((place.key, place.event_id), ""))
        return SearchMatch(event_id=place.event_id, kind=KINDS[place.kind], text=text, marks=marks)

    return [FoundSession(found[0].session_id, tuple(map(match, found))) for found in best]


def _storable(text: T) -> T:
    """PostgreSQL stores every character but one."""
    return text.replace("\0", "\ufffd") if isinstance(text, str) else text  # type: ignore[return-value]
