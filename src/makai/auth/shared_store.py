"""The logins that several machines share: the text of `auth.json`, encrypted, in one row of a PostgreSQL database.

The rules are those of the file. The row is only ever replaced as a whole; every change reads, modifies and replaces
under the lock of the row; a row that cannot be decrypted or read is refused, never overwritten and never taken for an
empty one. The key comes from the cluster's key, which is not in the database: a person who reads the database learns
no credential, and one who changes it cannot put another text, or that of another version, in its place.

Look-ups do not wait for the network. From the first one on, which waits, a thread compares the row with the copy in
memory once a second. While the database does not answer, the copy is used for a minute. A server makes the first
look-up in a thread, before it has clients.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Any, Final, TypeAlias

import psycopg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from psycopg import errors as sql_errors

from makai.aio.postgres import PostgresAddress, cut_socket, is_retryable
from makai.auth.account_text import Entries, StoreSnapshot, UnreadableText, decoded, encoded, snapshot_of
from makai.auth.cluster_key import derived_key
from makai.auth.store import AccountsChange, AccountStore, RefreshLock, changed, refresh_lock_name
from makai.core.errors import MakaiError, StorageUnavailable
from makai.core.secret import Secret

ROW: Final = "auth.json"
PURPOSE: Final = "credentials"
CHECK_S: Final = 1.0
MAX_AGE_S: Final = 60.0
"""How long the copy in memory is used while the database does not answer."""
FIRST_READ_S: Final = 3.0
"""How long the first look-up of a process waits; later ones do not wait at all."""
LOCK_DEADLINE_S: Final = 10.0
ANSWER_S: Final = 20.0
"""For all statements of one change or look-up together."""
WRITE_DEADLINE_S: Final = 30.0
"""How long a change is tried while connections break: a standby takes over within about 20 seconds."""
REFRESH_HELD_S: Final = 60
"""After this long the server ends a refresh's transaction, so that a machine that froze does not keep its lock."""
_PAUSE_S: Final = 0.5

_FORMAT: Final = b"\x01"
_NONCE_BYTES: Final = 12
_HEAD_BYTES: Final = len(_FORMAT) + _NONCE_BYTES

# This layer does not know the one of sessions, which has the other tables: so whatever is written first makes it.
_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS credential_file (
        name       TEXT COLLATE "C" PRIMARY KEY,
        version    BIGINT NOT NULL,
        ciphertext BYTEA NOT NULL
    )"""
_HEAD: Final = "SELECT version, substring(ciphertext FROM 1 FOR 13) FROM credential_file WHERE name = %s"
_SELECT: Final = "SELECT version, ciphertext FROM credential_file WHERE name = %s"
_INSERT: Final = "INSERT INTO credential_file (name, version, ciphertext) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_UPDATE: Final = "UPDATE credential_file SET version = %s, ciphertext = %s WHERE name = %s"

_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
_Row: TypeAlias = tuple[int, bytes]
"""Version and ciphertext. The first bytes of the ciphertext are random: with the version they tell any two texts apart,
also after a backup was restored."""
_NO_ROW: Final[_Row] = (0, b"")


class SharedCredentialStore(AccountStore):
    """The logins in the database at `url`. Any thread may use it."""

    def __init__(self, url: str, cluster_key: Callable[[], Secret]) -> None:
        """`cluster_key` is called when the key is first needed: what never looks at logins needs none."""
        self._address = PostgresAddress(url)
        self._cipher = _Cipher(cluster_key)
        self._copy = _Copy(self._address, self._cipher)
        self._starting = threading.Lock()
        self._stop_watching: Callable[[], object] | None = None

    def snapshot(self) -> StoreSnapshot:
        with self._starting:
            if self._stop_watching is None:
                stop = threading.Event()
                # The thread of a store that was not closed ends with it.
                self._stop_watching = weakref.finalize(self, stop.set)
                threading.Thread(target=_watch, args=(self._copy, stop), name="makai-logins", daemon=True).start()
        return self._copy.current()

    def latest(self) -> StoreSnapshot:
        try:
            return self._copy.read()
        finally:
            if self._stop_watching is None:
                self._copy.disconnect()

    def rehearse(self) -> None:
        """Raise now where a change would fail: no primary, a row that stays locked or cannot be read."""
        with self._explained():
            try:
                with self._writing(rehearsal=True) as connection:
                    self._cipher.opened(_locked_row(connection))
            except sql_errors.UndefinedTable:
                self._make_table()

    def close(self) -> None:
        with self._starting:
            stop, self._stop_watching = self._stop_watching, None
        if stop is not None:
            stop()

    @asynccontextmanager
    async def refresh_lock(self, provider_id: str, account_name: str) -> AsyncIterator[RefreshLock]:
        """The lock of a row per account, so that a login can be stored while a provider answers. The database frees it
        when this process ends. `replace` refuses the answer of a process that lost the lock and does not know it."""
        with self._explained():
            async with asyncio.timeout(ANSWER_S):
                connection = await psycopg.AsyncConnection.connect(**_options(self._address))
        lock = _RefreshRowLock(connection, refresh_lock_name(provider_id, account_name), self._address)
        try:
            with self._explained():
                async with asyncio.timeout(ANSWER_S):
                    await lock.prepare()
            yield lock
        finally:
            await connection.close()

    def _modify(self, provider_id: str, change: AccountsChange) -> bool:
        give_up = time.monotonic() + WRITE_DEADLINE_S
        attempt = _Attempt()
        with self._explained():
            while attempt.succeeded is None:
                try:
                    self._try_to_modify(provider_id, change, attempt)
                except sql_errors.UndefinedTable:
                    self._make_table()
                except psycopg.Error as error:
                    if not is_retryable(error) or time.monotonic() > give_up:
                        raise
                    time.sleep(_PAUSE_S)
        if attempt.succeeded:
            with suppress(MakaiError):  # it is stored; the next look-up says what is wrong now
                self.latest()
        return attempt.succeeded

    def _try_to_modify(self, provider_id: str, change: AccountsChange, attempt: _Attempt) -> None:
        with self._writing() as connection:
            before = _locked_row(connection)
            if attempt.written == before:  # the connection broke after the commit and before its answer
                attempt.succeeded = True
                return
            entries = self._cipher.opened(before)
            if not changed(entries, _snapshot_of(entries), provider_id, change):
                attempt.succeeded = False
                return
            attempt.written = row = self._cipher.closed(entries, before[0] + 1)
            if before == _NO_ROW:
                written = connection.execute(_INSERT, (ROW, *row))
            else:
                written = connection.execute(_UPDATE, (*row, ROW))
            is_ours = written.rowcount == 1  # else another process has just made the first row
        if is_ours:
            attempt.succeeded = True

    @contextmanager
    def _writing(self, *, rehearsal: bool = False) -> Iterator[_Connection]:
        """A transaction on a connection of its own; a rehearsal changes nothing."""
        with _connection(self._address) as connection, connection.transaction(force_rollback=rehearsal):
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{LOCK_DEADLINE_S:g}s",))
            yield connection

    def _make_table(self) -> None:
        # Two processes that make it at once: one is refused, and finds it.
        refusals = (sql_errors.UniqueViolation, sql_errors.DuplicateTable, sql_errors.DuplicateObject)
        with suppress(*refusals), _connection(self._address) as connection:
            connection.execute(_TABLE)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the driver as errors of makai."""
        with _explained(self._address):
            yield


