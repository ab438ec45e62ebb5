"""Files that make later commands run code.

In: a path relative to a session's root. Out: whether writing it could make some later, harmless-looking command run
what the writer wants. Lexical and pure: who follows links asks about the place they lead to.

DESIGN §9: "`.git`, `.makai` and other files that make later commands run code are never written without asking, in any
mode but `full_access`."
"""

from __future__ import annotations

import itertools

PROTECTED_FOLDERS = frozenset(
    {
        ".git",
        ".githooks",
        ".hg",
        ".svn",
        ".makai",
        ".claude",
        ".codex",
        ".cursor",
        ".gemini",
        ".vscode",
        ".idea",
        ".devcontainer",
        ".husky",
        ".ssh",
        ".gnupg",
        ".direnv",
    }
)
"""Nothing anywhere below a folder of this name is written without asking."""

PROTECTED_FILES = frozenset(
    {
        ".bash_aliases",
        ".bash_login",
        ".bash_logout",
        ".bash_profile",
        ".bashrc",
        ".cshrc",
        ".envrc",
        ".gitattributes",
        ".gitconfig",
        ".gitmodules",
        ".inputrc",
        ".kshrc",
        ".login",
        ".mcp.json",
        ".npmrc",
        ".pam_environment",
        ".pre-commit-config.yaml",
        ".profile",
        ".pypirc",
        ".pythonrc",
        ".tcshrc",
        ".tmux.conf",
        ".vimrc",
        ".xinitrc",
        ".xprofile",
        ".xsession",
        ".yarnrc",
        ".yarnrc.yml",
        ".zlogin",
        ".zlogout",
        ".zprofile",
        ".zshenv",
        ".zshrc",
        "sitecustomize.py",
        "usercustomize.py",
    }
)
"""Read by shells, git, editors, package managers or Python before or beside what the user asked for."""

_PROTECTED_PAIRS = frozenset(
    {(".config", name) for name in ("autostart", "fish", "git", "systemd")}
    | {(".local", "bin"), (".cargo", "config"), (".cargo", "config.toml")}
)
"""The same for two names in a row."""

_REPOSITORY_MARKS = frozenset({"head", "commondir", "gitdir"})
"""With a file HEAD, any folder can be made a bare git repository, and the config of a repository runs code."""


def is_protected(relative_path: str) -> bool:
    """Whether a write to this path needs a person's consent in every mode but full access.

    Names are compared without case: on some file systems `.GIT` is `.git`.
    """
    parts = tuple(part.casefold() for part in relative_path.split("/") if part not in ("", "."))
    if not parts:
        return False
    return (
        not PROTECTED_FOLDERS.isdisjoint(parts)
        or parts[-1] in PROTECTED_FILES
        or not _PROTECTED_PAIRS.isdisjoint(itertools.pairwise(parts))
        or parts[-1] in _REPOSITORY_MARKS
    )
