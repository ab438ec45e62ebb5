"""Opens the store of logins that the configuration names, and the server's token. Only this module knows which stores
of logins there are, and when the nodes of a cluster share what is otherwise a machine's own."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from makai.auth.cluster_key import KEY_VARIABLE, derived_key, load_cluster_key
from makai.auth.private_files import load_or_create_token, replace_token
from makai.auth.store import AccountStore, CredentialStore
from makai.core.config import STORE_VARIABLE, Config
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret

TOKEN_PURPOSE: Final = "server token"


def open_account_store(home: Path, config: Config, environ: Mapping[str, str]) -> AccountStore:
    """The logins of a MAKAI_HOME: in its file or, when its sessions are in PostgreSQL and there is a cluster key,
    beside them. Without a key nothing is shared. Connects to nothing yet."""
    if not are_logins_shared(config, environ):
        return CredentialStore(home)
    try:
        from makai.auth.shared_store import SharedCredentialStore
    except ImportError:
        raise _no_library() from None
    return SharedCredentialStore(_store_url(config, environ), lambda: load_cluster_key(environ, config.cluster))


def open_server_token(home: Path, config: Config, environ: Mapping[str, str]) -> Secret:
    """The token of the server of a MAKAI_HOME, which also signs the cookies of the page. It is the home's own or, where
    logins are shared, the one that follows from the cluster's key: a client may reach any node. It is in the home's
    file afterwards. Blocks."""
    if not are_logins_shared(config, environ):
        return load_or_create_token(home)
    try:
        derived = derived_key(load_cluster_key(environ, config.cluster), TOKEN_PURPOSE)
    except ImportError:
        raise _no_library() from None
    token = Secret(urlsafe_b64encode(derived).decode().rstrip("="))
    replace_token(home, token)
    return token


def are_logins_shared(config: Config, environ: Mapping[str, str]) -> bool:
    """Whether the nodes of a cluster have them in common."""
    has_key = bool(config.cluster.key_file or environ.get(KEY_VARIABLE))
    return has_key and _store_url(config, environ).startswith(("postgres://", "postgresql://"))


def _no_library() -> InvalidRequest:
    return InvalidRequest(
        "The library for PostgreSQL is not installed.", hint="Install it with: pip install 'makai[postgres]'"
    )


def _store_url(config: Config, environ: Mapping[str, str]) -> str:
    return environ.get(STORE_VARIABLE) or config.store.url
