"""In which of several databases a session is. The result may never change for given names: sessions would be lost."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Final

_BYTES: Final = 16


def shard_of(names: Collection[str], session_id: str) -> str:
    """The name with the highest hash together with the id (rendezvous hashing), in any order of the names. A new name
    takes its share of the sessions from all others, and moves no session between them."""
    about = session_id.encode("utf-8", "surrogatepass")
    return max(names, key=lambda name: (blake2b(about, digest_size=_BYTES, key=name.encode()).digest(), name))
