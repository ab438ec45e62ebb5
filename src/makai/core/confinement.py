"""What a call may be given beyond the sandbox of its session, and the rules that a decision about it may set.

Both are in the log and on the wire: a new field has a default."""

from __future__ import annotations

from typing import Final

import msgspec


class Confinement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a command may do beyond the sandbox of its session; by default nothing."""

    network: tuple[str, ...] = ()
    """Hosts such as `index.example.org`, `*.example.com` or `example.com:8443`; `*` alone stands for every address."""
    git: bool = False
    """Write the repository, except for its hooks and its configuration."""
    git_folders: tuple[str, ...] = ()
    """Where the repository is, when that is not a `.git` folder in the session's folders."""
    folders: tuple[str, ...] = ()
    """Further folders that may be written, absolute and free of links."""
    unsandboxed: bool = False
    terminal: bool = False
    """It runs in a terminal of the session's editor, which no sandbox confines: `unsandboxed` is set, too."""

    @property
    def opens(self) -> bool:
        """Whether it is more than the session's sandbox gives."""
        return bool(self.network or self.git or self.folders or self.unsandboxed)


SESSION_SANDBOX: Final = Confinement()
EDITOR_TERMINAL: Final = Confinement(unsandboxed=True, terminal=True)


class OfferedGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that a decision for more than one call may set."""

    rule: str
    label: str
    """What the rule covers, for people."""
    session_only: bool = False
    """It can be set for the session, but not for always."""


def opened_text(confinement: Confinement) -> tuple[str, ...]:
    """What a command is given beyond the session's sandbox, one line each; paths and hosts are not made visible yet."""
    if confinement.terminal:
        return ("in a terminal of your editor, without the sandbox: it can read and change everything that you can",)
    if confinement.unsandboxed:
        return ("without the sandbox: it can read and change everything that you can",)
    lines = []
    if "*" in confinement.network:
        lines.append("with network to every address")
    elif confinement.network:
        lines.append(f"with network to {', '.join(confinement.network)}")
    if confinement.git:
        folders = f" in {', '.join(confinement.git_folders)}" if confinement.git_folders else ""
        lines.append(
            f"may write the git repository{folders} and check out files, but not change hooks or configuration"
        )
    return (*lines, *(f"may write {folder}" for folder in confinement.folders))
