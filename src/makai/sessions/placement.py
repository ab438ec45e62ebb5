"""Where the folder of a session is. A session whose folder is on another machine can be read; nothing runs in it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from makai.core.config import Config
from makai.core.errors import SessionRefused
from makai.sessions import commands as cmd
from makai.sessions.live import LiveSession
from makai.sessions.log.opening import is_postgres, store_of

NEEDS_FOLDER: Final = (cmd.Send, cmd.RetryRun, cmd.Compact, cmd.RestoreFiles, cmd.SetHarness)
"""Commands that start a run, change files, or ask an agent about the folder."""


def check_folder(session: LiveSession) -> None:
    """Raise `SessionRefused` when the session's folder is not on this machine."""
    claim = session.claim
    if not claim.is_here:
        place = f"on {claim.place}" if claim.place else "on another machine"
        raise SessionRefused(
            "BAD_ARGUMENT",
            f"The folder {session.state.cwd} of this session is {place}, which is not running now.",
            hint="Start makai there; the session can be read meanwhile. Or give this machine the same folders, and "
            "that label in `labels` of [cluster].",
        )


def labels_here(home: Path, config: Config) -> tuple[str, ...]:
    """Which folders this machine has, as the labels of its node; empty when its sessions are in no cluster."""
    if not is_postgres(store_of(home, config)):
        return ()
    return config.cluster.labels or (config.cluster.name or socket.gethostname(),)


def with_real_folders(create: cmd.Create) -> cmd.Create:
    """With its folders as they are now: what people grant or trust in one must not follow a link elsewhere later."""
    cwd = None if create.cwd is None else os.path.realpath(create.cwd)
    return msgspec.structs.replace(create, cwd=cwd, roots=tuple(map(os.path.realpath, create.roots)))
