"""Random shell commands, and what a real bash does with them.

`commands(count, seed)` builds texts from a grammar of operators, quotes, expansions, redirections, here-documents and
comments. `ran_by_bash` gives each one to `bash -c` in an empty folder, in which no program exists and every builtin is
disabled: bash then hands the words of each command it would run to `command_not_found_handle`, which writes them down.
So any program is noticed, whatever its name, builtins too, and none is run. Where bubblewrap works, the machine is
read-only to all of it.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from makai.tools.shell_policy.policy import decide
from makai.tools.shell_policy.syntax import plain_commands

ALLOW = ["git status", "git log:*", "git diff:*", "ls:*", "cat:*", "echo:*", "rg:*", "npm test"]
DENY = ["curl:*", "rm:*", "git push:*"]

LISTED = ["git status", "git log", "git diff", "ls", "cat", "echo", "rg", "npm test"]
UNLISTED = [
    "touch", "make", "npm t", "git commit", "git stash", "sh -c", "eval", "cd", "exec", "command", "builtin echo",
    "printf", "test -f", "export", "alias", "source", ".", "true", "curl", "rm", "git push", "env", "xargs", "time",
]  # fmt: skip
WORDS = [
    "a", "src", "-la", "--stat", "-3", "HEAD~1", "HEAD@{1}", "a=b", "x.txt", "./a/b", "100%", "a,b", "--", "-", "+x",
    "^a",
    "a#b", "!", "a!b", "]", "{}", "{a}", "}", "a:b", "--a=b", "file.py", "é", "naïve", "1", "@", ":", "a..b", "%1",
    "~a", "=x",
]  # fmt: skip
HOSTILE = [
    "$x", "${x}", "$HOME", "$(touch x)", "`touch x`", "<(touch x)", "$((1))", "$[1]", "*", "?", "[a]", "{a,b}",
    "{1..3}",
    "~", "~/x", "a=~", "$'a'", '$"a"', "${x:=a}", "${x:-$(touch x)}", '"$x"', '"$(touch x)"', '"`touch x`"', "a{b,c}",
    "\\\n", "#", "# c", "$", '"$"', "@(a|b)", "!(a)", "${a[$(touch x)]}", "&", "(", ")", "$@", "\\", "'", '"', "`",
    "\r", "\t", "\x0b", "\u00a0", "\u2028", "\u200b", "\x01", "\x7f", "\x1b", "｜", "；", "“a”", "\u0085", "–la",
]  # fmt: skip
REDIRECTIONS = [
    "> f", ">> f", "2> f", ">| f", "&> f", "< f", "<> f", ">& f", "2>&1", "<<< a", "{fd}> f", ">f b", "3>f", ">&2",
    ">/dev/null", "2> /dev/null",
]  # fmt: skip
OPERATORS = [" && ", " || ", "; ", " | ", "\n", "&&", "||", ";", "|", " ;\n", " &&\n", " |\n"]
HOSTILE_OPERATORS = [" & ", " |& ", ";; ", "&", "\r\n", " ;& ", "; ;", "\n|", "&&&", "|||", "\\\n", "\n\n", "\v"]
DELIMITERS = ["EOF", "'EOF'", "-EOF", '"E"OF']
BODIES = ["a", "a; touch x", "$(touch x)", "touch x", "'", '"', "EOF2", "`touch x`", "\\$x"]
WRAPPED = ["( %s )", "{ %s; }", "! %s", "if %s; then ls; fi", "for i in a; do %s; done", "while %s; do break; done"]
WRAPPED += [
    "case a in a) %s;; esac", "f() { %s; }; f", "X=1 %s", "coproc %s", "time %s", "$(%s)", "echo $(%s)",
    "[[ a ]] && %s",
    "%s # end", "# %s", "%s\n# c\nls", "cat <<EOF\n%s\nEOF", "cat <<'EOF'\n%s\nEOF\nls", "PATH=. %s", "a=(%s)",
    "((1)) ; %s",
    "echo 'a\n%s'", 'echo "a\n%s"', "ls; %s", "select i in a; do %s; break; done", "until %s; do break; done", "%s %s",
]  # fmt: skip

# `break` stays enabled, or loops would not end. Each text has its own log and folder for a while: what it started in
# the background may write late.
_SETUP = """
command_not_found_handle() { /usr/bin/printf '%s\\0' "$#" "$@" >> "$FUZZ_LOG"; [[ $FUZZ_STATUS == 0 ]]; }
enable -n $FUZZ_BUILTINS
"""
_DRIVER = """
shopt -s nullglob dotglob
FUZZ_BUILTINS=$(compgen -b | grep -vx break | tr '\\n' ' ')
turn=0
while IFS= read -r -d '' FUZZ_STATUS && IFS= read -r -d '' command; do
    ((turn = (turn + 1) % 100))
    FUZZ_LOG=$FUZZ_LOGS/$turn
    : > "$FUZZ_LOG"
    cd "$FUZZ_FOLDERS/$turn" || exit
    late=(*)
    if ((${#late[@]})); then rm -rf -- ./*; fi
    env -i FUZZ_BUILTINS="$FUZZ_BUILTINS" FUZZ_LOG="$FUZZ_LOG" FUZZ_STATUS="$FUZZ_STATUS" BASH_ENV="$FUZZ_SETUP" \\
        LC_ALL=C.UTF-8 PATH=/nonexistent HOME=/nonexistent /usr/bin/timeout 5 /bin/bash -c "$command" \\
        < /dev/null > /dev/null 2> /dev/null
    created=(*)
    printf 'ran\\0%s\\0' "${#created[@]}"
    cat "$FUZZ_LOG"
    printf 'end\\0'
done
"""


class Differences(msgspec.Struct, frozen=True):
    """Where a decision and bash disagree, with the text and what bash did."""

    wrongly_allowed: list[tuple[str, Ran]]
    """Allowed, but bash ran something that no rule lists or that was read otherwise, or a file was created."""
    denied_commands_missed: list[tuple[str, Ran]]
    """bash ran a denied program, and the decision was not `deny`. Then a person is asked."""
    allowed: int
    denied: int


class Ran(msgspec.Struct, frozen=True):
    commands: tuple[tuple[str, ...], ...]
    files_created: int


def differences(texts: Sequence[str], folder: Path, *, seed: int, timeout_s: float) -> Differences:
    """Decide every text; give bash those that are allowed and, in a sandbox, those that may name a denied program."""
    decisions = {text: decide(text, ALLOW, DENY) for text in texts}
    in_sandbox = sandboxed()
    tried = [text for text in texts if decisions[text] == "allow" or (in_sandbox and _may_name_denied(text))]
    ran = dict(zip(tried, ran_by_bash(tried, folder, seed=seed, timeout_s=timeout_s), strict=True))
    return Differences(
        wrongly_allowed=[(t, ran[t]) for t in tried if decisions[t] == "allow" and not _is_as_read(t, ran[t])],
        denied_commands_missed=[(t, ran[t]) for t in tried if decisions[t] != "deny" and _ran_denied(ran[t])],
        allowed=sum(decision == "allow" for decision in decisions.values()),
        denied=sum(decision == "deny" for decision in decisions.values()),
    )


def _is_as_read(text: str, ran: Ran) -> bool:
    """Whether bash ran nothing but commands that we read in the text and that the policy lists."""
    read = Counter(tuple(word.value for word in words) for words in plain_commands(text) or [])
    return not ran.files_created and Counter(ran.commands) <= read and all(map(_is_listed, ran.commands))


def _is_listed(words: tuple[str, ...]) -> bool:
    for rule in ALLOW:
        prefix = tuple(rule.removesuffix(":*").split())
        if words == prefix or (rule.endswith(":*") and words[: len(prefix)] == prefix):
            return True
    return False


def _may_name_denied(text: str) -> bool:
    bare = re.sub(r"['\"\\\n]", "", text)
    return any(name in bare for name in ("curl", "rm", "push"))


def _ran_denied(ran: Ran) -> bool:
    return any(words[0] in ("curl", "rm") or words[:2] == ("git", "push") for words in ran.commands)


def commands(count: int, seed: int) -> Iterator[str]:
    """`count` different texts, about half of them plain."""
    chance = random.Random(seed)
    known: set[str] = set()
    while len(known) < count:
        text = _text(chance, hostility=chance.choice((0.0, 0.03, 0.1, 0.25)))
        if text not in known:
            known.add(text)
            yield text


def _text(chance: random.Random, hostility: float) -> str:
    text = _command(chance, hostility)
    while chance.random() < 0.45:
        text += chance.choice(HOSTILE_OPERATORS if chance.random() < hostility else OPERATORS)
        text += _command(chance, hostility)
    if chance.random() < hostility:
        template = chance.choice(WRAPPED)
        text = template.replace("%s", text)
    if chance.random() < hostility / 2:
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chance.choice(HOSTILE) + text[place:]
    return chance.choice(("", "", "", " ", "\n")) + text + chance.choice(("", "", "", " ", "\n", ";"))


def _command(chance: random.Random, hostility: float) -> str:
    program = chance.choice(UNLISTED if chance.random() < hostility else LISTED)
    if chance.random() < hostility:
        quoted = (f'"{program}"', program[0] + "''" + program[1:])
        program = chance.choice(("\\" + program, *quoted, "/x/" + program, program.upper()))
    parts = [program, *(_argument(chance, hostility) for _ in range(chance.choice((0, 0, 1, 1, 2, 3))))]
    if program in ("git status", "npm test") and chance.random() < 0.8:
        parts = [program]
    if chance.random() < hostility:
        parts.insert(chance.randrange(len(parts) + 1), chance.choice(REDIRECTIONS))
    if chance.random() < hostility / 4:
        parts.append(f"<<{chance.choice(DELIMITERS)}\n{chance.choice(BODIES)}\nEOF\n")
    return chance.choice((" ", " ", " ", "  ")).join(parts)


def _argument(chance: random.Random, hostility: float) -> str:
    return "".join(_piece(chance, hostility) for _ in range(chance.choice((1, 1, 1, 2, 3))))


def _piece(chance: random.Random, hostility: float) -> str:
    if chance.random() < hostility:
        return chance.choice(HOSTILE)
    word = chance.choice(WORDS)
    match chance.randrange(8):
        case 0:
            inner = (word, "a b", "a; b", "a | b", "$x", "`x`", "*", "\\", "# a", "a\nb", "> f", "~", "", '"')
            return f"'{chance.choice(inner)}'"
        case 1:
            in_double = (word, "a b", "a; b", "a && b", "\\$x", "\\`x\\`", "*", "\\\\", "# a", "a\nb", "\\n", "", "'")
            return f'"{chance.choice(in_double)}"'
        case 2:
            return "\\" + chance.choice(" ;|&$\"'\\*?#~<>(){}`!ab")
        case _:
            return word


def shim_command(folder: Path) -> list[str]:
    """How to start the driver: inside bubblewrap where that works."""
    (folder / "logs").mkdir()
    for turn in range(100):
        (folder / "cwd" / str(turn)).mkdir(parents=True)
    (folder / "setup").write_text(_SETUP, encoding="utf-8")
    (folder / "driver").write_text(_DRIVER, encoding="utf-8")
    variables = [
        f"FUZZ_LOGS={folder / 'logs'}",
        f"FUZZ_FOLDERS={folder / 'cwd'}",
        f"FUZZ_SETUP={folder / 'setup'}",
        "PATH=/usr/bin:/bin",
        "LC_ALL=C.UTF-8",
    ]
    driver = ["/usr/bin/env", "-i", *variables, "/bin/bash", "-c", f"ulimit -f 2048 -t 600; . {folder / 'driver'}"]
    if not sandboxed():
        return driver
    return [*_BWRAP, "--bind", str(folder), str(folder), "--chdir", str(folder / "cwd"), *driver]


_BWRAP = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent"]


def sandboxed() -> bool:
    if shutil.which("bwrap") is None:
        return False
    return subprocess.run([*_BWRAP, "true"], capture_output=True, timeout=20, check=False).returncode == 0


def ran_by_bash(texts: Sequence[str], folder: Path, *, seed: int, timeout_s: float) -> list[Ran]:
    """What bash ran for each text. Commands all succeed or all fail, by chance, so that `&&` and `||` go both ways."""
    chance = random.Random(seed)
    fed = b"".join(b"%d\0%s\0" % (chance.choice((0, 0, 1)), text.encode()) for text in texts)
    answer = subprocess.run(
        shim_command(folder), input=fed, capture_output=True, cwd=folder / "cwd", timeout=timeout_s, check=True
    ).stdout
    ran = list(_parsed(iter(answer.decode("utf-8", "surrogateescape").split("\0"))))
    assert len(ran) == len(texts)
    return ran


def _parsed(fields: Iterator[str]) -> Iterator[Ran]:
    for field in fields:
        if field != "ran":
            continue
        files = int(next(fields))
        found: list[tuple[str, ...]] = []
        while (count := next(fields)) != "end":
            found.append(tuple(next(fields) for _ in range(int(count))))
        yield Ran(tuple(found), files)
