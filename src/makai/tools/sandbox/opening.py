"""What a call may be given beyond the session's sandbox, when a person allows it: checked, and resolved to real paths.

What is resolved here is what the person is shown and what the sandbox then opens. It is resolved again when the command
starts; if a link leads elsewhere by then, nothing is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import InvalidRequest
from makai.tools.own_code import own_code_around
from makai.tools.permissions.confinement import wanted_hosts
from makai.tools.protected import is_protected, settling_folder
from makai.tools.sandbox.policy import SHARED_SCRATCH, SandboxPolicy, is_beneath, outermost
from makai.tools.sandbox.repository import git_folders_of

MAX_FOLDERS: Final = 20
_SYSTEM: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")


def resolved(wanted: Confinement, directory: str, policy: SandboxPolicy, user_home: Path) -> Confinement:
    """What `wanted` opens for a command in `directory`, without what `policy`, the session's own, gives already.
    `folders` may be relative to the session's folder or begin with `~/`. `InvalidRequest` when it cannot be opened."""
    if policy.level == "full-access":
        return SESSION_SANDBOX
    if wanted.unsandboxed:
        return Confinement(unsandboxed=True)
    if len(wanted.folders) > MAX_FOLDERS:
        raise InvalidRequest(f"At most {MAX_FOLDERS} folders can be opened for a command.")
    folders = {_openable(folder, policy, os.path.realpath(user_home)) for folder in wanted.folders}
    return Confinement(
        network=wanted_hosts(wanted.network),
        git=wanted.git,
        git_folders=git_folders_of(directory) if wanted.git else (),
        folders=outermost(folder for folder in folders if not any(is_beneath(folder, top) for top in policy.writable)),
    )


def _openable(folder: str, policy: SandboxPolicy, user_home: str) -> str:
    """The real path of a folder that a command may be allowed to write."""
    if not folder.strip() or not folder.isprintable():
        raise InvalidRequest(f"{folder!r} is not the name of a folder that can be opened.")
    expanded = os.path.join(user_home, folder[2:]) if folder.startswith("~/") else folder
    real = os.path.realpath(os.path.join(policy.roots[0], expanded))
    if not os.path.isdir(real):
        raise InvalidRequest(f"{folder} is not a folder that exists.", hint="Ask for a folder around it that does.")
    for reason, hint in _refusals(real, policy, user_home):
        raise InvalidRequest(f"{real} cannot be opened: {reason}.", hint=hint)
    return real


def _refusals(real: str, policy: SandboxPolicy, user_home: str) -> Iterator[tuple[str, str | None]]:
    """Why a folder is never opened, each with what to do instead."""
    # The folders of all sessions, in which this one has its own (`scratch.open_scratch`).
    scratch = (os.path.dirname(os.path.dirname(policy.private_tmp)),) if policy.private_tmp else ()
    if holder := next((path for path in (*policy.hidden, *scratch) if is_beneath(real, path)), None):
        yield f"{holder} is never shown to a command", None
    if holder := next((path for path in (user_home, *scratch) if is_beneath(path, real)), None):
        yield f"it is too wide, {holder} is in it", "Name one folder in it."
    if real in SHARED_SCRATCH or any(is_beneath(real, path) for path in _SYSTEM):
        yield "it belongs to the system", "Use $TMPDIR for temporary files, or ask with no_sandbox."
    if holder := settling_folder(real):
        yield f"what is in {holder} makes other programs run code", "Ask with git for a commit."
    if is_protected(real):
        yield "what is in it makes other programs run code", None
    if holder := own_code_around(real):
        yield f"makai itself runs code from {holder}", None
