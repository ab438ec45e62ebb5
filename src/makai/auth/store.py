"""The logins of this user: `MAKAI_HOME/auth.json`. `AccountStore` is what every place that keeps logins offers.

Three rules keep logins safe. The file is only ever replaced as a whole, by one that is already on disk, so that every
reader, also after a crash, finds all of the old or all of the new. Every change reads, modifies and replaces under one
lock across processes. A file that is corrupt, a link, or owned by another user is refused: it is never overwritten, and
never taken for an empty one.

The file may name an entry of the system's keyring instead, which then holds this text (`keyring_entry`).

`Keychain` finds the credential for a request: the user's logins first, then environment variables. A key that the
caller gives explicitly wins over both and never comes here. A look-up costs one `stat` and refreshes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from makai.auth.account_text import (
    MAX_BYTES,
    Entries,
    ProviderAccounts,
    StoreSnapshot,
    UnreadableText,
    decoded,
    encoded,
    plain,
    snapshot_of,
)
from makai.auth.credentials import (
    Account,
    Credential,
    KeySource,
    OAuthToken,
    how_to_log_in,
    origin_of,
    secret_of,
)
from makai.auth.keyring_entry import EntryGone, add_entry, entry_named_in, load_entry, naming, remove_entry
from makai.auth.private_files import FileLock, exclusive, sync_directory
from makai.core.errors import AuthRequired, InvalidRequest, MakaiError
from makai.core.secret import Secret

FILE_NAME: Final = "auth.json"
LOCK_NAME: Final = "auth.lock"
LOCK_DEADLINE_S: Final = 10.0
_MAX_READS: Final = 5

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_MAY_READ: Final = 0o077
_OTHERS_MAY_WRITE: Final = 0o022

_Version: TypeAlias = tuple[int, int, int]
"""Inode, time of modification, size: see `_modify` for why these tell any two versions of the file apart."""
_NO_FILE: Final[_Version] = (0, 0, 0)

AccountsChange: TypeAlias = Callable[[ProviderAccounts], ProviderAccounts]


class RefreshLock(Protocol):
    """Held by the one task, of all processes that share the logins, that refreshes an account."""

    async def try_acquire(self) -> bool:
        """Take the lock if it is free; never waits for it."""


class AccountStore(ABC):
    """The logins, in a file of this machine or in a database that several machines share."""

    @abstractmethod
    def snapshot(self) -> StoreSnapshot:
        """The logins, without waiting: a copy of another machine's change may be a second old."""

    @abstractmethod
    def latest(self) -> StoreSnapshot:
        """The logins as they are stored now. Blocks."""

    @abstractmethod
    def rehearse(self) -> None:
        """Raise now where a change would fail. Blocks."""

    @abstractmethod
    def refresh_lock(self, provider_id: str, account_name: str) -> AbstractAsyncContextManager[RefreshLock]:
        """The lock of this account; leaving the block gives it up, and so does the end of the process."""

    @abstractmethod
    def close(self) -> None:
        """End what keeps a copy up to date, without waiting. The store can still be used."""

    @abstractmethod
    def _modify(self, provider_id: str, change: AccountsChange) -> bool:
        """The one way in which the logins change: read, modify and replace under one lock. Tells whether they did."""

    def save(self, provider_id: str, account: Account, *, make_default: bool = True) -> None:
        """Keep the account, in place of one of the same name. The first of a provider is its default in any case."""

        def change(logins: ProviderAccounts) -> ProviderAccounts:
            default = account.name if make_default or not logins.accounts else logins.default
            return ProviderAccounts(default=default, accounts={**logins.accounts, account.name: _saved_now(account)})

        self._modify(provider_id, change)

    def replace(self, provider_id: str, expected: Account, account: Account) -> bool:
        """Put `account` in the place of `expected`, unless a login or logout has changed its credential meanwhile."""

        def change(logins: ProviderAccounts) -> ProviderAccounts:
            present = logins.accounts.get(expected.name)
            if present is None or present.credential != expected.credential:
                return logins
            accounts = {**logins.accounts, expected.name: _saved_now(account)}
            return ProviderAccounts(default=logins.default, accounts=accounts)

        return self._modify(provider_id, change)

    def remove(self, provider_id: str, name: str | None = None) -> bool:
        """Remove the account, or the default one. If it was the default, the first that is left takes its place."""

        def change(logins: ProviderAccounts) -> ProviderAccounts:
            gone = logins.default if name is None else name
            left = {kept: account for kept, account in logins.accounts.items() if kept != gone}
            default = logins.default if logins.default in left else next(iter(left), "")
            return ProviderAccounts(default=default, accounts=left)

        return self._modify(provider_id, change)

    def add_missing(
        self, snapshot: StoreSnapshot, *, replace: bool
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Save the logins of another store. Returns those that were added or replaced, and those that were there and
        stay, as provider and account."""
        saved, kept = [], []
        present = self.latest()
        for provider_id in snapshot.providers():
            default = present.default(provider_id) or snapshot.default(provider_id)
            for account in snapshot.accounts(provider_id):
                if present.account(provider_id, account.name) is not None and not replace:
                    kept.append((provider_id, account.name))
                else:
                    self.save(provider_id, account, make_default=account.name == default)
                    saved.append((provider_id, account.name))
        return saved, kept

    def set_default(self, provider_id: str, name: str) -> None:
        def change(logins: ProviderAccounts) -> ProviderAccounts:
            if name not in logins.accounts:
                hint = f"There is: {', '.join(logins.accounts)}." if logins.accounts else None
                raise InvalidRequest(f"There is no account {name!r} at {provider_id}.", hint=hint)
            return ProviderAccounts(default=name, accounts=logins.accounts)

        self._modify(provider_id, change)


class CredentialStore(AccountStore):
    """Reading costs one `lstat` while the file stays the same. A change waits for other processes and for the disk."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._path = home / FILE_NAME
        self._draft = home / f"{FILE_NAME}.new"
        self._cached: tuple[_Version, StoreSnapshot] = (_NO_FILE, StoreSnapshot())
        self._entry: str | None = None
        """The keyring's entry that the file named when it was last read."""

    def snapshot(self) -> StoreSnapshot:
        try:
            version = _version(os.lstat(self._path))
        except FileNotFoundError:
            return StoreSnapshot()
        except OSError as error:
            raise self._refused(f"cannot be read ({error.strerror})") from None
        if version != self._cached[0]:
            version, _, snapshot = self._read()
            self._cached = (version, snapshot)
        return self._cached[1]

    def latest(self) -> StoreSnapshot:
        return self.snapshot()

    def close(self) -> None:
        """Nothing is open between two calls."""

    @asynccontextmanager
    async def refresh_lock(self, provider_id: str, account_name: str) -> AsyncIterator[RefreshLock]:
        folder = self.home / "locks"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise MakaiError(f"{folder} cannot be made ({error.strerror})") from None
        with FileLock(folder / f"{refresh_lock_name(provider_id, account_name)}.lock") as lock:
            yield _RefreshFileLock(lock)

    def rehearse(self) -> None:
        """Raise now where a change would fail: a full disk, a read-only home, a file that is refused."""
        with self._alone():
            _, entries, _ = self._read()
            with self._drafted(encoded(entries if self._entry is None else naming(self._entry)), modified_ns=0):
                pass

    @property
    def place(self) -> Literal["file", "keyring"]:
        """Where the logins are."""
        self._read()
        return "file" if self._entry is None else "keyring"

    def move(self, place: Literal["file", "keyring"]) -> bool:
        """Keep the logins there from now on; False when they already are."""
        with self._alone():
            version, entries, _ = self._read()
            if (self._entry is not None) == (place == "keyring"):
                return False
            self._put(entries, version, in_keyring=place == "keyring")
            return True

    def _modify(self, provider_id: str, change: AccountsChange) -> bool:
        with self._alone():
            version, entries, snapshot = self._read()
            if not changed(entries, snapshot, provider_id, change):
                return False
            self._put(entries, version, in_keyring=self._entry is not None)
            return True

    def _put(self, entries: Entries, version: _Version, *, in_keyring: bool) -> None:
        """Replace the file, while we hold the lock. What the keyring held before goes last: readers may want it."""
        before, data = self._entry, encoded(entries)
        added = add_entry(data) if in_keyring else None
        if added is not None:
            data = encoded(naming(added))
        try:
            # Strictly later than the version before: the kernel's clock is coarse and the inode of a replaced file is
            # soon given to a new one, so that two versions could look alike to a reader.
            with self._drafted(data, modified_ns=max(time.time_ns(), version[1] + 1)):
                os.rename(self._draft, self._path)
                sync_directory(self.home)
        except BaseException:
            if added is not None:
                remove_entry(added)
            raise
        if before is not None:
            remove_entry(before)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock in a home that exists and belongs to this user."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_home()
        except OSError as error:
            raise self._refused(f"cannot be written ({error.strerror})") from None
        with exclusive(self.home / LOCK_NAME, LOCK_DEADLINE_S):
            yield

    @contextlib.contextmanager
    def _drafted(self, data: bytes, modified_ns: int) -> Iterator[None]:
        """For the length of the block the file's next content is on disk, under another name."""
        try:
            # One that is already there was left by a process that was killed: we hold the lock.
            self._draft.unlink(missing_ok=True)
            with open(os.open(self._draft, _CREATE, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)  # whatever the umask took away
                file.write(data)
                file.flush()
                os.utime(file.fileno(), ns=(modified_ns, modified_ns))
                os.fsync(file.fileno())
            yield
        except OSError as error:
            raise self._refused(f"cannot be written ({error.strerror})") from None
        finally:
            with contextlib.suppress(OSError):
                self._draft.unlink()  # unless it has become the file

    def _read(self) -> tuple[_Version, Entries, StoreSnapshot]:
        """The file as it is now; a home without one holds no logins."""
        for _ in range(_MAX_READS):
            with contextlib.suppress(EntryGone):  # another process has replaced the file since it was opened
                return self._read_once()
        raise self._refused("names an entry that your keyring does not have")

    def _read_once(self) -> tuple[_Version, Entries, StoreSnapshot]:
        try:
            self._check_home()
            descriptor = os.open(self._path, _READ)
        except FileNotFoundError:
            self._entry = None
            return _NO_FILE, {}, StoreSnapshot()
        except OSError as error:
            # ELOOP is what O_NOFOLLOW makes of a link
            why = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"
            raise self._refused(why) from None
        try:
            version = self._check_file(descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                entries = decoded(file.read(MAX_BYTES + 1))
            self._entry = entry_named_in(entries)
            if self._entry is not None:
                entries = decoded(load_entry(self._entry))
            return version, entries, snapshot_of(entries)
        except OSError as error:
            raise self._refused(f"cannot be read ({error.strerror})") from None
        except UnreadableText as error:
            raise self._refused(str(error)) from None
        finally:
            os.close(descriptor)

    def _check_home(self) -> None:
        status = os.stat(self.home)
        if status.st_uid != os.geteuid():
            raise self._refused("is in a directory of another user")
        if status.st_mode & _OTHERS_MAY_WRITE:
            raise self._refused("is in a directory that other users may write to")

    def _check_file(self, descriptor: int) -> _Version:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise self._refused("is not a file")
        if status.st_uid != os.geteuid():
            raise self._refused("belongs to another user")
        if status.st_mode & _OTHERS_MAY_WRITE:
            raise self._refused("may be written to by other users")
        if status.st_mode & _OTHERS_MAY_READ:
            os.fchmod(descriptor, 0o600)  # copied or restored by hand, most likely: close it as soon as it is seen
        return _version(status)

    def _refused(self, why: str) -> MakaiError:
        return MakaiError(
            f"{self._path} {why}. It was left as it is.",
            hint="You must own the file (mode 600) and its directory (mode 700). "
            "To start over, move it away and log in again.",
        )


class _RefreshFileLock:
    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    async def try_acquire(self) -> bool:
        return self._lock.try_acquire()


def refresh_lock_name(provider_id: str, account_name: str) -> str:
    """One name per account, whatever characters these have."""
    digest = hashlib.sha256(f"{provider_id}\0{account_name}".encode()).hexdigest()
    return f"refresh-{digest[:16]}"


def changed(entries: Entries, snapshot: StoreSnapshot, provider_id: str, change: AccountsChange) -> bool:
    """Apply a change to `entries`, of which `snapshot` was made. Tells whether they differ now."""
    before = snapshot.logins.get(provider_id, ProviderAccounts())
    after = change(before)
    if after == before:
        return False
    entries[provider_id] = plain(after)
    if not after.accounts:
        del entries[provider_id]
    return True


def unix_milliseconds() -> int:
    """The wall clock, in the unit of `expires_at_ms`."""
    return time.time_ns() // 1_000_000


def _version(status: os.stat_result) -> _Version:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _saved_now(account: Account) -> Account:
    return msgspec.structs.replace(account, saved_at_ms=unix_milliseconds())


class Keychain:
    """Looks up credentials in the store and in an environment."""

    def __init__(self, environ: Mapping[str, str], store: AccountStore | None = None) -> None:
        self._environ = environ
        self._store = store

    def find(self, source: KeySource, account: str | None = None) -> Credential | None:
        """The credential for this provider, regardless of where it may be sent."""
        stored = self._store.snapshot().account(source.provider_id, account) if self._store is not None else None
        if stored is not None:
            # A login stored by an older version names no origins: it may go to the provider's own.
            bound = stored if stored.origins else msgspec.structs.replace(stored, origins=tuple(source.origins))
            return credential_of(source.provider_id, bound)
        return None if account else find_key(source, self._environ)

    def credential_for(self, source: KeySource, base_url: str, account: str | None = None) -> Credential | None:
        """The credential to use at `base_url`. `None` where the provider needs no key and none may be sent there;
        `AuthRequired` where it needs one."""
        credential = self.find(source, account)
        if credential is not None and credential.may_be_sent_to(base_url):
            return credential
        if account is not None and credential is None:
            raise AuthRequired(
                f"There is no account {account!r} of {source.name}.",
                provider_id=source.provider_id,
                hint=f"Run `makai auth login {source.provider_id} --account {account}`.",
            )
        if not source.required:
            return None
        if credential is None:
            missing = f"No API key for {source.name}." if source.variables else f"Not logged in: {source.name}."
            raise AuthRequired(
                missing, provider_id=source.provider_id, hint=how_to_log_in(source.provider_id, source.variables)
            )
        raise AuthRequired(
            f"{credential.source} is not sent to {origin_of(base_url)}: "
            f"a key of {source.name} may only go to {', '.join(sorted(credential.origins)) or 'its own servers'}.",
            provider_id=source.provider_id,
            hint=f"If you trust that server, set {source.base_url_variable} to it."
            if source.base_url_variable
            else None,
        )


def find_key(source: KeySource, environ: Mapping[str, str]) -> Credential | None:
    """The key in the first variable that is not empty; `AuthRequired` when that cannot be a key."""
    for variable in source.variables:
        value = environ.get(variable, "").strip()
        if not value:
            continue
        if not (value.isascii() and value.isprintable()):
            raise AuthRequired(
                f"{variable} holds characters that cannot be part of an API key.",
                provider_id=source.provider_id,
                hint=f"Set {variable} again, on one line and without quotes around it.",
            )
        return Credential(provider_id=source.provider_id, secret=Secret(value), origins=source.origins, source=variable)
    return None


def credential_of(provider_id: str, account: Account) -> Credential:
    stored = account.credential
    token = stored if isinstance(stored, OAuthToken) else None
    return Credential(
        provider_id=provider_id,
        secret=secret_of(account),
        origins=frozenset(account.origins),
        source=f"login {account.name!r}",
        account=account.name,
        expires_at_ms=token.expires_at_ms if token else None,
        provider_data=token.provider_data if token else {},
    )
