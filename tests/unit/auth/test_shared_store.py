"""Logins in PostgreSQL: the rules of the file hold, and what is stored is of use to no reader of the database."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import psycopg
import pytest
from support.auth_child import CLUSTER_KEY
from support.auth_trials import CrowdReport, crowd
from support.machine import RecordMeasure
from support.postgres import shared_server
from support.profiles import FAULTS

import makai.auth.shared_store
from makai.auth.account_text import StoreSnapshot
from makai.auth.credentials import Account, ApiKey
from makai.auth.shared_store import SharedCredentialStore
from makai.core.errors import InvalidRequest, MakaiError, StorageUnavailable
from makai.core.secret import Secret

CANARY = "sk-canary-in-the-database"
KEY = Account(name="default", credential=ApiKey(key=Secret(CANARY)), origins=("https://api.test:443",))
WORK = Account(name="work", credential=ApiKey(key=Secret("work-key")), origins=("https://api.test:443",))


@contextmanager
def opened(url: str, key: Secret = CLUSTER_KEY) -> Iterator[SharedCredentialStore]:
    store = SharedCredentialStore(url, lambda: key)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def store(database: str) -> Iterator[SharedCredentialStore]:
    with opened(database) as made:
        yield made


def credentials(snapshot: StoreSnapshot, provider_id: str = "test") -> dict[str, object]:
    return {account.name: account.credential for account in snapshot.accounts(provider_id)}


def changed_row(database: str, statement: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.execute(statement.encode()).rowcount == 1


# --- what is stored ---


def test_a_login_on_one_node_is_there_on_every_node(database: str, store: SharedCredentialStore) -> None:
    assert store.snapshot() == StoreSnapshot()
    store.save("test", KEY)
    store.save("test", WORK, make_default=False)
    with opened(database) as another:
        assert another.snapshot() == store.snapshot()
        assert another.snapshot().default("test") == "default"
        another.remove("test", "work")
    assert credentials(store.latest()) == {"default": KEY.credential}


def test_a_login_elsewhere_reaches_the_copy_in_memory_by_itself(
    database: str, store: SharedCredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(makai.auth.shared_store, "CHECK_S", 0.01)
    assert store.snapshot() == StoreSnapshot()
    with opened(database) as another:
        another.save("test", KEY)
    wait_until(lambda: credentials(store.snapshot()) == {"default": KEY.credential})


def test_the_database_holds_no_credential_and_no_name_in_the_clear(database: str, store: SharedCredentialStore) -> None:
    store.save("a-provider-name", KEY)
    store.save("a-provider-name", KEY)
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT name, version, ciphertext FROM credential_file").fetchall()
    ((name, version, ciphertext),) = rows
    assert (name, version) == ("auth.json", 2)
    assert not any(text in ciphertext for text in (CANARY.encode(), b"a-provider-name", b"accounts"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE credential_file SET ciphertext = set_byte(ciphertext, 40, get_byte(ciphertext, 40) # 1)",
        "UPDATE credential_file SET ciphertext = substring(ciphertext FROM 1 FOR 3)",
        "UPDATE credential_file SET version = version + 1",
    ],
    ids=["a byte", "cut", "another version"],
)
def test_a_row_that_was_changed_is_an_error_everywhere_and_is_left_as_it_is(
    database: str, store: SharedCredentialStore, statement: str
) -> None:
    store.save("test", KEY)
    changed_row(database, statement)
    assert_refused(database, CLUSTER_KEY, "cannot be decrypted: the cluster key is another one, or the row was changed")


def test_a_row_in_a_later_form_is_refused(database: str, store: SharedCredentialStore) -> None:
    store.save("test", KEY)
    changed_row(database, "UPDATE credential_file SET ciphertext = set_byte(ciphertext, 0, 2)")
    assert_refused(database, CLUSTER_KEY, "is in a form that this version of makai does not know")


def test_another_cluster_key_is_an_error_and_not_an_empty_store(database: str, store: SharedCredentialStore) -> None:
    store.save("test", KEY)
    why = "cannot be decrypted: the cluster key is another one, or the row was changed"
    assert_refused(database, Secret("another key of more than 32 characters"), why)
    assert credentials(store.latest()) == {"default": KEY.credential}


def assert_refused(database: str, key: Secret, why: str) -> None:
    before = stored_rows(database)
    with opened(database, key) as reader:
        uses: list[Callable[[], object]] = [
            reader.snapshot,
            reader.latest,
            reader.rehearse,
            lambda: reader.save("test", WORK),
            lambda: reader.remove("test"),
        ]
        for use in uses:
            with pytest.raises(MakaiError) as caught:
                use()
            assert caught.value.message == f"The text of the shared logins {why}. It was left as it is."
            assert "Start this node with the cluster key of the others." in str(caught.value.hint)
    assert stored_rows(database) == before


def stored_rows(database: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute("SELECT * FROM credential_file ORDER BY name").fetchall()


# --- changes ---


def test_processes_that_save_at_once_lose_nothing(database: str) -> None:
    """The first row and the table included."""
    names = [f"provider-{number}" for number in range(8)]
    stores = [SharedCredentialStore(database, lambda: CLUSTER_KEY) for _ in names]
    threads = [threading.Thread(target=each.save, args=(name, KEY)) for each, name in zip(stores, names, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stores[0].latest().providers()) == names


def test_a_replacement_takes_only_the_place_it_was_made_for(store: SharedCredentialStore) -> None:
    store.save("test", KEY)
    renewed = msgspec.structs.replace(KEY, credential=WORK.credential)
    assert store.replace("test", KEY, renewed)
    assert not store.replace("test", KEY, KEY)
    assert credentials(store.snapshot()) == {"default": WORK.credential}


def test_a_row_that_stays_locked_is_an_error_with_a_next_step(
    database: str, store: SharedCredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(makai.auth.shared_store, "LOCK_DEADLINE_S", 0.05)
    store.save("test", KEY)
    with psycopg.connect(database) as connection:
        connection.execute("SELECT 1 FROM credential_file FOR UPDATE")
        with pytest.raises(MakaiError, match="Another makai process has held the shared logins"):
            store.save("test", WORK)
        assert credentials(store.latest()) == {"default": KEY.credential}


def test_a_change_whose_answer_was_lost_is_not_made_twice(
    database: str, store: SharedCredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the commit; a second removal of the default account would remove the other one."""
    store.save("test", WORK)
    store.save("test", KEY)
    writing = SharedCredentialStore._writing

    @contextmanager
    def broken_once(made: SharedCredentialStore, *, rehearsal: bool = False) -> Iterator[psycopg.Connection]:
        with writing(made, rehearsal=rehearsal) as connection:
            yield connection
        monkeypatch.undo()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(SharedCredentialStore, "_writing", broken_once)
    monkeypatch.setattr(makai.auth.shared_store, "_PAUSE_S", 0)
    assert store.remove("test")
    assert credentials(store.latest()) == {"work": WORK.credential}


