"""Logins in the keyring of the system: the same store, with nothing secret in its file."""

from __future__ import annotations

import os
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from makai.auth.credentials import Account, ApiKey
from makai.auth.store import FILE_NAME, CredentialStore
from makai.core.errors import MakaiError
from makai.core.secret import Secret

SECRET = "sk-canary-0123456789"
KEY = Account(name="default", credential=ApiKey(key=Secret(SECRET)), origins=("https://api.test:443",))


class KeyringError(Exception):
    """As the library has it."""


class FakeKeyring(types.ModuleType):
    """A keyring in memory with the functions of the library that are used."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.errors = types.SimpleNamespace(KeyringError=KeyringError)
        self.entries: dict[tuple[str, str], str] = {}
        self.is_locked = False
        self.forgets = False
        self._turn = threading.Lock()

    def get_password(self, service: str, name: str) -> str | None:
        self._check()
        return self.entries.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self._check()
        with self._turn:
            self.entries[service, name] = "" if self.forgets else text

    def delete_password(self, service: str, name: str) -> None:
        self._check()
        with self._turn:
            if self.entries.pop((service, name), None) is None:
                raise KeyringError("no such entry")

    def _check(self) -> None:
        if self.is_locked:
            raise KeyringError("the collection is locked")


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    fake = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", fake)
    return fake


def key_in(home: Path) -> str | None:
    account = CredentialStore(home).snapshot().account("acme")
    return account.credential.key.reveal() if account and isinstance(account.credential, ApiKey) else None


def test_logins_move_to_the_keyring_and_back(home: Path, keyring: FakeKeyring) -> None:
    store = CredentialStore(home)
    store.save("acme", KEY)
    moved = store.move("keyring"), store.move("keyring")
    in_keyring = (home / FILE_NAME).read_text()
    found = key_in(home), CredentialStore(home).place, len(keyring.entries)
    back = store.move("file")

    assert (moved, found, back, keyring.entries) == ((True, False), (SECRET, "keyring", 1), True, {})
    assert SECRET not in in_keyring
    assert (key_in(home), SECRET in (home / FILE_NAME).read_text(), store.place) == (SECRET, True, "file")


def test_every_change_of_many_writers_is_kept_and_none_touches_the_disk(home: Path, keyring: FakeKeyring) -> None:
    CredentialStore(home).move("keyring")
    accounts = [Account(name=f"a{number}", credential=KEY.credential, origins=KEY.origins) for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda account: CredentialStore(home).save("acme", account), accounts))
        CredentialStore(home).rehearse()

    names = {account.name for account in CredentialStore(home).snapshot().accounts("acme")}
    assert (names, len(keyring.entries)) == ({account.name for account in accounts}, 1)
    assert [name for name in os.listdir(home) if SECRET in (home / name).read_text()] == []


def test_a_reader_meets_a_change_between_file_and_keyring(
    home: Path, keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = CredentialStore(home), CredentialStore(home)
    store.move("keyring")
    look = keyring.get_password

    def change_first(service: str, name: str) -> str | None:
        monkeypatch.setattr(keyring, "get_password", look)
        store.save("acme", KEY)
        return look(service, name)

    monkeypatch.setattr(keyring, "get_password", change_first)

    assert reader.snapshot().providers() == ("acme",)


def test_a_keyring_that_is_missing_locked_or_forgetful_loses_nothing(
    home: Path, keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CredentialStore(home)
    store.save("acme", KEY)
    before = (home / FILE_NAME).read_bytes()
    keyring.forgets = True
    with pytest.raises(MakaiError, match="did not keep"):
        store.move("keyring")
    keyring.is_locked = True
    with pytest.raises(MakaiError, match="the collection is locked") as locked:
        store.move("keyring")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(MakaiError) as missing:
        store.move("keyring")

    assert ("makai auth store file" in (locked.value.hint or ""), missing.value.hint) == (
        True,
        "Install it with: pip install 'makai[keyring]'",
    )
    assert ((home / FILE_NAME).read_bytes(), key_in(home)) == (before, SECRET)


def test_an_entry_that_is_gone_is_an_error_and_not_an_empty_store(home: Path, keyring: FakeKeyring) -> None:
    store = CredentialStore(home)
    store.save("acme", KEY)
    store.move("keyring")
    keyring.entries.clear()

    with pytest.raises(MakaiError, match="names an entry that your keyring does not have"):
        CredentialStore(home).snapshot()
    with pytest.raises(MakaiError, match="names an entry that your keyring does not have"):
        store.save("acme", KEY)


def test_with_a_real_library_and_a_real_backend(home: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("keyring", reason="makai[keyring] is not installed: a real keyring was NOT tested")
    backend = pytest.importorskip("keyrings.alt.file", reason="keyrings.alt is not installed: it was NOT tested")
    before = library.get_keyring()
    library.set_keyring(backend.PlaintextKeyring())
    library.get_keyring().file_path = str(tmp_path / "keyring.cfg")
    try:
        store = CredentialStore(home)
        store.save("acme", KEY)
        store.move("keyring")
        assert (key_in(home), SECRET in (home / FILE_NAME).read_text()) == (SECRET, False)
        store.move("file")
        assert key_in(home) == SECRET
    finally:
        library.set_keyring(before)
