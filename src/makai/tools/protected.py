"""Files that make later commands run code: `.git`, `.makai` and others.

They are never written without asking, in any mode but `full_access`. Paths are compared as text; a caller that follows
links asks about the place they lead to.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PROTECTED_FOLDERS: Final = _names(
    ".git .githooks .hg .svn .jj .makai .agents .claude .codex .continue .cursor .gemini .opencode .windsurf .vscode "
    ".idea .zed .emacs.d .vim .devcontainer .husky .ipython .ssh .gnupg .direnv"
)
"""Nothing anywhere below a folder of this name is written without asking."""

PROTECTED_FILES: Final = _names(
    ".aider.conf.yml .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .bazelrc .cshrc .curlrc "
    ".dir-locals.el .emacs .envrc .exrc .gdbinit .gitattributes .gitconfig .gitmodules .hgrc .inputrc .irbrc .kshrc "
    ".lldbinit .login .mcp.json .mise.toml .netrc .npmrc .nvim.lua .nvimrc .pam_environment .pdbrc .pnp.cjs "
    ".pnp.loader.mjs .pnpmfile.cjs .pre-commit-config.yaml .profile .pryrc .pypirc .pythonrc .rprofile .screenrc "
    ".tcshrc .tmux.conf .vimrc .wgetrc .xinitrc .xprofile .xsession .yarnrc .yarnrc.yml .zlogin .zlogout .zprofile "
    ".zshenv .zshrc bunfig.toml lefthook.yaml lefthook.yml mise.toml sitecustomize.py usercustomize.py"
)
"""Read by shells, git, editors, package managers or Python before or beside what the user asked for."""

_PROTECTED_PAIRS = frozenset(
    {(".config", name) for name in ("autostart", "fish", "git", "nvim", "systemd", "environment.d")}
    | {(".local", "bin"), (".cargo", "config"), (".cargo", "config.toml"), (".yarn", "releases"), (".yarn", "plugins")}
    | {(".venv", "bin"), ("venv", "bin"), ("node_modules", ".bin")}
)
"""The same for two names in a row."""

_REPOSITORY_MARKS = frozenset({"head", "commondir", "gitdir"})
"""With a file HEAD, any folder can be made a bare git repository, and the config of a repository runs code."""


_STARTED_WITH_PYTHON: Final = ".pth"
_SHORT_NAME_OF_GIT: Final = re.compile(r"git~\d+")
"""What `.git` is called by the short names of FAT and NTFS."""
_SETTLING: Final = frozenset({".git", ".makai"})


def is_protected(relative_path: str) -> bool:
    """Whether a write to this path needs a person's consent in every mode but full access."""
    parts = tuple(_folded(part) for part in relative_path.split("/") if part not in ("", "."))
    if not parts:
        return False
    return (
        not PROTECTED_FOLDERS.isdisjoint(parts)
        or parts[-1] in PROTECTED_FILES
        or parts[-1].endswith(_STARTED_WITH_PYTHON)
        or not _PROTECTED_PAIRS.isdisjoint(itertools.pairwise(parts))
        or parts[-1] in _REPOSITORY_MARKS
    )


def settling_folder(path: str) -> str | None:
    """The folder around `path`, or `path` itself, that settles what git or an agent does; None when there is none. A
    session in such a folder has it as the folder that names are relative to, and so none of them gives it away."""
    parts = path.split("/")
    found = next((index for index, part in enumerate(parts) if _folded(part) in _SETTLING), None)
    return None if found is None else "/".join(parts[: found + 1])


def _folded(name: str) -> str:
    """The name as file systems may compare it: without case, signs that cannot be seen, and dots or blanks at its end.
    On some of them `.GIT`, `.g<U+200C>it`, `.git.` or `GIT~1` is `.git`."""
    seen = "".join(sign for sign in unicodedata.normalize("NFC", name) if unicodedata.category(sign) != "Cf")
    folded = seen.casefold().rstrip(". ")
    return ".git" if _SHORT_NAME_OF_GIT.fullmatch(folded) else folded
