"""What runs unasked opens nothing outside of the session's folders and nothing that may not be read.

The folder is hostile: links lead outside, also one that is named `-`, a file that may not be read has a second name,
and names look like options and response files. Real programs run there, watched by strace.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.machine import RecordMeasure
from support.profiles import FAULTS

from makai.tools.permissions.looking import is_allowed as is_allowed_as_text
from makai.tools.permissions.looking import leads_inside, looked_at, looking_environment
from makai.tools.permissions.rules import parse_rules, unreadable_paths
from makai.tools.shell_policy.harmless_options import HARMLESS

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: what is opened was NOT seen")

BATCH = 400
ANYWHERE, HERE = "Read(.env)", "Read(/.env)"
STRACE = ("strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", "trace=open,openat,openat2")
_OPENED = re.compile(r"= \d+<([^>]*)>$", re.MULTILINE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`sub` is where the traps are; `src` has nothing but its own files."""
    folder, outside = Path(os.path.realpath(tmp_path)) / "root", Path(os.path.realpath(tmp_path)) / "outside"
    for path in (folder / "src", folder / "sub/d1", folder / "sub/d2", folder / "secret", outside / "deep"):
        path.mkdir(parents=True)
    for path in (outside / "file", outside / "deep/file"):
        path.write_text("FORBIDDEN outside\n")
    for path in (folder / ".env", folder / "secret/key"):
        path.write_text("FORBIDDEN denied\n")
    for path in (folder / "src/a", folder / "src/b", folder / "sub/d2/x", folder / "sub/d2/é", folder / "sub/zz"):
        path.write_text("plain\n")
    (folder / "FORBIDDEN").touch()
    (folder / "sub/@names").write_text(f"{outside}/file\n")
    (folder / "sub/patterns").write_text("FORBIDDEN\n")
    (folder / "sub/up").symlink_to("..")
    (folder / "sub/out").symlink_to(outside)
    for name in ("-", "d1/x", "d1/é"):
        (folder / "sub" / name).symlink_to(outside / "file")
    os.link(folder / ".env", folder / "sub/hard")
    return folder


def is_unasked(text: str, root: Path, directory: Path, deny: Sequence[str]) -> bool:
    unreadable = unreadable_paths(parse_rules(workspace=str(root), deny=deny))
    looks = looked_at(text, str(directory))
    roots = (str(root),)
    return looks is not None and is_allowed_as_text(looks, roots, unreadable) and leads_inside(looks, roots, unreadable)


