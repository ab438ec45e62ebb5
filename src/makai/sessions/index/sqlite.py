"""The index of a MAKAI_HOME: `search.db`, a SQLite file of its own, so that no commit of the log waits for it.

One thread writes and another one reads; both block only themselves. WAL with `synchronous=NORMAL`: a power cut may lose
the newest pages, with their cursors, and they are read from the log again.

Numbers of entries follow the age of what they belong to: what happens gets the next higher ones, a backlog is written
from its newest session to its oldest and gets lower ones. So the newest matches of a word are found without reading the
older ones, however common the word is.

FTS5 keeps the words of deleted rows until it merges their segments. `erase` merges all of them, in steps, and empties
the WAL; until then `erase_due` is stored, so that a process that died meanwhile is made up for.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from makai.core.errors import StorageUnavailable
from makai.sessions.index.base import (
    EntryKind,
    FoundSession,
    IndexCursor,
    IndexDamaged,
    IndexPage,
    SearchMatch,
    SearchScope,
    SessionFold,
    UsageRow,
)
from makai.sessions.index.ranking import KINDS, SLOT_MS, FoundEntry, counts, ranked, shown, usage_row
from makai.sessions.index.search_text import Highlighter, SearchQuery, segmented

T = TypeVar("T")

VERSION: Final = 2
"""Of tables and extraction: another one means that the index is built again."""
FIRST_ID: Final = 1 << 40
"""Entries get numbers on both sides of it."""
_CHUNK: Final = 500
"""Matches that are looked at together."""
_MAX_LOOKED_AT: Final = 20_000
_MERGE_PAGES: Final = 500
_MAX_MERGES: Final = 10_000
_BUSY_S: Final = 5.0
_FOLD: Final = msgspec.json.Decoder(SessionFold)

_TABLES: Final = """
CREATE TABLE session (
    session_key INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL UNIQUE,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    last        INTEGER NOT NULL,
    cwd         TEXT,
    archived    INTEGER NOT NULL,
    fold        BLOB NOT NULL
);
CREATE TABLE entry (
    id          INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    event_id    INTEGER NOT NULL,
    kind        INTEGER NOT NULL
);
CREATE INDEX entry_session ON entry (session_key);
CREATE TABLE entry_text (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (
    title, body, content='', prefix='2 3', tokenize="unicode61 remove_diacritics 2"
);
CREATE TABLE usage (
    session_key INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    model_ref   TEXT NOT NULL,
    harness     TEXT NOT NULL,
    cwd         TEXT NOT NULL,
    runs        INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    cost_usd    REAL,
    PRIMARY KEY (session_key, slot, model_ref, harness, cwd)
) WITHOUT ROWID;
CREATE INDEX usage_slot ON usage (slot);
CREATE TABLE state (erase_due INTEGER NOT NULL);
INSERT INTO state VALUES (0);
"""
_USAGE: Final = """
SELECT (slot * 900000 + :shift) / 86400000 AS day, model_ref, harness, cwd, sum(runs), total(input), total(output),
       total(cache_read), total(cache_write), sum(cost_usd)
FROM usage WHERE slot >= :since AND (:session_id IS NULL OR session_key = (
    SELECT session_key FROM session WHERE session_id = :session_id
))
GROUP BY day, model_ref, harness, cwd
ORDER BY day DESC, model_ref, harness, cwd
"""
_ADD_USAGE: Final = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    runs = runs + 1,
    input = input + excluded.input,
    output = output + excluded.output,
    cache_read = cache_read + excluded.cache_read,
    cache_write = cache_write + excluded.cache_write,
    cost_usd = coalesce(cost_usd + excluded.cost_usd, cost_usd, excluded.cost_usd)
"""
_PLACES: Final = """
SELECT e.id, s.session_id, e.event_id, e.kind, s.updated_ms
FROM json_each(:ids) AS found CROSS JOIN entry AS e ON e.id = found.value CROSS JOIN session AS s USING (session_key)
WHERE (:archived IS NULL OR s.archived = :archived) AND (:cwd IS NULL OR s.cwd = :cwd)
"""
_OF_SESSION: Final = "SELECT id FROM entry WHERE session_key = (SELECT session_key FROM session WHERE session_id = ?)"


class SqliteIndex:
    """`SessionIndex`. Without a path it lives in memory, for sessions that are not kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="makai-index")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="makai-search") if path else self._writing
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    async def cursors(self, session_ids: Sequence[str] | None = None) -> Mapping[str, IndexCursor]:
        return await self._write(lambda connection: _cursors(connection, session_ids))

    async def add(self, pages: Sequence[IndexPage], *, is_backlog: bool) -> None:
        await self._write(lambda connection: _add(connection, pages, is_backlog))

    async def forget(self, session_ids: Sequence[str]) -> None:
        if self._is_there:
            await self._write(lambda connection: _forget(connection, session_ids))

    async def erase(self) -> None:
        """In steps, between which pages are added and cancellation ends it."""
        if not self._is_there or not await self._write(_begin_merge):
            return
        for _ in range(_MAX_MERGES):
            if await self._write(_is_merged):
                break
        await self._write(_end_merge)

    async def find(self, query: SearchQuery, scope: SearchScope) -> list[FoundSession]:
        return await self._read(lambda connection: _find(connection, query, scope))

    async def usage(self, since_ms: int, tz_minutes: int, session_id: str | None) -> list[UsageRow]:
        return await self._read(lambda connection: _usage(connection, since_ms, tz_minutes, session_id))

    async def reset(self) -> None:
        await asyncio.wrap_future(self._reading.submit(self._close_reader))
        await asyncio.wrap_future(self._writing.submit(self._remove))

    async def close(self) -> None:
        await asyncio.wrap_future(self._reading.submit(self._close_reader))
        await asyncio.wrap_future(self._writing.submit(self._close_writer))
        self._reading.shutdown(wait=False)
        self._writing.shutdown(wait=False)

    @property
    def _is_there(self) -> bool:
        return self._writer is not None or (self._path is not None and self._path.exists())

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._writing.submit(_guarded, self._open_writer, work))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._path is None:
            return await self._write(work)
        if self._writer is None:
            await self._write(lambda _: None)  # it makes the file
        return await asyncio.wrap_future(self._reading.submit(_guarded, self._open_reader, work))

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            if self._path is not None:
                with suppress(FileExistsError):
                    os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            connection = _connected(":memory:" if self._path is None else str(self._path))
            try:
                _prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._writer = connection  # not before: readers take it as the sign that there are tables
        return self._writer

    def _open_reader(self) -> sqlite3.Connection:
        if self._reader is None:
            assert self._path is not None
            self._reader = _connected(f"{self._path.absolute().as_uri()}?mode=ro", is_uri=True)
        return self._reader

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _remove(self) -> None:
        self._close_writer()
        for side in ("", "-wal", "-shm") if self._path is not None else ():
            assert self._path is not None
            self._path.with_name(self._path.name + side).unlink(missing_ok=True)


def _guarded(connect: Callable[[], sqlite3.Connection], work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        return work(connect())
    except (sqlite3.OperationalError, OSError) as error:
        raise StorageUnavailable(
            f"The search index cannot be used ({error}).",
            hint="Make sure that the disk has space and can be written to, then try again.",
        ) from None
    except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
        raise IndexDamaged(str(error)) from None


def _connected(name: str, *, is_uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(name, uri=is_uri, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES}; PRAGMA user_version={VERSION}; COMMIT;")
    elif version != VERSION:
        raise IndexDamaged(f"The search index has the format {version}.")


class _Transaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")


def _cursors(connection: sqlite3.Connection, session_ids: Sequence[str] | None) -> Mapping[str, IndexCursor]:
    chosen = "" if session_ids is None else " WHERE session_id IN (SELECT value FROM json_each(:ids))"
    rows = connection.execute(
        f"SELECT session_id, created_ms, last, fold FROM session{chosen}",
        {"ids": msgspec.json.encode(session_ids).decode()},
    ).fetchall()
    return {
        session_id: IndexCursor(created_ms=created_ms, last=last, fold=_FOLD.decode(fold))
        for session_id, created_ms, last, fold in rows
    }


def _add(connection: sqlite3.Connection, pages: Sequence[IndexPage], is_backlog: bool) -> None:
    with _Transaction(connection):
        (lowest, highest) = connection.execute("SELECT min(id), max(id) FROM entry").fetchone()
        entries = sum(len(page.entries) for page in pages)
        next_id = (lowest or FIRST_ID) - entries if is_backlog else (highest or FIRST_ID) + 1
        # FTS5 takes rising numbers best, and the newest session of a backlog is to have the highest ones.
        for page in reversed(pages) if is_backlog else pages:
            key = _follow(connection, page)
            if key is not None:
                _insert(connection, key, page, next_id)
            next_id += len(page.entries)


def _follow(connection: sqlite3.Connection, page: IndexPage) -> int | None:
    """The key of the page's session, with its cursor moved; None when the page does not follow what is stored."""
    found = connection.execute(
        "SELECT session_key, created_ms, last FROM session WHERE session_id = ?", (page.session_id,)
    ).fetchone()
    if page.after and (found is None or found[1:] != (page.cursor.created_ms, page.after)):
        return None
    if not page.after and found is not None:
        _remove_entries(connection, found[0])
    fold = page.cursor.fold
    row = (page.cursor.created_ms, page.updated_ms, page.cursor.last, fold.cwd, int(fold.archived))
    if found is None:
        columns = "session_id, created_ms, updated_ms, last, cwd, archived, fold"
        added = connection.execute(
            f"INSERT INTO session ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (page.session_id, *row, msgspec.json.encode(fold)),
        )
        return added.lastrowid
    changed = "created_ms = ?, updated_ms = ?, last = ?, cwd = ?, archived = ?, fold = ?"
    connection.execute(
        f"UPDATE session SET {changed} WHERE session_key = ?", (*row, msgspec.json.encode(fold), found[0])
    )
    return int(found[0])


def _insert(connection: sqlite3.Connection, key: int, page: IndexPage, first_id: int) -> None:
    if any(entry.kind == "title" for entry in page.entries):
        _remove_texts(connection, "SELECT id FROM entry WHERE session_key = ? AND kind = 0", key)
    numbered = [(number, entry) for number, entry in enumerate(page.entries, first_id) if entry.text.strip()]
    rows = [(number, key, entry.event_id, KINDS.index(entry.kind)) for number, entry in numbered]
    connection.executemany("INSERT INTO entry VALUES (?, ?, ?, ?)", rows)
    connection.executemany("INSERT INTO entry_text VALUES (?, ?)", [(number, entry.text) for number, entry in numbered])
    connection.executemany(
        "INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)",
        [(number, *_columns(entry.kind, entry.text)) for number, entry in numbered],
    )
    counted = [
        (key, one.ts // SLOT_MS, one.model_ref, one.harness, one.cwd or "", *counts(one.usage), one.usage.cost_usd)
        for one in page.usage
    ]
    connection.executemany(_ADD_USAGE, counted)


def _columns(kind: EntryKind, text: str) -> tuple[str, str]:
    return (segmented(text), "") if kind == "title" else ("", segmented(text))


def _remove_entries(connection: sqlite3.Connection, key: int) -> None:
    _remove_texts(connection, "SELECT id FROM entry WHERE session_key = ?", key)
    connection.execute("DELETE FROM usage WHERE session_key = ?", (key,))


def _remove_texts(connection: sqlite3.Connection, chosen: str, key: int) -> None:
    rows = connection.execute(
        f"SELECT id, kind, text FROM entry JOIN entry_text USING (id) WHERE id IN ({chosen})", (key,)
    ).fetchall()
    connection.executemany(
        "INSERT INTO words (words, rowid, title, body) VALUES ('delete', ?, ?, ?)",
        [(number, *_columns(KINDS[kind], text)) for number, kind, text in rows],
    )
    for table in ("entry_text", "entry"):
        connection.executemany(f"DELETE FROM {table} WHERE id = ?", [(number,) for number, _, _ in rows])


def _forget(connection: sqlite3.Connection, session_ids: Iterable[str]) -> None:
    with _Transaction(connection):
        for session_id in session_ids:
            found = connection.execute("SELECT session_key FROM session WHERE session_id = ?", (session_id,)).fetchone()
            if found is not None:
                _remove_entries(connection, found[0])
                connection.execute("DELETE FROM session WHERE session_key = ?", found)
                connection.execute("UPDATE state SET erase_due = 1")


def _begin_merge(connection: sqlite3.Connection) -> bool:
    """Whether there is anything to erase."""
    (is_due,) = connection.execute("SELECT erase_due FROM state").fetchone()
    if is_due:
        connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (-_MERGE_PAGES,))
    return bool(is_due)


def _is_merged(connection: sqlite3.Connection) -> bool:
    before = connection.total_changes
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (_MERGE_PAGES,))
    return connection.total_changes - before < 2


