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
    "version control": ".git .git-hooks .git_hooks .githooks .hg .svn .jj .sl .bzr .pijul .bazaar .subversion",
    "agents": ".makai .agent .agents .aiassistant .amazonq .amp .antigravity .augment .claude .claude-plugin .cline "
    ".clinerules .codebuddy .codeium .codex .cody .continue .copilot .crush .cursor .devin .factory .forge .gemini "
    ".goose .grok .iflow .jules .junie .kilocode .kimi .kiro .lingma .opencode .openhands .pi .qoder .qodo .qwen .roo "
    ".rovodev .serena .tabnine .trae .vibe .void .warp .windsurf .zencoder",
    "editors": ".vscode .idea .zed .fleet .idx .emacs.d .doom.d .spacemacs.d .vim .nvim .helix .nova .vs .theia "
    ".devcontainer .codesandbox .externaltoolbuilders .run .atom .ctags.d .cursor-server .vscode-oss .vscode-server "
    ".windsurf-server",
    "hooks and environments": ".husky .cargo-husky .lefthook .mise .direnv .flox .ipython .jupyter .bundle .mvn .sbt",
    "shells": ".antigen .bash_completion.d .bashrc.d .byobu .elvish .oh-my-bash .oh-my-zsh .profile.d .tmux .zim "
    ".zinit .zplug .zprezto .zsh .zshrc.d",
    "desktops": ".fluxbox .xmonad",
    "interpreters": "sitecustomize usercustomize",
    "build servers": ".github .gitlab .circleci .forgejo .gitea .woodpecker .buildkite .semaphore .teamcity .builds "
    ".tekton zuul.d .zuul.d .azure-pipelines .azuredevops .buddy .copr .dependabot .harness .pipelines .tangled "
    ".upsun bamboo-specs",
    "keys": ".ssh .gnupg .aws .azure .kube .password-store .terraform.d",
}
PROTECTED_FOLDERS: Final = _names(" ".join(_FOLDERS_OF.values()))
"""Nothing anywhere below a folder of this name is written without asking."""

