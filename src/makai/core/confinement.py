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
    """It runs in a terminal of the session's editor, which this makai does not confine: `unsandboxed` is set, too."""
    terminal_sandbox: str = ""
    """The sandbox in which the editor says that it runs its terminals; empty when it says nothing about one."""
    agent: str = ""
    """The external agent that runs it in its own process, which makai does not confine, whatever is decided."""
    agent_terminals: bool = False
    """The agent may run it in a terminal of makai instead, which the session's sandbox confines."""

    @property
    def opens(self) -> bool:
        """Whether it is more than the session's sandbox gives."""
        return bool(self.network or self.git or self.folders or self.unsandboxed)


SESSION_SANDBOX: Final = Confinement()


def in_editor_terminal(sandbox: str) -> Confinement:
    """A command in a terminal of an editor, which says that its terminals have this sandbox."""
    return Confinement(unsandboxed=True, terminal=True, terminal_sandbox=sandbox)


class OfferedGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that a decision for more than one call may set."""

    rule: str
    label: str
    """What the rule covers, for people."""
    session_only: bool = False
    """It can be set for the session, but not for always."""


def terminal_text(confinement: Confinement) -> str:
    """Where a command runs that an editor runs in its terminal."""
    if confinement.terminal_sandbox:
        return f"in a terminal of your editor, in its own sandbox ({confinement.terminal_sandbox})"
    return "in a terminal of your editor, without the sandbox"


def opened_text(confinement: Confinement) -> tuple[str, ...]:
    """What a command is given beyond the session's sandbox, one line each; paths and hosts are not made visible yet."""
    if agent := confinement.agent:
        place = f"in the process of {agent}, outside of makai's sandbox"
        return (f"{place}, unless it uses a terminal of makai" if confinement.agent_terminals else place,)
    if confinement.terminal_sandbox:
        return (terminal_text(confinement),)
    if confinement.terminal:
        return (f"{terminal_text(confinement)}: it can read and change everything that you can",)
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
