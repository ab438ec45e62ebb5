from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from support.places import mode, umask

import makai.auth.store
from makai.auth.account_text import StoreSnapshot
from makai.auth.credentials import Account, ApiKey, OAuthToken
from makai.auth.private_files import exclusive
from makai.auth.store import FILE_NAME, LOCK_NAME, CredentialStore
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.secret import Secret

FillDisk: TypeAlias = Callable[[str], None]

OTHER_USER = 65534
CANARY = "sk-canary-0123456789"
ORIGINS = ("https://api.test:443",)
KEY = Account(name="default", credential=ApiKey(key=Secret("key-1")), origins=ORIGINS)
WORK = Account(name="work", credential=ApiKey(key=Secret("key-2")), origins=ORIGINS, label="me@work.test")
TOKEN = Account(
    name="default",
    origins=ORIGINS,
    credential=OAuthToken(
        access=Secret("access-1"),
        refresh=Secret("refresh-1"),
        expires_at_ms=1_700_000_000_000,
        refresher="some_vendor",
        token_url="https://login.test/token",
        client_id="client",
        client_secret=Secret("client-secret"),
        scope="a b",
        provider_data={"project": "p-1"},
    ),
)


@pytest.fixture
def store(home: Path) -> CredentialStore:
    return CredentialStore(home)


def plant(home: Path, content: bytes, permissions: int = 0o600) -> Path:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / FILE_NAME
    path.write_bytes(content)
    path.chmod(permissions)
    return path


def unstamped(account: Account | None) -> Account | None:
    return None if account is None else msgspec.structs.replace(account, saved_at_ms=0)


def assert_refused(store: CredentialStore, why: str) -> None:
    """By every operation, with one clear text."""
    operations: list[Callable[[], object]] = [
        store.snapshot,
        lambda: store.save("test", KEY),
        lambda: store.remove("test"),
        lambda: store.set_default("test", "default"),
        store.rehearse,
    ]
    for operation in operations:
        with pytest.raises(MakaiError) as caught:
            operation()
        assert caught.value.message == f"{store.home / FILE_NAME} {why}. It was left as it is."
        assert caught.value.hint is not None