class _Attempt:
    """What is known about a change that is tried until its outcome is known."""

    def __init__(self) -> None:
        self.written: _Row | None = None
        self.succeeded: bool | None = None


class _Cipher:
    """AES-256-GCM: format, nonce, ciphertext and tag. The name and the version of the row are authenticated with it."""

    def __init__(self, cluster_key: Callable[[], Secret]) -> None:
        self._cluster_key = cluster_key
        self._made: AESGCM | None = None

    @property
    def _aead(self) -> AESGCM:
        if self._made is None:
            self._made = AESGCM(derived_key(self._cluster_key(), PURPOSE))
        return self._made

    def closed(self, entries: Entries, version: int) -> _Row:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return version, _FORMAT + nonce + self._aead.encrypt(nonce, encoded(entries), _bound_to(version))

    def opened(self, row: _Row) -> Entries:
        """The entries of a row; none where there is no row. Raises in any case when there is no key."""
        aead, (version, data) = self._aead, row
        if row == _NO_ROW:
            return {}
        if not data.startswith(_FORMAT):
            raise _refused("is in a form that this version of makai does not know")
        try:
            return decoded(aead.decrypt(data[len(_FORMAT) : _HEAD_BYTES], data[_HEAD_BYTES:], _bound_to(version)))
        except (InvalidTag, ValueError):
            raise _refused("cannot be decrypted: the cluster key is another one, or the row was changed") from None
        except UnreadableText as error:
            raise _refused(str(error)) from None