_FILES_OF = {
    "shells and terminals": ".aliases .autoenv .autoenv.zsh .autoenv_leave.zsh .bash_aliases .bash_completion "
    ".bash_env .bash_functions .fzf.bash .fzf.zsh .lesskey .localrc .p10k.zsh .shinit .shrc .xbindkeysrc .xdefaults "
    ".xresources .xserverrc "
    ".bash_login .bash_logout .bash_profile .bashrc .cshrc .direnvrc .env.leave .env.zsh .envrc .envrc.local "
    ".envrc.private .inputrc .kshrc .lessfilter .login .mkshrc .pam_environment .profile .profile.ps1 .rvmrc .screenrc "
    ".sdkmanrc .tcshrc .tmux.conf .tmux.conf.local .tmuxinator.yml .tmuxp.json .tmuxp.yaml .wezterm.lua .xinitrc "
    ".xonshrc .xprofile .xsession .xsessionrc .yashrc .zlogin .zlogout .zprofile .zsh_aliases .zshenv .zshrc "
    ".zshrc.local microsoft.powershell_profile.ps1 profile.ps1",
    "git and its hooks": ".arcconfig .git-credentials .gitattributes .gitconfig .gitconfig.local .gitmodules .hgrc "
    ".hk.pkl .lfsconfig .overcommit.yml .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml "
    ".jjconfig.toml .lazygit.yml .rusty-hook.toml .tigrc captainhook.json grumphp.yaml grumphp.yml hk.pkl prek.toml",
    "editors and debuggers": "_gvimrc _vimrc .ackrc .byebugrc .ctags .dir-locals.el .dir-locals-2.el .emacs "
    ".ideavimrc .exrc .gdbearlyinit .gdbinit .gvimrc "
    ".local.vimrc .merlin .vimrc_local "
    ".kateproject .lite_project.lua .lldbinit .luarc.json .luarc.jsonc .lvimrc .nanorc .nvim.lua .nvimrc .pdbrc "
    ".pdbrc.py .project .radare2rc .rdebugrc .spacemacs .vimrc .vimrc.local .vimspector.json .ycm_extra_conf.py "
    "hie.yaml rust-analyzer.toml",
    "interpreters": ".erlang .ghci .gnuplot .guile .iex.exs .irbrc .juliarc.jl .mongorc.js .mongoshrc.js .ocamlinit "
    ".octaverc .perldb .proverc .pryrc .psqlrc .pythonrc .pythonrc.py .racketrc .renviron .rprofile .sbclrc .sqliterc "
    ".tclshrc .user.ini .htaccess latexmkrc .latexmkrc maxima-init.mac profiles.clj pyvenv.cfg startup.m",
    "package managers and tools": ".ansible.cfg .antrc .asdfrc .bazeliskrc .bazelrc .bazelversion .buckconfig "
    ".buckconfig.local .condarc .curlrc .gemrc .jvmopts .mavenrc .netrc .npmrc .pdm.toml .pkgx.yaml .pkgx.yml .pnp.cjs "
    ".pnp.loader.mjs .prototools .pydistutils.cfg .pypirc .ripgreprc .sbtopts .sbtrc .terraformrc .tool-versions "
    ".vfox.toml .wgetrc .yarnrc .yarnrc.yml bunfig.toml devbox.json devenv.nix devenv.yaml nuget.config pdm.toml "
    "pip.conf pip.ini poetry.toml rust-toolchain rust-toolchain.toml uv.toml",
    "mail": ".fetchmailrc .forward .getmailrc .mailcap .mailrc .mbsyncrc .msmtprc .muttrc .offlineimaprc .procmailrc",
    "development environments": ".devcontainer.json .devfile.yaml .gitpod.dockerfile .gitpod.yml .replit "
    ".stackblitzrc devfile.yaml replit.nix",
    "build servers": ".appveyor.yml appveyor.yml .build.yml .cirrus.star .cirrus.yml .drone.jsonnet .drone.star "
    ".drone.yml .evergreen.yml .gitlab-ci.yaml .gitlab-ci.yml .onedev-buildspec.yml .packit.yaml .packit.yml "
    ".prow.yaml .scrutinizer.yml .space.kts .taskcluster.yml .travis.yml .vela.yml .vsts-ci.yml .woodpecker.yaml "
    ".platform.app.yaml .woodpecker.yml .zuul.yaml amplify.yml bitbucket-pipelines.yml bitrise.yml buddy.yml "
    "buildspec.yaml buildspec.yml circle.yml cloudbuild.yaml cloudbuild.yml codefresh.yml codemagic.yaml "
    "codeship-services.yml codeship-steps.yml "
    "screwdriver.yaml wercker.yml zuul.yaml",
    "agents": ".augment-guidelines .claude.json .coderabbit.yaml .continuerules .crush.json .cursorrules .goosehints "
    ".continuerc.json .openhands_instructions "
    ".kilocodemodes .kilocoderules .mcp.json .opencode.json .pr_agent.toml .replit.md .roomodes .roorules .rules "
    ".windsurfrules agent.md agents.local.md agents.md agents.override.md claude.local.md claude.md codex.md "
    "copilot-instructions.md crush.json crush.md gemini-extension.json gemini.md jules.md mcp.json opencode.json "
    "opencode.jsonc opencode.md qwen.md replit.md warp.md",
    "keys": ".boto .dockercfg .k5login .my.cnf .pgpass .rhosts .s3cfg .shosts .vault-token",
}
PROTECTED_FILES: Final = _names(" ".join(_FILES_OF.values()))
"""Read by shells, git, editors, package managers, build servers or agents before or beside what the user asked for."""

_SUFFIXES: Final = (".pth", "._pth", ".code-workspace", ".sublime-project")
"""Python runs the lines of a `.pth` file when it starts."""
_VARIANTS: Final = re.compile(
    r"\.?mise(?:\.[^/]+)?\.toml|\.rtx(?:\.[^/]+)?\.toml"
    r"|\.?lefthook(?:-local)?\.(?:ya?ml|toml|jsonc?)"
    r"|\.(?:huskyrc|lintstagedrc)(?:\.[a-z]+)?|(?:lint-staged|husky)\.config\.[a-z]+"
    r"|\.simple-git-hooks|\.?simple-git-hooks\.[a-z]+"
    r"|\.?azure-pipelines[^/]*\.ya?ml|\.?pnpmfile\.[cm]?js|\.aider\.[^/]+\.ya?ml|jenkinsfile(?:\.[^/]+)?"
    r"|(?:site|user)customize\.[^/]+|(?:jupyter|ipython)(?:_[a-z]+)?_config\.(?:py|json)"
).fullmatch
"""Matches the names that have many variants."""

