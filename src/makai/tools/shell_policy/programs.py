"""Programs that run other programs, and how a search for denied commands finds those.

The tables are data on purpose: a program is added by a line. What is harmless is in `harmless_options` and
`harmless_subcommands`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELLS: Final = _names("sh bash dash ash zsh ksh mksh rbash fish csh tcsh pwsh yash osh posh xonsh elvish nu")
INTERPRETERS: Final = _names(
    "python pypy perl ruby node nodejs deno bun php lua luajit awk gawk mawk nawk sed tclsh expect Rscript R osascript "
    "vi vim nvim ex ed emacs gdb lldb sqlite3 mysql mariadb psql jshell groovy scala julia ghci irb swift make"
)
"""Programs whose arguments may be a program."""
READS_ITS_PROGRAM: Final = _names("python pypy perl ruby node nodejs deno bun php lua luajit tclsh Rscript R julia")
"""Interpreters that run their standard input when no file is named."""
WRAPPERS: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        _names(
            "env nohup nice ionice stdbuf setsid time command builtin exec sudo doas pkexec su runuser sg xargs "
            "parallel sem watch entr strace ltrace valgrind gdb lldb expect busybox toybox unshare nsenter bwrap "
            "firejail setpriv arch linux32 linux64 script coproc rlwrap unbuffer winpty systemd-run "
            "start-stop-daemon hyperfine numactl proot fakeroot torsocks proxychains proxychains4 eatmydata "
            "caffeinate catchsegv gtime tsp nq at batch tini dumb-init gosu cgexec npx pnpx bunx uvx pipx dotenv "
            "direnv dotenvx env-cmd cross-env cross-env-shell concurrently nodemon xvfb-run dbus-run-session ssh-agent "
            "prlimit choom softlimit chpst nsjail systemd-nspawn runcon capsh watchexec dockerize onchange wsl"
        ),
        0,
    ),
    **dict.fromkeys(
        _names("timeout flock chroot taskset chrt setarch ssh mosh rsh trickle faketime setuidgid perf"), 1
    ),
    **dict.fromkeys(_names("envdir envuidgid s6-setuidgid"), 1),
    **dict.fromkeys(_names("tmux screen"), 3),
}
"""Programs whose arguments are a command, and how many operands stand before it."""
LAUNCHERS: Final[Mapping[str, int]] = {
    **WRAPPERS,
    **dict.fromkeys(_names("npm pnpm yarn poetry pdm hatch rye pipenv bundle conda mamba micromamba mise asdf"), 1),
    **dict.fromkeys(_names("pyenv rbenv nodenv volta fnm nvm opam stack cabal nix devbox lxc incus apptainer"), 1),
    **dict.fromkeys(_names("guix bun toolbox distrobox multipass honcho foreman heroku op doppler vagrant"), 1),
    **dict.fromkeys(_names("uv limactl aws-vault chamber sops docker-compose podman-compose"), 2),
    **dict.fromkeys(_names("docker podman nerdctl kubectl"), 3),
}
"""Wrappers, and programs that also do much else: `npm:*` is a fair rule, but `npm exec rm` is an rm."""
PACKAGE_MANAGERS: Final = _names(
    "pip pip3 uv poetry pdm rye pipenv conda mamba micromamba gem bundle composer brew opam luarocks"
)
"""Programs that run code of what they install, without a list of their options."""
RUNS_ITS_TEXT: Final = frozenset({"eval", "alias", "trap", "complete", "compgen", "bind", "fc", "source", "."})
"""Builtins that take shell text as arguments, at once or for later."""
CHANGES_THE_SHELL: Final = RUNS_ITS_TEXT | _names(
    "export declare typeset local readonly unset let set shopt enable hash read mapfile readarray getopts exec "
    "builtin command umask ulimit unalias shift wait disown fg bg"
)
"""Builtins that give later words of the same command another meaning; no `:*` covers them."""
MOVES: Final = frozenset({"cd", "pushd", "popd"})
EXEC_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "git": (
        *("-x", "--exec", "foreach", "run", "-c", "--config", "-O", "--open-files-in-pager", "--upload-pack"),
        *("--receive-pack", "--extcmd", "--tree-filter", "--index-filter", "--msg-filter", "--env-filter"),
        *("--commit-filter", "--parent-filter", "--tag-name-filter", "--sendmail-cmd", "--to-cmd", "--cc-cmd"),
        *("--access-hook", "--httpd", "merge-index"),
    ),
    "rg": ("--pre", "--hostname-bin"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "tar": (
        *("--to-command", "--checkpoint-action", "-I", "--use-compress-program", "-F", "--info-script"),
        *("--new-volume-script", "--rsh-command", "--rmt-command"),
    ),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "man": ("-P", "--pager"),
    "go": ("-exec", "-toolexec"),
    "fzf": ("--preview", "--bind"),
    "zip": ("-TT", "--unzip-command"),
    "cpio": ("--rsh-command",),
    "ssh": ("-o",),
    "scp": ("-S", "-o"),
    "sftp": ("-S", "-o"),
    "wget": ("--use-askpass",),
    "nc": ("-e", "-c"),
    "ncat": ("-e", "-c", "--exec", "--sh-exec"),
    "dpkg": ("--pre-invoke", "--post-invoke"),
    "jobs": ("-x",),
    "mapfile": ("-C",),
    "readarray": ("-C",),
    "hash": ("-p",),
}
"""Options of programs that are no wrappers, after which a command stands."""
GIT_SETTING_COMMANDS: Final = re.compile(
    r"(?:alias|pager)\..+|(?:\w*tool|browser|man)\..+\.path|.+\.(?:\w*pager|editor|\w*command|\w*cmd|external|askpass|"
    r"fsmonitor|gitproxy|helper|textconv|clean|smudge|process|driver|program|difffilter|packobjectshook|uploadpack|"
    r"receivepack|tunnel|smtpserver)",
    re.IGNORECASE,
)
"""Keys of git's configuration whose value git runs."""
ENVIRONMENT_COMMANDS: Final = re.compile(
    r"(GIT_\w+|[A-Z]*PAGER|\w*EDITOR|\w*ASKPASS|VISUAL|BROWSER|SHELL|PROMPT_COMMAND|PS[0-4]|BASH_ENV|ENV|LESS(OPEN|CLOSE)|RSYNC_RSH)"
)
"""Variables whose value other programs run."""
PRINTS_ITS_ARGUMENTS: Final = frozenset({"echo", "printf", "which", "type", "command"})

