"""What is known about programs that shell commands name.

The tables are data on purpose: a program is added by a line. A program that is not listed is taken as it is, because
a rule `name:*` allows that program; listed are those that people take for harmless and that are not
(GTFOBins; CVE-2025-54795, CVE-2025-64755, CVE-2025-66032).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Danger(msgspec.Struct, frozen=True):
    """Arguments by which a program runs another one, writes a file or takes orders from one."""

    long: tuple[str, ...] = ()
    """Names after `--`. Abbreviations count too: getopt_long and git accept any that is unique."""
    short: str = ""
    """Letters after one `-`, alone or in a cluster."""
    takes_value: str = ""
    """Harmless letters whose value may follow in the same word: what comes after them is no option."""
    words: tuple[str, ...] = ()
    """Whole words, such as the actions of find."""
    text: str = ""
    """A pattern that makes any argument suspicious."""
    operands: int | None = None
    """More operands than this mean that one of them is written to."""


_EVAL = "eval print require import loader experimental-loader"
DANGERS: Final[Mapping[str, Danger]] = {
    "ack": Danger(long=("pager", "ackrc", "output")),
    "ag": Danger(long=("pager", "search-zip"), short="z", takes_value="ABCGgmp"),
    "bat": Danger(long=("pager",)),
    "bun": Danger(long=tuple(_EVAL.split()), short="epr"),
    "curl": Danger(
        long=(
            *("output", "output-dir", "remote-name", "remote-name-all", "config", "upload-file", "dump-header"),
            *("cookie-jar", "trace", "trace-ascii", "trace-config", "stderr", "etag-save", "hsts", "alt-svc"),
            *("libcurl", "data", "form", "json", "request", "proxy", "netrc-file", "unix-socket", "engine"),
        ),
        short="oOJKTDcdFXxE",
        takes_value="AHmuwbe",
    ),
    "date": Danger(long=("set",), short="s", takes_value="dfr"),
    "deno": Danger(long=tuple(_EVAL.split()), words=("eval", "repl")),
    "diff3": Danger(long=("diff-program",)),
    "fd": Danger(long=("exec", "exec-batch"), short="xX", takes_value="deEStoc"),
    "fdfind": Danger(long=("exec", "exec-batch"), short="xX", takes_value="deEStoc"),
    "file": Danger(long=("compile",), short="C", takes_value="efFmP"),
    "find": Danger(words=("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")),
    "fzf": Danger(long=("bind", "preview", "listen", "become")),
    "git": Danger(
        long=(
            *("output", "output-directory", "ext-diff", "textconv", "show-signature", "open-files-in-pager"),
            *("no-index", "help", "exec", "upload-pack", "receive-pack", "upload-archive", "extcmd", "tool"),
            *("config-env", "exec-path", "git-dir", "work-tree", "paginate", "template", "reference"),
            "separate-git-dir",
        ),
        short="O",
        takes_value="SGLUlnCMB",
        text=r"%G|^ext::",  # %G in a format runs gpg.program; ext:: is a transport that runs a command
    ),
    "go": Danger(long=("exec", "toolexec"), words=("-exec", "-toolexec", "-overlay", "-modfile", "run", "generate")),
    "hostname": Danger(long=("file",), short="Fb", operands=0),
    "jq": Danger(long=("from-file",), short="fL"),
    "less": Danger(long=("log-file", "LOG-FILE", "lesskey-file", "lesskey-src"), short="oOkT", text=r"^\+"),
    "lua": Danger(short="eli"),
    "man": Danger(long=("pager", "html", "preprocessor", "troff-device", "gxditview"), short="PHpTX"),
    "node": Danger(long=tuple(_EVAL.split()), short="epr"),
    "npm": Danger(
        long=("prefix", "script-shell", "globalconfig", "userconfig", "node-options"), words=("exec", "x", "explore")
    ),
    "perl": Danger(short="eEiMmIS"),
    "php": Danger(short="rBREd", long=("run", "process-begin", "process-code", "process-end", "define")),
    "printf": Danger(short="v", text=r"%[^%A-Za-z]*n"),  # bash: -v and %n write variables, whose subscripts are run
    "python": Danger(short="ci", takes_value="mWX"),
    "rg": Danger(long=("pre", "pre-glob", "search-zip", "hostname-bin"), short="z", takes_value="efgmABCEjMrtTd"),
    "rsync": Danger(long=("rsh", "rsync-path", "log-file", "remove-source-files", "delete"), short="e"),
    "ruby": Danger(short="eirIES"),
    "scp": Danger(short="SoFJ"),
    "sdiff": Danger(long=("diff-program", "output"), short="o"),
    "sort": Danger(
        long=("output", "compress-program", "temporary-directory", "files0-from"), short="oT", takes_value="kSt"
    ),
    "split": Danger(long=("filter",)),
    "sqlite3": Danger(words=("-cmd", "-init"), text=r"^\s*\.|load_extension|writefile|edit\(|ATTACH|attach"),
    "ssh": Danger(short="oFSIJwWLRDE"),
    "tar": Danger(
        long=(
            *("to-command", "checkpoint-action", "use-compress-program", "rsh-command", "rmt-command"),
            *("info-script", "new-volume-script", "index-file", "volno-file", "absolute-names", "xform", "transform"),
        ),
        short="IFPg",
        takes_value="fCbTXHVNL",
    ),
    "test": Danger(words=("-v", "-R")),  # bash: the name's subscript is evaluated, with its substitutions
    "tree": Danger(short="oR", takes_value="LPITH"),
    "unzip": Danger(short="d"),
    "uniq": Danger(operands=1),
    "wget": Danger(
        long=("output-document", "output-file", "execute", "use-askpass", "config", "post-file"), short="Ooea"
    ),
    "xxd": Danger(short="r", operands=1),
    "yq": Danger(long=("inplace", "in-place", "from-file", "split-exp"), short="ifs"),
    "zip": Danger(long=("unzip-command",), short="T"),
}
ALIASES: Final = {"gtar": "tar", "bsdtar": "tar", "ripgrep": "rg", "nodejs": "node", "pypy": "python"}

SHELLS: Final = _names("sh bash dash ash zsh ksh mksh rbash fish csh tcsh pwsh")
INTERPRETERS: Final = _names(
    "python pypy perl ruby node nodejs deno bun php lua luajit awk gawk mawk nawk sed tclsh expect Rscript R osascript "
    "vi vim nvim ex ed emacs gdb lldb sqlite3 jshell groovy scala julia ghci irb swift make"
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
            "start-stop-daemon perf hyperfine numactl proot fakeroot torsocks proxychains proxychains4 eatmydata "
            "caffeinate catchsegv gtime tsp nq at batch tini dumb-init gosu cgexec npx pnpx bunx uvx pipx dotenv direnv"
        ),
        0,
    ),
    **dict.fromkeys(_names("timeout flock chroot taskset chrt setarch ssh mosh rsh trickle"), 1),
}
"""Programs whose arguments are a command, and how many operands stand before it."""
LAUNCHERS: Final[Mapping[str, int]] = {
    **WRAPPERS,
    **dict.fromkeys(_names("npm pnpm yarn uv poetry pdm hatch rye bundle conda mise asdf"), 1),
    **dict.fromkeys(_names("docker podman nerdctl kubectl tmux screen"), 3),
}
"""Wrappers, and programs that also do much else: `npm:*` is a fair rule, but `npm exec rm` is an rm."""
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
    "git": ("-x", "--exec", "foreach", "run", "-c", "--tree-filter", "--index-filter", "--upload-pack", "--extcmd"),
    "rg": ("--pre", "--hostname-bin"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "tar": ("--to-command", "--checkpoint-action", "-I", "--use-compress-program"),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "man": ("-P", "--pager"),
    "go": ("-exec", "-toolexec"),
    "fzf": ("--preview", "--bind"),
}
"""Options of programs that are no wrappers, after which a command stands."""
ENVIRONMENT_COMMANDS: Final = re.compile(
    r"(GIT_\w+|[A-Z]*PAGER|EDITOR|VISUAL|BROWSER|SHELL|PROMPT_COMMAND|PS[0-4]|BASH_ENV|ENV|LESS(OPEN|CLOSE)|RSYNC_RSH)"
)
"""Variables whose value other programs run."""
PRINTS_ITS_ARGUMENTS: Final = frozenset({"echo", "printf", "which", "type", "command"})

_GIT_GLOBAL: Final = frozenset(
    {"--no-pager", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects", "--version"}
)
_SED_ADDRESS: Final = r"(?:\d+|\$|/[^/\\\n]*/)"
_SED_HALF: Final = r"(?:(?!\1)[^\\\n]|\\[^\n])*\1"
_SED_COMMAND: Final = re.compile(
    rf"(?:{_SED_ADDRESS}(?:,\+?{_SED_ADDRESS})?)?(?:[pdq=]|s([/|,:@]){_SED_HALF}{_SED_HALF}[gIip\d]*)"
)
_NUMBER: Final = re.compile(r"[\d.]+[smhd]?|\d[\d,-]*")
_VERSION: Final = re.compile(r"(?<=[A-Za-z])[\d.]+$")


def program_name(word: str) -> str:
    """`/usr/bin/python3.11` is python."""
    name = word.rstrip("/").rpartition("/")[2] or word
    unversioned = _VERSION.sub("", name)
    return unversioned if unversioned in INTERPRETERS else name


def is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-"


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
            elif not _NUMBER.fullmatch(word):
                break
    return found


def needs_asking(words: Sequence[str], fixed: int) -> bool:
    """Whether what `:*` leaves open, the words after the first `fixed` ones, could run or write something."""
    name = program_name(words[0])
    if name in CHANGES_THE_SHELL:
        return True
    if name in WRAPPERS or name in SHELLS:
        if not _names_a_program(words[1:fixed]):
            return True
        if name in ("xargs", "parallel"):  # these add arguments that are not in the command
            return any(program_name(word) in DANGERS or program_name(word) in _SPECIAL for word in words[1:fixed])
        return any(_is_dangerous(words[start:], max(fixed - start, 1)) for start in range(1, fixed))
    return _reads_its_program(name, words) or _is_dangerous(words, fixed)


def _reads_its_program(name: str, words: Sequence[str]) -> bool:
    """`echo text | python` runs text."""
    operands = [word for word in words[1:] if not is_option(word)]
    asks_for_nothing = set(words[1:]) & {"--version", "--help", "-V", "-h"} and len(words) == 2
    return (
        name in READS_ITS_PROGRAM and not asks_for_nothing and (not operands or operands[0].startswith(("-", "/dev/")))
    )


def _names_a_program(fixed: Sequence[str]) -> bool:
    """A rule for `timeout 5 pytest:*` says what is run, one for `timeout 5:*` does not."""
    return any(not is_option(word) and not _NUMBER.fullmatch(word) for word in fixed)


def _is_dangerous(words: Sequence[str], fixed: int) -> bool:
    name = program_name(words[0])
    name = ALIASES.get(name, name)
    arguments = words[fixed:]
    if (special := _SPECIAL.get(name)) and special(arguments, fixed):
        return True
    danger = DANGERS.get(name)
    if danger is None:
        return False
    if danger.operands is not None and sum(not is_option(word) for word in arguments) > danger.operands:
        return True
    # `--` is not trusted to end the options: it may be the value of the option before it.
    return any(_is_dangerous_word(danger, word) for word in arguments)


def _is_dangerous_word(danger: Danger, word: str) -> bool:
    if word in danger.words or (danger.text and re.search(danger.text, word)):
        return True
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return bool(name) and any(option.startswith(name) for option in danger.long)
    if not is_option(word):
        return False
    for letter in word[1:]:
        if letter in danger.short:
            return True
        if letter in danger.takes_value:
            return False
    return False


def _git(arguments: Sequence[str], fixed: int) -> bool:
    """Options before the subcommand can name any program (`-c core.pager=`) or another repository (`-C`)."""
    if fixed > 1:
        return False
    leading = next((index for index, word in enumerate(arguments) if not is_option(word)), len(arguments))
    return any(word not in _GIT_GLOBAL for word in arguments[:leading])


def _sed(arguments: Sequence[str], fixed: int) -> bool:
    """sed's `e`, `w` and `s///e` run and write: only scripts of one known command pass, and only harmless options."""
    if fixed > 1 and not arguments:
        return False
    operands = [word for word in arguments if not is_option(word)]
    options = [word for word in arguments if is_option(word)]
    harmless = {"-n", "-E", "-r", "-u", "-z", "-nE", "-nr", "-En", "--quiet", "--silent", "--regexp-extended"}
    return any(word not in harmless for word in options) or not operands or not _SED_COMMAND.fullmatch(operands[0])


def _awk(arguments: Sequence[str], _fixed: int) -> bool:
    """awk programs run commands by system(), pipes and getline, and write by `>`."""
    options = [word for word in arguments if is_option(word)]
    return any(re.search(r"system|getline|[|>@]", word) for word in arguments) or any(
        word[:2] not in ("-F", "-v") for word in options
    )


def _tar(arguments: Sequence[str], fixed: int) -> bool:
    """The first word of tar is a cluster of options even without its dash."""
    return fixed == 1 and bool(arguments) and _is_dangerous_word(DANGERS["tar"], f"-{arguments[0].lstrip('-')}")


_SPECIAL: Final[Mapping[str, Callable[[Sequence[str], int], bool]]] = {
    **{"git": _git, "tar": _tar},
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("awk", "gawk", "nawk", "mawk"), _awk),
}
