"""What runs without a question has no other effect: allowed commands run as real programs, watched by strace.

A looking command starts nothing but the programs it names and writes nothing; one that a rule allows writes what it
names. Option lists are also made by chance from the programs' own help.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.harmless_corpus import ATTACKS, LOOKING, RULES, commands
from support.machine import RecordMeasure
from support.profiles import FAULTS
from support.shell_fuzz import sandboxed
from support.traced import Site, may_start

from makai.tools.permissions.looking import looked_at
from makai.tools.shell_policy.coverage import is_harmless, listed
from makai.tools.shell_policy.harmless_options import HARMLESS
from makai.tools.shell_policy.harmless_subcommands import GIT
from makai.tools.shell_policy.policy import decide
from makai.tools.shell_policy.syntax import simple_commands

BUILTINS = frozenset({"echo", "printf", "test", "true", "false", ":", "type", "command", "cd", "pwd"})
BATCH = 40


@pytest.fixture
def site(tmp_path: Path) -> Site:
    if shutil.which("strace") is None or not sandboxed():
        pytest.skip("strace or bubblewrap does not work here: that allowed commands have no effect was NOT tested")
    return Site(tmp_path)


def programs(text: str) -> set[str]:
    return {command.words[0].value for command in simple_commands(text) or []}


def is_there(text: str, site: Site) -> bool:
    path = f"{os.environ['PATH']}:{site.bin}"
    return all(name in BUILTINS or shutil.which(name, path=path) for name in programs(text))


def there(texts: Sequence[str], site: Site) -> list[str]:
    """Those whose programs are installed; the others are named aloud."""
    missing = sorted({name for text in texts if not is_there(text, site) for name in programs(text)})
    if missing:
        sys.stderr.write(f"SKIPPED: not installed, so NOT tested: {', '.join(missing)}\n")
    return [text for text in texts if is_there(text, site)]


def batches(texts: Sequence[str], size: int = BATCH) -> Iterator[Sequence[str]]:
    return (texts[start : start + size] for start in range(0, len(texts), size))


def wrong_looks(site: Site, texts: Sequence[str]) -> dict[str, object]:
    """Of commands that must not do anything: those that did, with what they did."""
    found = site.effects(texts)
    named = may_start(name for text in texts for name in programs(text))
    if found.started <= named and not found.written:
        return {}
    if len(texts) == 1:
        return {texts[0]: (sorted(found.started - named), sorted(found.written))}
    return {
        text: effect
        for half in batches(texts, (len(texts) + 1) // 2)
        for text, effect in wrong_looks(site, half).items()
    }


def wrong_writes(site: Site, texts: Sequence[str]) -> dict[str, object]:
    """Of commands that may write what they name: other programs, and files that make later commands run code."""
    before = site.protected()
    started = site.effects(texts, switches=False, seconds=1).started
    named = may_start(name for text in texts for name in programs(text))
    others = {name for name in started - named if not name.startswith("git")}
    changed = {name for name, content in site.protected().items() if before.get(name) != content}
    changed = {
        name for name in changed if not name.startswith(".git/") or name.startswith((".git/config", ".git/hooks"))
    }
    # A folder that is moved takes its files along. Rules do not see what is in it; the sandbox keeps folders with such
    # files where they are (`test_sandbox_guard.py`).
    gone = {(os.path.basename(name), before[name]) for name in before if not (site.root / name).parent.exists()}
    changed = {name for name in changed if (os.path.basename(name), site.protected()[name]) not in gone}
    return {"\n".join(texts): (sorted(others), sorted(changed))} if others or changed else {}


def test_an_attack_that_is_asked_about_has_an_effect(site: Site, tmp_path: Path) -> None:
    """Each one is asked, and is seen when it runs: what is not seen here proves nothing below."""
    attacks = [(rule, text) for rule, texts in ATTACKS.items() for text in texts]
    silent: list[str] = []
    for number, texts in enumerate(ATTACKS.values()):
        fresh = Site(tmp_path / str(number))
        for text in texts:
            found = fresh.effects([text]) if is_there(text, site) else None
            if found is not None and found.started <= may_start(programs(text)) and not found.written:
                silent.append(text)

    assert [text for rule, text in attacks if decide(text, [rule], []) == "allow" or looked_at(text, "/")] == []
    assert silent == []


def test_looking_commands_start_and_write_nothing_else(site: Site, record_measure: RecordMeasure) -> None:
    written = commands(LOOKING)
    texts = there(written, site)
    before = site.state()
    wrong = {text: effect for some in batches(texts) for text, effect in wrong_looks(site, some).items()}

    record_measure("looking commands run under strace: effects", "0", f"{len(wrong)} of {len(texts)}")
    assert [text for text in written if looked_at(text, str(site.root)) is None] == []
    assert (len(written) >= 340, len({name for text in written for name in programs(text)}) >= 70) == (True, True)
    assert wrong == {}
    assert site.state() == before


def test_a_rule_lets_a_program_write_what_it_names_and_nothing_else(site: Site, record_measure: RecordMeasure) -> None:
    wrong: dict[str, object] = {}
    texts = there(commands(RULES), site)
    for text in texts:
        name = text.split()[0]
        assert decide(text, [f"{name}:*"], []) == "allow"
        words = shlex.split(text)
        found = listed(words)
        assert found is not None
        arguments = found.options.read(words[found.start :])
        assert arguments is not None
        may_write = {os.path.normpath(path) for path in arguments.writes} | ({".git"} if name == "git" else set())
        seen = site.effects([text], switches=False)
        elsewhere = [path for path in seen.written if not any(_is_at(path, place) for place in may_write)]
        if not seen.started <= may_start({name}) or elsewhere:
            wrong[text] = (sorted(seen.started), elsewhere)

    record_measure("commands run under a rule: effects beyond it", "0", f"{len(wrong)} of {len(texts)}")
    assert wrong == {}


def _is_at(path: str, place: str) -> bool:
    """Some programs change into the folders that they make: then only a part of the path is told."""
    return path == place or path.startswith(f"{place}/") or place.startswith(f"{path}/") or path in place.split("/")


# Option lists by chance ----------------------------------------------------------------------------------------------

NOT_FUZZED = frozenset({"sleep", "curl", "wget", "man", "cd", "kill", "less", "more", "ss", "sqlite3"})
"""They need a network or a terminal, wait, or take no options but those of one shape."""
VALUES = (
    *(
        "1",
        "5",
        "x",
        "a.txt",
        "b.txt",
        "out",
        "src",
        "--",
        "-",
        ".",
        "+1",
        "+x",
        "=x",
        "%n",
        "%G?",
        "a b",
        "foo",
        "HEAD",
    ),
    *("main", "victim", "./run", "run", ".envrc", "sub/.envrc", "sub", ".git/config", "1,2p", "{print}", "w out", "-o"),
    *("-out", "names", "-O./run", "--output=out", "--pre=./run", "p", ".a", "*", "s/a/b/w out", "01010000", "made"),
)
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z0-9][\w-]*")


def help_of(words: Sequence[str], folder: Path) -> str:
    """What the program itself says about its options."""
    texts = []
    asked = [[*words, "-h"] if words[0] == "git" else [*words, "--help"]]
    asked += [["man", "-P", "cat", "-".join(words)]] if FAULTS else []
    for command in asked:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        texts += [done.stdout, done.stderr]
    return "\n".join(texts)


def option_lists(count: int, seed: int, folder: Path) -> Iterator[list[str]]:
    """Commands made of options that the program itself tells of, of letters in clusters, and of hostile values."""
    chance = random.Random(seed)
    named = [[name] for name in sorted(HARMLESS.keys() - NOT_FUZZED) if name in BUILTINS or shutil.which(name)]
    named += [["git", *name.split()] for name in sorted(GIT)]
    options = {tuple(words): sorted(set(_OPTION.findall(help_of(words, folder)))) or ["-a"] for words in named}
    for _ in range(count):
        words = chance.choice(named)
        known = options[tuple(words)]
        yield [*words, *(_argument(chance, known) for _ in range(chance.randint(1, 4)))]


def _argument(chance: random.Random, known: Sequence[str]) -> str:
    option = chance.choice(known)
    letters = [each[1] for each in known if len(each) == 2] or ["a"]
    match chance.randrange(8):
        case 0 | 1:
            return option
        case 2:
            return f"{option}={chance.choice(VALUES)}"
        case 3:
            return option[: chance.randint(2, len(option))] + chance.choice(("", "=out", "=./run"))
        case 4:
            return "-" + "".join(chance.choice(letters) for _ in range(chance.randint(1, 3)))
        case 5:
            return "-" + "".join(chance.choice(letters) for _ in range(2)) + chance.choice(VALUES)
        case _:
            return chance.choice(VALUES)


@pytest.mark.scaled
@pytest.mark.timeout(1800 if FAULTS else 240)
def test_no_list_of_options_that_is_allowed_has_an_effect(
    site: Site, tmp_path: Path, record_measure: RecordMeasure
) -> None:
    count, at_most = (100_000, 8_000) if FAULTS else (4_000, 240)
    began = time.monotonic()
    lists = list(option_lists(count, 2026, site.root))
    judged = time.process_time()
    allowed = {tuple(words): None for words in lists if is_harmless(words, 2 if words[0] == "git" else 1)}
    judged_s = time.process_time() - judged
    chosen = random.Random(7).sample(sorted(allowed), min(at_most, len(allowed)))
    looking = [shlex.join(words) for words in chosen if looked_at(shlex.join(words), str(site.root)) is not None]
    writing = [shlex.join(words) for words in chosen if looked_at(shlex.join(words), str(site.root)) is None]

    wrong = {text: effect for some in batches(looking) for text, effect in wrong_looks(site, some).items()}
    for number, some in enumerate(batches(writing)):
        wrong |= wrong_writes(Site(tmp_path / str(number)), some)

    record_measure(f"{count:,} option lists from help texts: allowed", "-", f"{len(allowed)} ({judged_s:.1f} s)")
    record_measure("of them run under strace: effects", "0", f"{len(wrong)} of {len(chosen)}")
    record_measure("option lists: all of it", "-", f"{time.monotonic() - began:.0f} s")
    assert wrong == {}
    assert len(allowed) > count / 100