def _end_merge(connection: sqlite3.Connection) -> None:
    """A reader may hold up the emptying of the WAL for the moment of a search; it is due until it is done."""
    give_up = time.monotonic() + _BUSY_S
    while True:
        (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not is_busy:
            connection.execute("UPDATE state SET erase_due = 0")
            return
        if time.monotonic() > give_up:
            raise sqlite3.OperationalError("the index is in use")


def _find(connection: sqlite3.Connection, query: SearchQuery, scope: SearchScope) -> list[FoundSession]:
    places: list[FoundEntry] = []
    sessions: set[str] = set()
    for column in ("title", "body"):
        for place in _places(connection, _expression(query, column), scope, sessions):
            places.append(place)
            sessions.add(place.session_id)
    highlighter = Highlighter(query)
    return [
        FoundSession(found[0].session_id, tuple(_match(connection, place, highlighter) for place in shown(found)))
        for found in ranked(places, scope.now_ms)[: scope.limit]
    ]


def _expression(query: SearchQuery, column: str) -> str:
    """In the syntax of FTS5: every term is a string, in which nothing but the quote has a meaning."""
    terms = (f'"{segmented(term.text).replace(chr(34), " ")}"{"*" if term.is_prefix else ""}' for term in query.terms)
    return f"{column} : ({' AND '.join(terms)})"


def _places(
    connection: sqlite3.Connection, expression: str, scope: SearchScope, found: Collection[str]
) -> Iterable[FoundEntry]:
    """The newest entries that fit, until enough sessions are found."""
    if scope.session_id is not None:
        match = f"SELECT rowid FROM words WHERE words MATCH ? AND rowid IN ({_OF_SESSION}) ORDER BY rowid DESC LIMIT ?"
        ids = [number for (number,) in connection.execute(match, (expression, scope.session_id, _CHUNK))]
        yield from _allowed(connection, ids, scope)
        return
    match = "SELECT rowid FROM words WHERE words MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
    below = 1 << 62
    for _ in range(_MAX_LOOKED_AT // _CHUNK):
        ids = [number for (number,) in connection.execute(match, (expression, below, _CHUNK))]
        yield from _allowed(connection, ids, scope)
        if len(ids) < _CHUNK or len(found) > scope.limit + scope.limit // 2:
            return
        below = ids[-1]


def _allowed(connection: sqlite3.Connection, ids: Sequence[int], scope: SearchScope) -> Iterable[FoundEntry]:
    archived = None if scope.archived == "with" else int(scope.archived == "only")
    wanted = {"ids": msgspec.json.encode(ids).decode(), "archived": archived, "cwd": scope.cwd}
    return [FoundEntry(*row) for row in connection.execute(_PLACES, wanted)]


def _match(connection: sqlite3.Connection, place: FoundEntry, highlighter: Highlighter) -> SearchMatch:
    found = connection.execute("SELECT text FROM entry_text WHERE id = ?", (place.key,)).fetchone()
    text, marks = highlighter.snippet(found[0] if found else "")
    return SearchMatch(event_id=place.event_id, kind=KINDS[place.kind], text=text, marks=marks)


def _usage(connection: sqlite3.Connection, since_ms: int, tz_minutes: int, session_id: str | None) -> list[UsageRow]:
    wanted = {"since": -(-since_ms // SLOT_MS), "shift": tz_minutes * 60_000, "session_id": session_id}
    return [usage_row(row) for row in connection.execute(_USAGE, wanted)]
