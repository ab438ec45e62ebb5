"""Keeps the text of `auth.json` in the keyring of the operating system, which encrypts it and asks before it opens.

The file then holds only the name of the entry, `{"keyring": NAME}`. Every change makes a new entry and replaces the
file afterwards, under the same lock as ever, so a reader finds all of the old or all of the new. The library is the
extra `makai[keyring]`; it is imported when a file names an entry.
"""

from __future__ import annotations

import secrets
from importlib import import_module
from typing import Any, Final

from makai.core.errors import MakaiError

SERVICE: Final = "makai"


class EntryGone(Exception):
    """The file names an entry that the keyring does not have."""


def entry_named_in(content: object) -> str | None:
    """The entry that the file names; None when the file holds the logins itself."""
    if not isinstance(content, dict) or len(content) != 1:
        return None
    entry = content.get("keyring")
    return entry if isinstance(entry, str) else None


def naming(entry: str) -> dict[str, Any]:
    return {"keyring": entry}


def load_entry(entry: str) -> bytes:
    """The text; `EntryGone` when there is no such entry."""
    text = _asked("read", lambda keyring: keyring.get_password(SERVICE, entry))
    if text is None:
        raise EntryGone
    return str(text).encode()


def add_entry(data: bytes) -> str:
    """Keep a text under a new name, and return the name once it can be read back."""
    entry = f"logins-{secrets.token_hex(8)}"
    _asked("written", lambda keyring: keyring.set_password(SERVICE, entry, data.decode()))
    if load_entry(entry) != data:
        raise MakaiError("The keyring did not keep what was written to it. Nothing was changed.")
    return entry


def remove_entry(entry: str) -> None:
    """Remove what no file names any more. What cannot be removed stays, encrypted."""
    try:
        _asked("written", lambda keyring: keyring.delete_password(SERVICE, entry))
    except MakaiError:
        return


def _asked(what: str, question: Any) -> Any:
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        raise MakaiError(
            "Your logins are to be kept in the keyring, and the library for it is not installed.",
            hint="Install it with: pip install 'makai[keyring]'",
        ) from None
    try:
        return question(keyring)
    except (keyring.errors.KeyringError, RuntimeError, OSError) as error:
        # Its text names the backend and the reason, never a value.
        raise MakaiError(
            f"The keyring could not be {what}: {type(error).__name__}: {error}",
            hint="Unlock or start your keyring (GNOME Keyring, KWallet, macOS Keychain), "
            "or go back to a file: makai auth store file",
        ) from None