class _Copy:
    """The logins in memory, how old they are, and the connection on which they are read."""

    def __init__(self, address: PostgresAddress, cipher: _Cipher) -> None:
        self._address = address
        self._cipher = cipher
        self._reading = threading.Lock()
        self._connection: _Connection | None = None
        self._state = threading.Lock()
        """Never held while the database is asked."""
        self._row: _Row | None = None
        self._snapshot = StoreSnapshot()
        self._checked_at = 0.0
        self._error: MakaiError | None = None
        self._is_read = threading.Event()

    def current(self) -> StoreSnapshot:
        """Without waiting, but for the first read, and for that one once."""
        if not self._is_read.wait(FIRST_READ_S):
            self._is_read.set()
        with self._state:
            if self._error is None and self._row is not None:
                return self._snapshot
            is_away = isinstance(self._error, StorageUnavailable)
            if self._row is not None and is_away and time.monotonic() - self._checked_at < MAX_AGE_S:
                return self._snapshot
            error = self._error or _away("no answer")
        raise type(error)(error.message, hint=error.hint)

    def read(self) -> StoreSnapshot:
        """As it is stored now. `current` remembers the outcome, also an error."""
        with self._reading:
            try:
                with _explained(self._address):
                    row = self._changed_row()
                snapshot = self._snapshot if row is None else _snapshot_of(self._cipher.opened(row))
            except MakaiError as error:
                self._disconnect()
                with self._state:
                    self._error = error
                raise
            else:
                with self._state:
                    self._row, self._snapshot = row or self._row, snapshot
                    self._error, self._checked_at = None, time.monotonic()
                return snapshot
            finally:
                self._is_read.set()

    def disconnect(self) -> None:
        with self._reading:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _changed_row(self) -> _Row | None:
        """The stored row; None when it is the one that was read last."""
        if self._connection is None:
            self._connection = _connected(self._address)
        with _deadline(self._connection):
            try:
                if self._row is not None:
                    head = self._connection.execute(_HEAD, (ROW,)).fetchone() or _NO_ROW
                    if head == (self._row[0], self._row[1][:_HEAD_BYTES]):
                        return None
                return _row(self._connection.execute(_SELECT, (ROW,)).fetchone())
            except sql_errors.UndefinedTable:
                return _NO_ROW  # no login was ever stored here, and none can be overwritten


class _RefreshRowLock:
    """The lock of one row, in a transaction that stays open as long as the connection."""

    def __init__(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], name: str, address: PostgresAddress
    ) -> None:
        self._connection = connection
        self._name = name
        self._address = address

    async def prepare(self) -> None:
        try:
            await self._connection.execute(_INSERT, (self._name, 0, b""))
        except sql_errors.UndefinedTable:
            raise _away("its tables are gone") from None
        await self._connection.execute("BEGIN")
        setting = ("idle_in_transaction_session_timeout", f"{REFRESH_HELD_S}s")
        await self._connection.execute("SELECT set_config(%s, %s, true)", setting)

    async def try_acquire(self) -> bool:
        with _explained(self._address):
            async with asyncio.timeout(ANSWER_S):
                found = await self._connection.execute(f"{_SELECT} FOR UPDATE SKIP LOCKED", (self._name,))
                return await found.fetchone() is not None


def _watch(copy: _Copy, stop: threading.Event) -> None:
    """Keep a copy up to date. It holds no reference to the store, whose end stops it."""
    is_over = False
    while not is_over:
        with suppress(MakaiError):  # `current` raises it
            copy.read()
        is_over = stop.wait(CHECK_S)
    copy.disconnect()


def _connected(address: PostgresAddress) -> _Connection:
    return psycopg.Connection.connect(**_options(address))


def _options(address: PostgresAddress) -> dict[str, Any]:
    # Prepared statements would not survive a pooler between us and the database.
    return {**address.settings, "autocommit": True, "prepare_threshold": None}


@contextmanager
def _connection(address: PostgresAddress) -> Iterator[_Connection]:
    """A connection for the length of the block, which has a deadline."""
    with closing(_connected(address)) as connection, _deadline(connection):
        yield connection


@contextmanager
def _deadline(connection: _Connection) -> Iterator[None]:
    """Cut the connection when the block takes too long."""
    # Of its own, because the driver may close the other one and the kernel give its number to another file.
    descriptor = os.dup(connection.fileno())
    timer = threading.Timer(ANSWER_S, cut_socket, (descriptor,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        os.close(descriptor)


@contextmanager
def _explained(address: PostgresAddress) -> Iterator[None]:
    """Errors of the driver, and deadlines, as errors of makai."""
    try:
        yield
    except sql_errors.LockNotAvailable:
        message = f"Another makai process has held the shared logins for more than {LOCK_DEADLINE_S:g} seconds."
        raise MakaiError(message, hint="Try again; if it stays so, end the process that hangs.") from None
    except (psycopg.Error, TimeoutError) as error:
        raise _away(address.text_of(error) or "no answer") from None


def _away(why: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"The shared logins cannot be stored or read in PostgreSQL ({why}).",
        hint="Make sure that the database runs and can be reached, then try again.",
    )


def _refused(why: str) -> MakaiError:
    return MakaiError(
        f"The text of the shared logins {why}. It was left as it is.",
        hint="Start this node with the cluster key of the others. If that key is lost, run "
        f"DELETE FROM credential_file WHERE name = '{ROW}' in the database, and log in again.",
    )


def _snapshot_of(entries: Entries) -> StoreSnapshot:
    try:
        return snapshot_of(entries)
    except UnreadableText as error:
        raise _refused(str(error)) from None


def _locked_row(connection: _Connection) -> _Row:
    return _row(connection.execute(f"{_SELECT} FOR UPDATE", (ROW,)).fetchone())


def _row(found: tuple[Any, ...] | None) -> _Row:
    return _NO_ROW if found is None else (int(found[0]), bytes(found[1]))


def _bound_to(version: int) -> bytes:
    return f"{ROW}\0{version}".encode()