# --- one refresher ---


@pytest.mark.scaled
async def test_two_nodes_full_of_tasks_refresh_once_per_expiry(database: str, record_measure: RecordMeasure) -> None:
    expiries = 50 if FAULTS else 4
    report = await crowd(database, processes=2, tasks=16, expiries=expiries, latency_s=0.1)

    name = f"2 nodes x 16 tasks, {expiries} expiries, one database"
    record_measure(f"{name}: refreshes", f"{expiries}", str(sum(report.refreshes_per_expiry)))
    record_measure(f"{name}: forced logins", "0", str(len(report.errors) + report.revoked))
    assert report == CrowdReport(refreshes_per_expiry=[1] * expiries, wrong_tokens=[], errors=[], revoked=False)


async def test_a_refresh_of_one_account_does_not_wait_for_that_of_another(store: SharedCredentialStore) -> None:
    store.save("test", KEY)
    async with store.refresh_lock("test", "default") as first, store.refresh_lock("test", "work") as another:
        assert (await first.try_acquire(), await another.try_acquire()) == (True, True)
        async with store.refresh_lock("test", "default") as second:
            assert not await second.try_acquire()
            store.save("test", WORK)  # a login does not wait for it either
    async with store.refresh_lock("test", "default") as third:
        assert await third.try_acquire()


# --- a database that is away ---


def test_while_the_database_is_away_the_copy_is_used_for_a_while_and_changes_fail(
    database: str, store: SharedCredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(makai.auth.shared_store, "CHECK_S", 0.01)
    monkeypatch.setattr(makai.auth.shared_store, "WRITE_DEADLINE_S", 0)
    server, name = shared_server(), database.rpartition("/")[2]
    store.save("test", KEY)
    assert credentials(store.snapshot()) == {"default": KEY.credential}
    server.sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    wait_until(lambda: store._copy._error is not None)
    assert credentials(store.snapshot()) == {"default": KEY.credential}
    with pytest.raises(StorageUnavailable, match="cannot be stored or read in PostgreSQL") as caught:
        store.save("test", WORK)
    assert caught.value.hint == "Make sure that the database runs and can be reached, then try again."
    monkeypatch.setattr(makai.auth.shared_store, "MAX_AGE_S", 0)
    with pytest.raises(StorageUnavailable):
        store.snapshot()
    server.sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    wait_until(lambda: store._copy._error is None)
    assert credentials(store.snapshot()) == {"default": KEY.credential}


def test_a_database_that_never_answered_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # it accepts connections, and says nothing
    url = f"postgres://makai@127.0.0.1:{silent.getsockname()[1]}/none?connect_timeout=60"
    with silent, opened(url) as store:
        monkeypatch.setattr(makai.auth.shared_store, "FIRST_READ_S", 0.2)
        with pytest.raises(StorageUnavailable, match="no answer"):
            store.snapshot()
        monkeypatch.setattr(makai.auth.shared_store, "FIRST_READ_S", 3600.0)  # longer than a test may take
        with pytest.raises(StorageUnavailable, match="no answer"):
            store.snapshot()


def test_neither_an_error_nor_a_repr_shows_the_password_or_a_secret(store: SharedCredentialStore) -> None:
    port = shared_server().port
    with opened(f"postgres://guest:pa%24%24word@127.0.0.1:{port}/missing-pa$$word") as refused:
        with pytest.raises(StorageUnavailable) as caught:
            refused.latest()
        shown = f"{caught.value} {caught.value!r} {refused!r} {refused._address!r} {refused.__dict__}"
    assert not any(secret in shown for secret in ("pa$$word", "pa%24%24word", CLUSTER_KEY.reveal()))
    with pytest.raises(InvalidRequest) as invalid:
        SharedCredentialStore("postgres://user:pa$$word@host:port:port/?x", lambda: CLUSTER_KEY)
    assert "pa$$word" not in f"{invalid.value} {invalid.value.__cause__}"


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it did not become true within 30 seconds")