_TAR_LETTERS: Final = re.compile(r"[A-Za-z]+")
_TAR_LETTERS_WITH_VALUE: Final = frozenset("bCfFgHIKLNTVX")
NUMBER: Final = re.compile(r"[\d.]+[smhd]?|\d[\d,-]*")
_VERSION: Final = re.compile(r"(?<=[A-Za-z])[\d.]+$")


def program_name(word: str) -> str:
    """`/usr/bin/python3.11` is python."""
    name = word.rstrip("/").rpartition("/")[2] or word
    unversioned = _VERSION.sub("", name)
    return unversioned if unversioned in INTERPRETERS else name


def is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-"


def value_of(word: str, options: Sequence[str]) -> str | None:
    """What is attached to one of these options, "" when it is the next word, None when it is no such option. Programs
    take a beginning of a long option for it, and a letter also behind others: `rsync -ae ssh`."""
    option, _, value = word.partition("=")
    if option in options:
        return value
    if word.startswith("--"):
        return value if any(len(option) > 4 and known.startswith(option) for known in options) else None
    letters = {known[1] for known in options if len(known) == 2 and known[0] == "-"}
    place = next((index for index, letter in enumerate(word) if index and letter in letters), None)
    return word[place + 1 :].removeprefix("=") if is_option(word) and place is not None else None


def with_dashes(words: Sequence[str]) -> Sequence[str]:
    """The old form of tar's options with values in the usual one: `tar cIf zstd a b` is `tar -I zstd -f a b`."""
    if not _TAR_LETTERS.fullmatch("".join(words[1:2])):
        return words
    letters = [letter for letter in words[1] if letter in _TAR_LETTERS_WITH_VALUE]
    pairs = [word for letter, value in zip(letters, words[2:], strict=False) for word in (f"-{letter}", value)]
    return [words[0], *pairs, *words[2 + len(letters) :]]


def inner_commands(words: Sequence[str], operands: int) -> list[Sequence[str]]:
    """Where the command of a wrapper may begin: too often rather than too rarely, as options may take values."""
    found: list[Sequence[str]] = []
    may_be_value = False
    for index, word in enumerate(words[1:], 1):
        if is_option(word):
            may_be_value = "=" not in word and word != "--"
        elif "=" in word.partition("/")[0]:  # VAR=value, also a command for the few programs that contain `=`
            continue
        else:
            found.append(words[index:])
            if may_be_value:
                may_be_value = False
            elif operands:
                operands -= 1
            elif not NUMBER.fullmatch(word):
                break
    return found