_PROTECTED_PAIRS_OF = {
    ".config": "aerc alacritty autostart awesome bash bspwm code code-server conda containers cursor direnv doom "
    "elvish emacs environment.d fish foot gdb gh ghostty git helix hg home-manager hypr i3 jetbrains jj kak kitty "
    "lazygit lf lldb lvim micro mise mutt neomutt nix nixpkgs npm nushell nvim opencode openbox pip plasma-workspace "
    "pnpm powershell pypoetry qtile ranger ripgrep starship.toml sublime-text sway sxhkd systemd tig tmux "
    "user-tmpfiles.d uv vifm vim vscodium waybar wezterm xmonad xonsh yarn yazi zed zellij zsh",
    ".local": "bin",
    ".local/share": "applications bash-completion dbus-1 fish gnome-shell kservices5 kservices6 nautilus nemo nvim "
    "systemd zsh",
    ".asdf": "plugins shims",
    ".bun": "bin",
    ".cargo": "bin config config.toml credentials credentials.toml env",
    ".deno": "bin",
    ".docker": "cli-plugins config.json",
    ".gem": "credentials",
    ".julia": "config",
    ".krew": "bin",
    ".npm-global": "bin",
    ".vnc": "config xstartup",
    ".volta": "bin",
    ".yarn": "plugins releases sdks",
    "mise": "config.toml config.local.toml conf.d",
}
_PROTECTED_PAIRS: Final = frozenset(
    (first, second) for first, names in _PROTECTED_PAIRS_OF.items() for second in names.split()
)
"""The same for two names in a row, of which the first may be two."""
_FIRST_OF_PAIRS: Final = frozenset(first.partition("/")[0] for first in _PROTECTED_PAIRS_OF)
_SECOND_OF_PAIRS: Final = frozenset(second for _, second in _PROTECTED_PAIRS)

_PROGRAM_FOLDERS: Final = frozenset({(".venv", "bin"), ("venv", "bin"), ("node_modules", ".bin")})
HOLDERS: Final = _FIRST_OF_PAIRS | {first for first, _ in _PROGRAM_FOLDERS}
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
MAX_NAME: Final = 255
_SETTLING: Final = frozenset({".git", ".makai"})


def is_protected(relative_path: str) -> bool:
    """Whether a write to this path needs a person's consent in every mode but `never_ask`."""
    parts = tuple(_folded(part) for part in relative_path.split("/") if part not in ("", "."))
    if not parts:
        return False
    triples = zip(parts, parts[1:], parts[2:], strict=False)
    pairs = {*itertools.pairwise(parts), *((f"{first}/{second}", third) for first, second, third in triples)}
    return (
        not PROTECTED_FOLDERS.isdisjoint(parts)
        or _is_listed(parts[-1])
        or not _PROTECTED_PAIRS.isdisjoint(pairs)
        or not _PROGRAM_FOLDERS.isdisjoint(pairs)
        or parts[-1] in _REPOSITORY_MARKS
    )


def is_guarded(folder: str, name: str) -> bool:
    """Whether commands find `name` in a folder, of which the last two names count, read-only, and cannot leave a new
    one there."""
    folded = _folded(name)
    if folded in PROTECTED_FOLDERS or name == BARE_REPOSITORY_MARK:
        return True
    if _is_listed(folded):
        return folded not in FREE_FOR_COMMANDS
    return is_guarded_pair(folder, name)


def is_guarded_pair(folder: str, name: str) -> bool:
    """Whether `name` is guarded because of the folder it is in, such as `.cargo/config.toml`."""
    folded = _folded(name)
    if folded not in _SECOND_OF_PAIRS:
        return False
    last_two = [_folded(part) for part in folder.split("/")[-2:]]
    return not _PROTECTED_PAIRS.isdisjoint({(last_two[-1], folded), ("/".join(last_two), folded)})


def is_holder(name: str) -> bool:
    """Whether a folder of this name holds files that are guarded because they are in it."""
    return _folded(name) in _FIRST_OF_PAIRS


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
    if len(name) > MAX_NAME:
        return name  # no file has such a name, and to normalize many marks in a row takes long
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