@contextmanager
def as_user_without_privileges() -> Iterator[None]:
    """Only root may write to read-only directories."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        os.seteuid(0)


# --- what is kept ---


def test_a_home_that_does_not_exist_holds_nothing_and_reading_makes_nothing(home: Path, store: CredentialStore) -> None:
    assert store.snapshot() == StoreSnapshot()
    assert (store.snapshot().account("test"), store.snapshot().default("test")) == (None, None)
    assert not home.parent.exists()


@pytest.mark.parametrize("account", [KEY, TOKEN], ids=["key", "token"])
def test_an_account_comes_back_as_it_was_saved(home: Path, store: CredentialStore, account: Account) -> None:
    store.save("test", account)

    kept = CredentialStore(home).snapshot().account("test")
    assert unstamped(kept) == account
    assert kept is not None
    assert abs(kept.saved_at_ms - time.time() * 1000) < 60_000


def test_the_file_is_json_to_be_read(home: Path, store: CredentialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(makai.auth.store, "unix_milliseconds", lambda: 7)
    store.save("test", TOKEN)
    store.save("other", KEY)

    of_both = {"origins": ["https://api.test:443"], "label": "", "saved_at_ms": 7}
    token = {
        "type": "oauth",
        "access": "access-1",
        "refresh": "refresh-1",
        "expires_at_ms": 1_700_000_000_000,
        "refresher": "some_vendor",
        "token_url": "https://login.test/token",
        "client_id": "client",
        "client_secret": "client-secret",
        "scope": "a b",
        "provider_data": {"project": "p-1"},
    }
    assert msgspec.json.decode((home / FILE_NAME).read_bytes()) == {
        "test": {"default": "default", "accounts": {"default": token | of_both}},
        "other": {"default": "default", "accounts": {"default": {"type": "api_key", "key": "key-1"} | of_both}},
    }
    assert sorted(path.name for path in home.iterdir()) == [FILE_NAME, LOCK_NAME]


def test_a_provider_has_several_accounts_and_one_default(store: CredentialStore) -> None:
    store.save("test", WORK, make_default=False)
    assert store.snapshot().default("test") == "work"  # the first one is, whatever was asked

    store.save("test", KEY, make_default=False)
    assert store.snapshot().default("test") == "work"
    assert [account.name for account in store.snapshot().accounts("test")] == ["work", "default"]
    assert unstamped(store.snapshot().account("test", "default")) == KEY
    assert store.snapshot().account("test", "missing") is None

    store.set_default("test", "default")
    assert unstamped(store.snapshot().account("test")) == KEY

    store.save("test", WORK)
    assert unstamped(store.snapshot().account("test")) == WORK


def test_a_default_must_be_an_account(store: CredentialStore) -> None:
    store.save("test", WORK)

    with pytest.raises(InvalidRequest, match=r"There is no account 'home' at test\. There is: work\."):
        store.set_default("test", "home")
    with pytest.raises(InvalidRequest, match=r"There is no account 'home' at other\.$"):
        store.set_default("other", "home")


def test_removing_the_default_account_leaves_the_next_one_in_its_place(store: CredentialStore) -> None:
    store.save("test", WORK)
    store.save("test", KEY)

    assert store.remove("test") is True
    assert store.snapshot().default("test") == "work"
    assert store.remove("test", "default") is False
    assert store.remove("test", "work") is True
    assert store.remove("test") is False
    assert store.snapshot() == StoreSnapshot()


def test_removing_another_account_leaves_the_default(store: CredentialStore) -> None:
    store.save("test", WORK, make_default=False)
    store.save("test", KEY)

    assert store.remove("test", "work") is True
    assert store.snapshot().default("test") == "default"


def test_a_replacement_takes_only_the_place_it_was_made_for(store: CredentialStore) -> None:
    store.save("test", KEY)
    store.save("test", WORK)
    newer = msgspec.structs.replace(KEY, credential=ApiKey(key=Secret("key-3")))

    assert store.replace("test", KEY, newer) is True
    assert unstamped(store.snapshot().account("test", "default")) == newer
    assert store.snapshot().default("test") == "work"
    assert store.replace("test", KEY, TOKEN) is False  # the user logged in meanwhile
    store.remove("test", "default")
    assert store.replace("test", newer, TOKEN) is False  # or out
    assert store.snapshot().account("test", "default") is None


def test_entries_in_the_older_shape_are_the_account_default(home: Path, store: CredentialStore) -> None:
    older = {
        "anthropic": {"api_key": "key-1"},
        "github-copilot": {
            "access": "access-1",
            "refresh": "refresh-1",
            "expires": 5,
            "provider_data": '{"enterpriseUrl":"https://ghe.test","n":1}',
        },
    }
    plant(home, msgspec.json.encode(older))

    assert store.snapshot().accounts("anthropic") == (
        Account(name="default", credential=ApiKey(key=Secret("key-1")), origins=()),
    )
    assert store.snapshot().account("github-copilot") == Account(
        name="default",
        origins=(),
        credential=OAuthToken(
            access=Secret("access-1"),
            refresh=Secret("refresh-1"),
            expires_at_ms=5,
            refresher="github_copilot",
            provider_data={"enterpriseUrl": "https://ghe.test"},
        ),
    )


def test_a_change_leaves_the_entries_of_other_providers_as_they_were(home: Path, store: CredentialStore) -> None:
    others: dict[str, Any] = {
        "older": {"api_key": "key-1", "unknown": [1]},
        "newer": {"default": "gone", "accounts": {"a": {"type": "api_key", "key": "k", "origins": [], "note": "mine"}}},
    }
    path = plant(home, msgspec.json.encode(others))

    store.save("test", KEY)
    store.remove("test")

    assert msgspec.json.decode(path.read_bytes()) == others
    assert store.snapshot().default("newer") == "a"  # a default that is gone is no default


# --- many processes ---


def test_a_reader_keeps_its_snapshot_until_the_file_changes(home: Path, store: CredentialStore) -> None:
    store.save("test", KEY)
    seen = store.snapshot()
    assert store.snapshot() is seen

    CredentialStore(home).save("test", WORK)
    assert store.snapshot().default("test") == "work"
    assert seen.default("test") == "default"

    (home / FILE_NAME).unlink()
    assert store.snapshot() == StoreSnapshot()


def test_every_version_is_later_than_the_one_before_even_when_the_clock_stands_still(
    home: Path, store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no two look alike to a reader, though they have one size and inodes are used again."""
    moment = 1_700_000_000_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: moment)
    reader = CredentialStore(home)
    seen = []
    for number in range(10, 30):
        store.save("test", msgspec.structs.replace(KEY, label=str(number)))
        account = reader.snapshot().account("test")
        assert account is not None
        seen.append((account.label, (home / FILE_NAME).stat().st_mtime_ns - moment))

    assert seen == [(str(number), number - 10) for number in range(10, 30)]


