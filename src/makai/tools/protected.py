"""The one list of files that make later commands run code, or tell an agent what to do.

File tools never write them without asking, in any mode but `never_ask` (`is_protected`). Sandboxed commands find
existing ones read-only and cannot leave new ones behind (`tools.sandbox.guard`). Paths are compared as text; a caller
that follows links asks about the place they lead to. Build files, tests and package manifests also run code, but
writing them is the work itself: they are not listed.
"""

from __future__ import annotations

import itertools
import re
import time
import unicodedata
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALWAYS_READ_ONLY: Final = (".makai", ".mcp.json", ".claude", ".codex", ".cursor", ".gemini", ".vscode", ".idea")
"""What agents and editors read without asking. In the folders of a session a sandbox makes them read-only however many
other files are guarded."""

_FOLDERS_OF = {
    "version control": ".git .githooks .hg .svn .jj",
    "agents": ".makai .agents .amazonq .augment .claude .cline .clinerules .codex .continue .cursor .gemini .goose "
    ".junie .kiro .opencode .qwen .roo .trae .windsurf",
    "editors": ".vscode .idea .zed .fleet .idx .emacs.d .vim .devcontainer .run",
    "hooks and environments": ".husky .lefthook .mise .direnv .ipython .bundle .mvn",
    "build servers": ".github .gitlab .circleci .forgejo .gitea .woodpecker .buildkite .semaphore .teamcity",
    "keys": ".ssh .gnupg",
}
PROTECTED_FOLDERS: Final = _names(" ".join(_FOLDERS_OF.values()))
"""Nothing anywhere below a folder of this name is written without asking."""

_FILES_OF = {
    "shells and terminals": ".autoenv.zsh .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .cshrc .env.zsh "
    ".envrc .direnvrc .inputrc .kshrc .login .pam_environment .profile .screenrc .tcshrc .tmux.conf .xinitrc "
    ".xprofile .xsession .zlogin .zlogout .zprofile .zshenv .zshrc",
    "git and its hooks": ".gitattributes .gitconfig .gitmodules .hgrc .lfsconfig .overcommit.yml "
    ".pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml .tigrc",
    "editors and debuggers": ".dir-locals.el .dir-locals-2.el .emacs .exrc .gdbinit .gvimrc .lldbinit .lvimrc .nanorc "
    ".nvim.lua .nvimrc .pdbrc .vimrc .ycm_extra_conf.py",
    "interpreters": ".erlang .ghci .iex.exs .irbrc .ocamlinit .perldb .proverc .pryrc .pythonrc .renviron .rprofile "
    ".user.ini .htaccess latexmkrc .latexmkrc pyvenv.cfg sitecustomize.py usercustomize.py",
    "package managers and tools": ".bazeliskrc .bazelrc .condarc .curlrc .gemrc .netrc .npmrc .pnp.cjs .pnp.loader.mjs "
    ".pnpmfile.cjs .pnpmfile.mjs .pypirc .ripgreprc .wgetrc .yarnrc .yarnrc.yml .tool-versions bunfig.toml devbox.json "
    "pip.conf rust-toolchain rust-toolchain.toml",
    "build servers": ".appveyor.yml appveyor.yml .build.yml .cirrus.yml .drone.yml .gitlab-ci.yml .gitpod.dockerfile "
    ".gitpod.yml .replit .travis.yml .woodpecker.yaml .woodpecker.yml azure-pipelines.yaml azure-pipelines.yml "
    "bitbucket-pipelines.yml buildspec.yml circle.yml cloudbuild.yaml cloudbuild.yml codefresh.yml codemagic.yaml "
    "jenkinsfile wercker.yml",
    "agents": ".aider.conf.yml .crush.json .cursorrules .goosehints .mcp.json .roorules .rules .windsurfrules agent.md "
    "agents.md agents.override.md claude.local.md claude.md copilot-instructions.md crush.json crush.md gemini.md "
    "opencode.json opencode.jsonc qwen.md warp.md",
}
PROTECTED_FILES: Final = _names(" ".join(_FILES_OF.values()))
"""Read by shells, git, editors, package managers, build servers or agents before or beside what the user asked for."""

_SUFFIXES: Final = (".pth", "._pth", ".code-workspace", ".sublime-project")
"""Python runs the lines of a `.pth` file when it starts."""
_VARIANTS: Final = re.compile(
    r"\.?mise(?:\.[^/]+)?\.toml|\.rtx(?:\.[^/]+)?\.toml"
    r"|\.?lefthook(?:-local)?\.(?:ya?ml|toml|jsonc?)"
    r"|\.(?:huskyrc|lintstagedrc|simple-git-hooks)(?:\.[a-z]+)?|lint-staged\.config\.[a-z]+"
).fullmatch
"""Matches the names that have many variants."""

