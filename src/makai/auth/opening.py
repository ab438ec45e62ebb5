"""Opens the store of logins that the configuration names. Only this module knows which ones there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from makai.auth.cluster_key import KEY_VARIABLE, load_cluster_key
from makai.auth.store import AccountStore, CredentialStore
from makai.core.config import STORE_VARIABLE, Config
from makai.core.errors import InvalidRequest


def open_account_store(home: Path, config: Config, environ: Mapping[str, str]) -> AccountStore:
    """The logins of a MAKAI_HOME: in its file or, when its sessions are in PostgreSQL and there is a cluster key,
    beside them. Without a key nothing is shared. Connects to nothing yet."""
    url = environ.get(STORE_VARIABLE) or config.store.url
    has_key = bool(config.cluster.key_file or environ.get(KEY_VARIABLE))
    if not (has_key and url.startswith(("postgres://", "postgresql://"))):
        return CredentialStore(home)
    try:
        from makai.auth.shared_store import SharedCredentialStore
    except ImportError:
        raise InvalidRequest(
            "The library for PostgreSQL is not installed.", hint="Install it with: pip install 'makai[postgres]'"
        ) from None
    return SharedCredentialStore(url, lambda: load_cluster_key(environ, config.cluster))