def test_writers_at_the_same_time_lose_nothing(home: Path) -> None:
    names = [f"provider-{number}" for number in range(24)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: CredentialStore(home).save(name, KEY), names))

    assert sorted(CredentialStore(home).snapshot().providers()) == sorted(names)


def test_a_lock_that_stays_taken_is_named(home: Path, store: CredentialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(makai.auth.store, "LOCK_DEADLINE_S", 0.01)
    store.save("test", KEY)

    with exclusive(home / LOCK_NAME, 0), pytest.raises(MakaiError, match=r"Another makai process has held .*lock"):
        store.save("test", WORK)
    assert store.snapshot().default("test") == "default"


# --- the disk ---


@pytest.mark.proof("O5")
def test_the_content_is_on_disk_before_the_name_and_the_name_before_the_answer(
    store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    fsync, rename = os.fsync, os.rename

    def recorded_fsync(descriptor: int) -> None:
        calls.append("fsync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync file")
        fsync(descriptor)

    def recorded_rename(source: Path, target: Path) -> None:
        calls.append(f"rename {source.name} {target.name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "rename", recorded_rename)
    store.save("test", KEY)

    assert calls == ["fsync file", "rename auth.json.new auth.json", "fsync directory"]


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_full_disk_changes_nothing(home: Path, store: CredentialStore, fill_disk: FillDisk, failing: str) -> None:
    store.save("test", KEY)
    before = store.snapshot()

    fill_disk(failing)
    with pytest.raises(MakaiError, match=r"auth\.json cannot be written \(No space left on device\)"):
        store.save("test", WORK)

    assert CredentialStore(home).snapshot() == before
    assert sorted(path.name for path in home.iterdir()) == [FILE_NAME, LOCK_NAME]


def test_a_rehearsal_fails_as_a_save_would(home: Path, store: CredentialStore, fill_disk: FillDisk) -> None:
    store.save("test", KEY)
    before = store.snapshot()

    store.rehearse()
    assert store.snapshot() is before
    assert sorted(path.name for path in home.iterdir()) == [FILE_NAME, LOCK_NAME]

    fill_disk("fsync")
    with pytest.raises(MakaiError, match="No space left on device"):
        store.rehearse()


def test_a_draft_that_a_killed_process_left_is_not_in_the_way(home: Path, store: CredentialStore) -> None:
    store.save("test", KEY)
    (home / "auth.json.new").write_bytes(b'{"half')

    store.save("test", WORK)

    assert store.snapshot().default("test") == "work"
    assert sorted(path.name for path in home.iterdir()) == [FILE_NAME, LOCK_NAME]


# --- files that are not as they should be ---


@pytest.mark.proof("O5")
@pytest.mark.parametrize("bits", [0o000, 0o777])
def test_the_umask_neither_widens_nor_closes_the_file(home: Path, store: CredentialStore, bits: int) -> None:
    home.mkdir(mode=0o700, parents=True)
    with umask(bits):
        store.save("test", KEY)

    assert (mode(home), mode(home / FILE_NAME)) == (0o700, 0o600)


def test_a_home_made_under_an_open_umask_is_for_this_user_alone(home: Path, store: CredentialStore) -> None:
    with umask(0):
        store.save("test", KEY)

    assert [mode(path) for path in (home, home / FILE_NAME, home / LOCK_NAME)] == [0o700, 0o600, 0o600]


def test_a_file_that_others_can_read_is_closed_as_soon_as_it_is_read(home: Path, store: CredentialStore) -> None:
    path = plant(home, b'{"test":{"api_key":"key-1"}}', 0o644)

    assert store.snapshot().providers() == ("test",)
    assert mode(path) == 0o600


@pytest.mark.proof("O5")
@pytest.mark.parametrize("permissions", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(home: Path, store: CredentialStore, permissions: int) -> None:
    path = plant(home, b'{"test":{"api_key":"key-1"}}', permissions)

    assert_refused(store, "may be written to by other users")
    assert (path.read_bytes(), mode(path)) == (b'{"test":{"api_key":"key-1"}}', permissions)


def test_a_home_that_others_can_write_is_refused(home: Path, store: CredentialStore) -> None:
    plant(home, b"{}")
    home.chmod(0o777)

    assert_refused(store, "is in a directory that other users may write to")


@pytest.mark.proof("O5")
@pytest.mark.parametrize("content", [b'{"test":{"api_key":"key-1"}}', None], ids=["to a store", "to nothing"])
def test_a_link_is_refused_and_its_target_stays_as_it_is(
    home: Path, store: CredentialStore, tmp_path: Path, content: bytes | None
) -> None:
    target = tmp_path / "elsewhere.json"
    if content is not None:
        target.write_bytes(content)
    home.mkdir(mode=0o700, parents=True)
    (home / FILE_NAME).symlink_to(target)

    assert_refused(store, "is a symbolic link")
    assert (target.read_bytes() if target.exists() else None) == content
    assert (home / FILE_NAME).is_symlink()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_file_is_refused_at_once(home: Path, store: CredentialStore, make: Callable[[Path], None]) -> None:
    home.mkdir(mode=0o700, parents=True)
    make(home / FILE_NAME)

    assert_refused(store, "is not a file")


def test_a_home_that_is_a_file_is_refused(home: Path, store: CredentialStore) -> None:
    home.parent.mkdir()
    home.write_text("not a directory")

    with pytest.raises(MakaiError, match=r"auth\.json cannot be read \(Not a directory\)"):
        store.snapshot()
    with pytest.raises(MakaiError, match=r"auth\.json cannot be written \(File exists\)"):
        store.save("test", KEY)


def test_a_read_only_home_can_be_read_and_a_change_says_what_is_wrong() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to a user without privileges
        home = Path(folder) / "home"
        if os.geteuid() == 0:
            os.chown(folder, OTHER_USER, OTHER_USER)
        with as_user_without_privileges():
            store = CredentialStore(home)
            store.save("test", KEY)
            (home / LOCK_NAME).unlink()
            home.chmod(0o500)

            with pytest.raises(MakaiError, match=r"auth\.lock cannot be locked \(Permission denied\)"):
                store.save("test", WORK)
            (home.parent / "closed").mkdir(mode=0o500)
            with pytest.raises(MakaiError, match=r"auth\.json cannot be written \(Permission denied\)"):
                CredentialStore(home.parent / "closed" / "home").save("test", WORK)

            assert unstamped(store.snapshot().account("test")) == KEY
            assert unstamped(CredentialStore(home).snapshot().account("test")) == KEY
            home.chmod(0o700)


@pytest.mark.proof("O5")
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: only root can make files of another user")
def test_files_and_homes_of_another_user_are_refused(home: Path, store: CredentialStore) -> None:
    path = plant(home, b'{"test":{"api_key":"key-1"}}')
    os.chown(path, OTHER_USER, OTHER_USER)
    assert_refused(store, "belongs to another user")

    os.chown(path, 0, 0)
    os.chown(home, OTHER_USER, OTHER_USER)
    assert_refused(store, "is in a directory of another user")
    assert path.read_bytes() == b'{"test":{"api_key":"key-1"}}'


CORRUPT = {
    "empty": (b"", "holds no valid JSON"),
    "half": (b'{"test":{"api_key":"' + CANARY.encode(), "holds no valid JSON"),
    "binary": (b"\x00\xff" * 100, "holds no valid JSON"),
    "deep": (b'{"test":' + b"[" * 1000 + b"]" * 1000 + b"}", "holds no valid JSON"),
    "huge": (b'{"test":{"api_key":"' + b"k" * 5_000_000 + b'"}}', "holds no valid JSON"),
    "list": (b"[]", "holds no JSON object"),
    "null": (b"null", "holds no JSON object"),
    **{
        name: (
            b'{"good":{"api_key":"key-1"},"test":' + entry + b"}",
            "has an entry for 'test' that this version cannot read",
        )
        for name, entry in {
            "text for an entry": b'"%b"' % CANARY.encode(),
            "nothing in an entry": b"{}",
            "a number for a key": b'{"api_key":5}',
            "provider data that is no JSON": b'{"access":"a","provider_data":"%b"}' % CANARY.encode(),
            "accounts in a list": b'{"accounts":["%b"]}' % CANARY.encode(),
            "a default that is no name": b'{"default":["%b"],"accounts":{}}' % CANARY.encode(),
            "a future type": b'{"accounts":{"a":{"type":"%b","origins":[]}}}' % CANARY.encode(),
            "no type": b'{"accounts":{"a":{"key":"%b","origins":[]}}}' % CANARY.encode(),
            "a number for a secret": b'{"accounts":{"a":{"type":"api_key","key":5,"origins":[]}}}',
            "no origins": b'{"accounts":{"a":{"type":"api_key","key":"%b"}}}' % CANARY.encode(),
            "text for a time": b'{"accounts":{"a":{"type":"oauth","access":"a","expires_at_ms":"%b","origins":[]}}}'
            % CANARY.encode(),
        }.items()
    },
}


@pytest.mark.parametrize(("content", "why"), CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_file_is_refused_never_overwritten_and_never_shown(
    home: Path, store: CredentialStore, content: bytes, why: str
) -> None:
    path = plant(home, content)

    assert_refused(store, why)
    assert path.read_bytes() == content
    assert sorted(entry.name for entry in home.iterdir()) == [FILE_NAME, LOCK_NAME]


@pytest.mark.parametrize(
    ("provider_id", "account"),
    [
        ("half a character \ud800", KEY),
        ("nul \0", KEY),
        ("test", msgspec.structs.replace(KEY, name="\udcff")),
        ("test", msgspec.structs.replace(KEY, credential=ApiKey(key=Secret(CANARY + "\0")))),
        ("test", msgspec.structs.replace(KEY, credential=ApiKey(key=Secret("k" * 5_000_000)))),
    ],
    ids=["surrogate", "nul", "name", "key", "long"],
)
def test_what_could_not_be_read_back_is_not_written(store: CredentialStore, provider_id: str, account: Account) -> None:
    store.save("test", WORK)
    before = store.snapshot()

    with pytest.raises(InvalidRequest) as caught:
        store.save(provider_id, account)

    assert str(caught.value) == "A name or credential has characters that cannot be stored, or is too long."
    assert store.snapshot() is before


def test_no_operation_shows_a_secret(store: CredentialStore) -> None:
    store.save("test", msgspec.structs.replace(KEY, credential=ApiKey(key=Secret(CANARY))))
    store.save("other", TOKEN)
    shown = f"{store.snapshot()!r} {store.snapshot().account('test')} {store!r}"

    assert [secret for secret in (CANARY, "access-1", "refresh-1", "client-secret") if secret in shown] == []