_PROTECTED_PAIRS: Final = frozenset(
    {(".config", name) for name in ("autostart", "fish", "git", "mise", "nvim", "systemd", "environment.d", "pip")}
    | {(".local", "bin"), (".cargo", "config"), (".cargo", "config.toml"), (".yarn", "releases"), (".yarn", "plugins")}
)
"""The same for two names in a row."""
_SECOND_OF_PAIRS: Final = frozenset(second for _, second in _PROTECTED_PAIRS)

_PROGRAM_FOLDERS: Final = frozenset({(".venv", "bin"), ("venv", "bin"), ("node_modules", ".bin")})
HOLDERS: Final = frozenset(first for first, _ in _PROTECTED_PAIRS | _PROGRAM_FOLDERS)
"""Folders that are not protected but hold what is: one that is moved or linked brings it along."""
FREE_FOR_COMMANDS: Final = frozenset({".pnp.cjs", ".pnp.loader.mjs", "pyvenv.cfg"})
"""File tools ask, commands may write them: `pip install`, `npm install`, `yarn` and `python -m venv` have to, and all
they install is code that later commands run anyway. That also holds for `_PROGRAM_FOLDERS` and `NOT_LOOKED_INTO`."""
NOT_LOOKED_INTO: Final = _names(
    "node_modules .venv venv site-packages dist-packages __pycache__ .tox .nox .mypy_cache .pytest_cache .ruff_cache "
    ".cache .npm .nvm .pyenv .rbenv .rustup .gradle .m2 .pnpm-store .terraform"
)
"""Folders of installed packages and caches, in which a sandbox guards nothing: no one works in them, and in a big
project they hold most of the files."""

_REPOSITORY_MARKS = frozenset({"head", "commondir", "gitdir"})
BARE_REPOSITORY_MARK: Final = "HEAD"
"""With this file, a folder without `.git` can be made a repository with a configuration of its own, which runs code."""

_SHORT_NAME_OF_GIT: Final = re.compile(r"git~\d+")
"""What `.git` is called by the short names of FAT and NTFS."""
_SETTLING: Final = frozenset({".git", ".makai"})


def is_protected(relative_path: str) -> bool:
    """Whether a write to this path needs a person's consent in every mode but `never_ask`."""
    parts = tuple(_folded(part) for part in relative_path.split("/") if part not in ("", "."))
    if not parts:
        return False
    pairs = set(itertools.pairwise(parts))
    return (
        not PROTECTED_FOLDERS.isdisjoint(parts)
        or _is_listed(parts[-1])
        or not _PROTECTED_PAIRS.isdisjoint(pairs)
        or not _PROGRAM_FOLDERS.isdisjoint(pairs)
        or parts[-1] in _REPOSITORY_MARKS
    )


def is_guarded(folder_name: str, name: str) -> bool:
    """Whether commands find `name` in a folder read-only, and cannot leave a new one there."""
    folded = _folded(name)
    if folded in PROTECTED_FOLDERS or name == BARE_REPOSITORY_MARK:
        return True
    if _is_listed(folded):
        return folded not in FREE_FOR_COMMANDS
    return is_guarded_pair(folder_name, name)


def is_guarded_pair(folder_name: str, name: str) -> bool:
    """Whether `name` is guarded because of the folder it is in, such as `.cargo/config.toml`."""
    folded = _folded(name)
    return folded in _SECOND_OF_PAIRS and (_folded(folder_name), folded) in _PROTECTED_PAIRS


def settling_folder(path: str) -> str | None:
    """The folder around `path`, or `path` itself, that settles what git or an agent does; None when there is none. A
    session in such a folder has it as the folder that names are relative to, and so none of them gives it away."""
    parts = path.split("/")
    found = next((index for index, part in enumerate(parts) if _folded(part) in _SETTLING), None)
    return None if found is None else "/".join(parts[: found + 1])


def _is_listed(folded: str) -> bool:
    return folded in PROTECTED_FILES or folded.endswith(_SUFFIXES) or _VARIANTS(folded) is not None


def _folded(name: str) -> str:
    """The name as file systems may compare it: without case, signs that cannot be seen, and dots or blanks at its end.
    On some of them `.GIT`, `.g<U+200C>it`, `.git.` or `GIT~1` is `.git`."""
    if not name.isascii():
        name = "".join(sign for sign in unicodedata.normalize("NFC", name) if unicodedata.category(sign) != "Cf")
    folded = name.casefold().rstrip(". ")
    return ".git" if folded.startswith("git~") and _SHORT_NAME_OF_GIT.fullmatch(folded) else folded


_approved: dict[str, float] = {}
"""Protected files that file tools wrote with a person's consent, and when."""


def note_approved(path: str) -> None:
    """A file tool is about to write a protected file; a command that runs meanwhile is not taken for its author."""
    _approved.pop(path, None)
    _approved[path] = time.time()
    while len(_approved) > 1_000:
        del _approved[next(iter(_approved))]


def was_approved(path: str, since: float) -> bool:
    """Whether a file tool wrote `path`, or something in it, since a time."""
    return any(at >= since and f"{written}/".startswith(f"{path}/") for written, at in list(_approved.items()))
