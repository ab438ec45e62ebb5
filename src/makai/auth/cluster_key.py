"""The key that all nodes of a cluster have. A process that knows it is a member, and can read the shared credentials.

It comes from a file or from the environment, never from the store that it protects. Nothing uses it directly: each
purpose has a key of its own, derived from it, so that two uses cannot weaken each other.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from makai.core.config import ClusterConfig
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret

KEY_VARIABLE: Final = "MAKAI_CLUSTER_KEY"
MIN_CHARACTERS: Final = 32
DERIVED_BYTES: Final = 32
_MAX_FILE_BYTES: Final = 4096
_HOW_TO_MAKE_ONE: Final = (
    "Make one with `openssl rand -base64 48`, and give the same to every node: in the variable "
    f"{KEY_VARIABLE}, or in a file that `key_file` in the section [cluster] of config.toml names."
)


def load_cluster_key(environ: Mapping[str, str], config: ClusterConfig) -> Secret:
    """The key in `key_file`, or in the environment when no file is named. Blocks. Raises `InvalidRequest` when there
    is none, it is too short, or other users can change its file."""
    where = config.key_file or KEY_VARIABLE
    key = _in_file(Path(config.key_file).expanduser()) if config.key_file else environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise InvalidRequest(f"There is no cluster key: {where} is empty or not set.", hint=_HOW_TO_MAKE_ONE)
    if len(key) < MIN_CHARACTERS:
        raise InvalidRequest(
            f"The cluster key in {where} has fewer than {MIN_CHARACTERS} characters.", hint=_HOW_TO_MAKE_ONE
        )
    return Secret(key)


def derived_key(key: Secret, purpose: str) -> bytes:
    """32 bytes for one purpose (HKDF-SHA256): the same on every node, and no help to guess the key or another one."""
    from cryptography.hazmat.primitives.hashes import SHA256  # of the extra `postgres`
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    kdf = HKDF(algorithm=SHA256(), length=DERIVED_BYTES, salt=b"makai cluster", info=purpose.encode())
    return kdf.derive(key.reveal().encode())


def _in_file(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidRequest(
            f"The cluster key cannot be read from {path} ({error.strerror}).", hint=_HOW_TO_MAKE_ONE
        ) from None
    with open(descriptor, "rb") as file:
        _check_file(path, os.fstat(descriptor))
        data = file.read(_MAX_FILE_BYTES + 1)
    try:
        if len(data) <= _MAX_FILE_BYTES:
            return data.decode().strip()
    except UnicodeDecodeError:
        pass
    raise InvalidRequest(f"{path} holds no cluster key.", hint=_HOW_TO_MAKE_ONE)


def _check_file(path: Path, status: os.stat_result) -> None:
    """Root's files may be readable by others: that is how containers are given secrets, in a place of their own."""
    if not stat.S_ISREG(status.st_mode):
        raise InvalidRequest(f"{path} is not a file.", hint=_HOW_TO_MAKE_ONE)
    if status.st_uid not in (0, os.geteuid()):
        raise InvalidRequest(f"{path} belongs to another user.", hint="The cluster key must be yours or root's.")
    if status.st_mode & 0o022 or (status.st_uid != 0 and status.st_mode & 0o077):
        raise InvalidRequest(f"{path} is open to other users.", hint=f"Run: chmod 600 {path}")