def run(texts: Sequence[str], root: Path, directory: Path, trace: Sequence[str] = ()) -> str:
    script = root.parent / "script"
    script.write_text("\n".join(["ulimit -t 20", *(f"({text}\n)" for text in texts), ""]))
    environ = looking_environment({**os.environ, "LC_ALL": "C"}, [str(root)])
    done = subprocess.run(
        [*trace, "bash", "--noprofile", "--norc", str(script)],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.stdout.decode(errors="replace")


def opened(texts: Sequence[str], root: Path, directory: Path) -> set[str]:
    """The real paths of all that the commands opened."""
    trace = root.parent / "trace"
    run(texts, root, directory, [*STRACE, "-o", str(trace)])
    return set(_OPENED.findall(trace.read_text(errors="replace")))


LEAKS = [
    # A program that walks takes the current folder when no operand is there, whatever else it reads.
    (".", "true | grep -r FORBIDDEN", ANYWHERE),
    (".", "echo x | egrep -rn FORBIDDEN", ANYWHERE),
    (".", "grep -r FORBIDDEN < src/a", HERE),
    (".", "grep -r -f sub/patterns", HERE),
    (".", "grep -r FORBIDDEN --exclude-from=FORBIDDEN", HERE),
    (".", "rg -uu --file=sub/patterns", HERE),
    # Another name of a file that may not be read, or of a folder above it.
    (".", "grep -r FORBIDDEN sub", HERE),
    (".", "rg FORBIDDEN sub", HERE),
    (".", "grep -r FORBIDDEN s*", HERE),
    (".", "grep -r FORBIDDEN s*", "Read(/secret/key)"),
    (".", "grep -r FORBIDDEN sub/up", "Read(/secret/key)"),
    (".", "rg FORBIDDEN sub/u?", "Read(/secret/key)"),
    # Links within folders, which some programs follow.
    ("sub", "diff d1 d2", ""),
    ("sub", "diff d2/x d1", ""),
    ("sub", "diff d?", ""),
    ("sub", "sdiff d2/x d1", ""),
    # A file whose name is a dash.
    ("sub", "cat < -", ""),
    ("sub", "tr a a < -", ""),
    ("sub", "column -", ""),
    ("sub", "hexdump -C -", ""),
    # What the shell makes of a pattern depends on the locale and on its version.
    ("sub", "cat d1/??", ""),
]


@pytest.mark.parametrize(("directory", "text", "deny"), LEAKS)
def test_a_command_that_would_show_what_is_forbidden_is_asked_about(
    root: Path, directory: str, text: str, deny: str
) -> None:
    """Each one shows it when it runs: what does not, proves nothing."""
    if not all(shutil.which(name) for name in re.findall(r"\b(?:rg|hexdump|column)\b", text)):
        pytest.skip(f"{text}: the program is not installed")
    shown = run([text], root, root / directory)
    assert re.search(r"FORBIDDEN(?:outsid|denied)", re.sub(r"\W", "", shown))
    assert not is_unasked(text, root, root / directory, [deny] if deny else [])


@pytest.mark.parametrize("text", ["ls -lL sub", "ls -L s*", "ls -RL sub", "ls -R --dereference sub", "test -s sub/-"])
def test_what_tells_about_the_targets_of_links_outside_is_asked_about(root: Path, text: str) -> None:
    assert not is_unasked(text, root, root, [])


@pytest.mark.parametrize(
    "text",
    [
        *("grep -rn plain src", "rg plain src", "cat src/*", "wc -l < src/a", "diff src/a src/b", "diff src src"),
        *("ls -lL src", "ls -la", "ls sub", "cat src/a | grep -c plain -", "cat -", "test -f src/a && echo yes"),
        *("find src -newer src/a", "du -sh src", "sort sub/d2/*", "ls -R src"),
    ],
)
def test_plain_looking_stays_unasked_beside_the_traps(root: Path, text: str) -> None:
    assert is_unasked(text, root, root, [HERE, "Read(/secret/**)"])


OPTIONS = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("-r", "-rn -f sub/patterns", "-r --exclude-from=src/a", "-rl -e x")),
    **dict.fromkeys(("rg", "ripgrep"), ("", "-uu", "--files -uu", "-f sub/patterns")),
    **dict.fromkeys(("ls", "dir", "vdir"), ("", "-R", "-L", "-RL", "-H")),
    "find": ("", "-H", "-newer src/a"),
    "du": ("-a", "-aD"),
    "stat": ("", "-L"),
    "file": ("", "-L"),
    "tree": ("", "-a"),
}
FIRST = {"grep": "x", "egrep": "x", "fgrep": "x", "rg": "x", "fd": "x", "fdfind": "x", "sed": "p", "awk": "1"}
FIRST |= {"gawk": "1", "mawk": "1", "nawk": "1", "jq": "-R .", "ripgrep": "x", "gsed": "p", "tr": "a b"}
OPERANDS = (
    *("", "-", "sub", "sub/-", "sub/up", "sub/out", "sub/hard", ".env", "s*", "*", ".*", "sub/*", "sub/d1 sub/d2"),
    *(
        "src/a sub/d1",
        "sub/d1/??",
        "src",
        "src/a",
        "src/*",
        "src/a src/b",
        "src/../sub/out/file",
        "secret",
        "sub/u?/.env",
    ),
)
FORMS = ("{}", "true | {}", "{} < sub/-", "{} < src/a", "{} < sub/hard")
NOT_RUN = frozenset({"df", "users", "tail", "tty"})
"""They need a terminal, tell of the machine, or wait."""


@pytest.mark.scaled
@pytest.mark.timeout(1800 if FAULTS else 240)
def test_no_program_that_only_looks_opens_what_is_forbidden(root: Path, record_measure: RecordMeasure) -> None:
    """Every program that may look, with each of the operands, before and behind a pipe, with and without a rule."""
    programs = [name for name, usage in HARMLESS.items() if usage.looks and name not in NOT_RUN and shutil.which(name)]
    texts = [
        form.format(" ".join(filter(None, (name, option, FIRST.get(name, ""), operand))))
        for name in programs
        for option, operand, form in itertools.product(OPTIONS.get(name, ("",)), OPERANDS, FORMS)
    ]
    denied = [str(root / name) for name in (".env", "sub/hard", "secret/key")]
    wrong: list[str] = []
    ran = 0
    for deny, forbidden in (([], []), ([HERE, "Read(/secret/key)"], denied)):
        allowed = [text for text in texts if is_unasked(text, root, root, deny)]
        chosen = allowed if FAULTS else random.Random(11).sample(allowed, 250)
        ran += len(chosen)
        for start in range(0, len(chosen), BATCH):
            wrong += openers(chosen[start : start + BATCH], root, [*forbidden, str(root.parent / "outside")])

    record_measure("looking commands beside traps: forbidden files opened", "0", f"{len(wrong)} by {ran}")
    assert wrong == []


def openers(texts: Sequence[str], root: Path, forbidden: Sequence[str]) -> list[str]:
    """The commands that open one of the forbidden paths, or what is below it."""
    seen = opened(texts, root, root)
    if not any(path == each or path.startswith(f"{each}/") for path in seen for each in forbidden):
        return []
    middle = len(texts) // 2
    return (
        list(texts)
        if middle == 0
        else [text for half in (texts[:middle], texts[middle:]) for text in openers(half, root, forbidden)]
    )
