"""Which shell commands run without asking, which are asked for, and which are refused."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fixtures import fixture
from support.machine import RecordMeasure, slack
from support.profiles import FAULTS, FUZZ_COUNT
from support.shell_fuzz import ALLOW, DENY, Differences, commands, differences

from makai.core.errors import InvalidRequest
from makai.tools.shell_policy.policy import ShellRule, decide, parse_shell_rule
from makai.tools.shell_policy.search import search


class Vector(msgspec.Struct, frozen=True):
    """A case of the corpus. `ask` means: must not run without asking, refusing it is right too."""

    cmd: str
    verdict: str
    cls: str
    src: str


VECTORS = msgspec.json.decode(fixture("vectors/shell.json"), type=list[Vector])


class Guarded(msgspec.Struct, frozen=True):
    """A rule with `:*`, a command that it covers, if there is one, and commands that it must not cover."""

    rule: str
    harmless: str | None
    dangerous: list[str]


class Cases(msgspec.Struct, frozen=True):
    """Our own cases against the policy of the corpus, by class."""

    plain: dict[str, list[str]]
    asked: dict[str, list[str]]
    refused: dict[str, list[str]]
    guarded: list[Guarded]


CASES = msgspec.json.decode(fixture("shell_cases.json"), type=Cases)

TOO_LARGE = ["ls" + " " * 5000 + "x", "echo " + "a" * 100_000, "ls;" * 60, "ls" + "\n" * 500 + "ls"]
TOO_LARGE += ["(" * 3000, "`" * 3001]
LARGE_WITH_DENIED = [f"{'ls && ' * 60}rm x", f"{'ls; ' * 50_000}rm x", f"{'env ' * 2000}rm x", f"ls{' ' * 5000}; rm x"]
LARGE_WITH_DENIED += [f"echo {'a' * 200_000}; curl x", f"{'timeout 1 ' * 3000}rm x", "$(" * 3000 + "rm x" + ")" * 3000]
LARGE_WITH_DENIED += [f"fd {'-x ls ' * 100}rm x"]

UNCOVERABLE = [
    *("env", "xargs", "timeout", "timeout 5", "sudo", "nohup", "sh", "bash", "eval", "exec", "command"),
    *("source", "alias"),
]
UNCOVERABLE += ["export", "set", "hash", "trap", "time", "read", "nice -n 5", "bash -x", "enable", "ssh"]


def cases(table: dict[str, list[str]]) -> list[pytest.ParameterSet]:
    return [pytest.param(text, id=f"{name}: {text[:40]!r}") for name, texts in table.items() for text in texts]


@pytest.mark.proof("T1")
def test_the_corpus_has_no_wrong_answer(record_measure: RecordMeasure) -> None:
    answers = Counter((vector.verdict, decide(vector.cmd, ALLOW, DENY)) for vector in VECTORS)
    asked_needlessly = sum(count for (right, given), count in answers.items() if right == "allow" and given != "allow")
    wrongly_run = sum(count for (right, given), count in answers.items() if right != "allow" and given == "allow")
    not_refused = sum(count for (right, given), count in answers.items() if right == "deny" and given != "deny")

    record_measure("shell corpus: wrongly run", "0", f"{wrongly_run} of {len(VECTORS)}")
    record_measure("shell corpus: plain commands asked for", "<= 1 of 10", str(asked_needlessly))
    record_measure("shell corpus: denied commands not refused", "0", str(not_refused))
    assert (len(VECTORS), wrongly_run, asked_needlessly, not_refused) == (112, 0, 0, 0)


@pytest.mark.parametrize("command", cases(CASES.plain))
def test_a_plain_command_runs_without_asking(command: str) -> None:
    assert decide(command, ALLOW, DENY) == "allow"


@pytest.mark.parametrize("command", cases(CASES.asked | {"size": TOO_LARGE}))
def test_what_is_not_provably_covered_is_asked_for(command: str) -> None:
    assert decide(command, ALLOW, DENY) == "ask"


@pytest.mark.parametrize("command", cases(CASES.refused | {"size": LARGE_WITH_DENIED}))
def test_a_denied_command_is_refused_wherever_it_stands(command: str) -> None:
    blanket = [*ALLOW, "*", "rm:*", "curl:*", "git:*"]
    assert (decide(command, ALLOW, DENY), decide(command, blanket, DENY)) == ("deny", "deny")


@pytest.mark.parametrize("case", CASES.guarded, ids=lambda case: f"{case.rule} {case.harmless}")
def test_any_arguments_does_not_mean_those_that_run_or_write(case: Guarded) -> None:
    covered = () if case.harmless is None else (case.harmless,)
    decisions = {command: decide(command, [case.rule], []) for command in (*covered, *case.dangerous)}

    assert decisions == {**dict.fromkeys(covered, "allow"), **dict.fromkeys(case.dangerous, "ask")}


@pytest.mark.parametrize("words", UNCOVERABLE)
def test_a_rule_that_leaves_the_program_open_covers_no_program(words: str) -> None:
    assert decide(f"{words} ls", [f"{words}:*"], []) == "ask"


UNCERTAIN = ["$EDITOR x", "$(cat name) x", "eval $x", "ls '", 'sh -c "$x"']
UNCERTAIN += ["x=xls; ${x#x} y", "x=sl; ${x:1}${x:0:1} y", "x=l?; ${x/?/s} y"]


@pytest.mark.parametrize(
    ("allow", "deny", "answers"),
    [
        pytest.param(
            ["python -c 1", "git push"],
            [],
            {"allow": ["python -c 1", "git push"], "ask": ["python -c 1 2", "git push -f"]},
            id="a rule without a star means exactly these words",
        ),
        pytest.param(
            ["*"],
            ["git push"],
            {"deny": ["git push", "git --no-pager push", "git push -f"], "allow": ["git push a b"]},
            id="a denied exact command is refused with options but not with other operands",
        ),
        pytest.param(
            ["*"],
            ["rm -rf:*", "git push --force:*"],
            {
                "deny": [
                    *("rm -rf x", "rm -fr x", "rm -r -f x", "rm x -rf"),
                    *("git push origin --force", "git push --force=yes"),
                ],
                "allow": ["rm -r x", "rm x", "git push", "git pull --force"],
            },
            id="denied options are found in any order",
        ),
        pytest.param(
            ["xargs find:*"],
            [],
            {"ask": ["xargs find a"]},
            id="arguments from a pipe are not trusted to be harmless",
        ),
        pytest.param(
            ["*"],
            ["python:*", "base64:*"],
            {"deny": ["python3.11 a", "python a", "/usr/bin/python3 a", "base64 a"], "allow": ["base32 a"]},
            id="a denied interpreter is denied in every version but other names are whole",
        ),
        pytest.param(
            ["cd:*", "ls:*", "git status"],
            [],
            {"allow": ["cd a && ls", "cd a"], "ask": ["cd a && git status"]},
            id="changing the folder and then running git is asked for",
        ),
        pytest.param(
            ["*"],
            DENY,
            {
                "allow": [
                    *("for i in *; do echo $i; done", "make > log 2>&1", "X=1 ./run.sh", "python a.py"),
                    *("git commit -m 'rm the curl docs'", 'npm run build -- "$x"'),
                ],
                "ask": UNCERTAIN,
            },
            id="an allow of everything allows what is certainly not denied",
        ),
        pytest.param([":*"], [], {"allow": UNCERTAIN}, id="without a denial everything is allowed"),
        pytest.param(["*", "ls:*"], ["*"], {"deny": ["ls"]}, id="everything can be denied"),
        pytest.param([], [], {"ask": ["ls"]}, id="nothing is allowed by no rule"),
    ],
)
def test_the_rules_decide_together(allow: list[str], deny: list[str], answers: dict[str, list[str]]) -> None:
    expected = {command: answer for answer, texts in answers.items() for command in texts}

    assert {command: decide(command, allow, deny) for command in expected} == expected


def test_what_only_mentions_a_denied_command_is_not_refused() -> None:
    mentions = [
        *("echo rm", "rg curl", "git log push", "cat rm", "ls # rm x", "git commit -m 'git push'", "which curl"),
        "command -v rm",
        *("cat > a <<'E'\nrm x\nE", "git log --grep push", "echo 'a; rm x'", "git stash push"),
        *("npm run rm-all", "xargs -n 1 grep rm", "echo { rm }", "git add -u rm", "tar -xzf a.tgz -C rm"),
        "npm run build -- rm",
        *("git config user.name rm", "git config --get core.pager", "git config core.pager less", "git config -l"),
        *("tar cf rm.tar rm", "tar cIf zstd a.tar rm", "tar cfI a.tar zstd rm", "tar xf a.tar rm"),
        *("socat - TCP:rm:80", "mysql -u rm db", "mysql -e 'select rm from t'", "perl -pe 's{rm x}{y}' f"),
    ]

    assert [text for text in mentions if decide(text, ALLOW, DENY) == "deny"] == []


def test_a_quoted_message_of_git_is_not_a_subscript_but_what_may_reach_arithmetic_is() -> None:
    message = "git commit -m 'fix a[$(rm x)]'"
    texts = {
        **dict.fromkeys([message, "git commit -m 'fix a[`rm x`]'", f"cd y && git add -A && {message}"], "ask"),
        **dict.fromkeys(
            [f"{message}; let _", f'{message}; echo "$((_))"', f'git() {{ test -v "$3"; }}; {message}'], "deny"
        ),
        **dict.fromkeys(['git commit -m "fix a[$(rm x)]"', "git submodule foreach test -v 'a[$(rm x)]'"], "deny"),
        **dict.fromkeys(["git rebase -x \"test -v 'a[\\$(rm x)]'\" y", f'bash -c "{message}"'], "deny"),
    }

    assert {text: decide(text, ALLOW, DENY) for text in texts} == texts


@pytest.mark.parametrize("rule", ["", " ", ":* ", "g*t", "git *", "ls:*:*", "* ls"])
def test_a_rule_that_cannot_be_meant_is_refused_by_name(rule: str) -> None:
    if rule.strip() == ":*":
        assert parse_shell_rule(rule) == ShellRule((), any_arguments=True)
        return
    with pytest.raises(InvalidRequest, match="shell rule"):
        decide("ls", [], [rule])


def test_a_rule_is_read_as_words() -> None:
    assert [parse_shell_rule(text) for text in ("git  log:*", "npm test", "ls :*")] == [
        ShellRule(("git", "log"), any_arguments=True),
        ShellRule(("npm", "test"), any_arguments=False),
        ShellRule(("ls",), any_arguments=True),
    ]


@given(st.text(max_size=200), st.sampled_from(DENY))
def test_any_text_gets_an_answer_and_a_denied_first_command_is_refused(text: str, rule: str) -> None:
    assert decide(text, ALLOW, DENY) in ("allow", "ask", "deny")
    assert decide(f"{rule.removesuffix(':*')} x\n{text}", ["*"], [rule]) == "deny"


@given(st.text(alphabet="ls cat;|&\\'\"$(){}<>\n#*~=ab-", max_size=60), st.sampled_from(["ls:*", "cat:*", "touch:*"]))
def test_a_further_deny_rule_never_makes_a_decision_milder(text: str, rule: str) -> None:
    severity = {"allow": 0, "ask": 1, "deny": 2}

    assert severity[decide(text, ALLOW, [*DENY, rule])] >= severity[decide(text, ALLOW, DENY)]


DECIDE_ANY_TEXT = """
import random, sys
from makai.tools.shell_policy.policy import decide
choose = random.Random(int(sys.argv[1]))
for _ in range(1_000):
    kinds = choose.choices((range(32, 127), range(0x80, 0xD800), range(0x10000, 0x110000)), (4, 1, 2), k=12)
    decide("".join(chr(choose.choice(kind)) for kind in kinds), ["ls:*"], ["rm:*"])
"""


def test_no_character_crashes_the_parser() -> None:
    """It crashed by chance, depending on where the process's memory lay; so several processes try."""
    ends = [subprocess.run([sys.executable, "-c", DECIDE_ANY_TEXT, str(seed)], timeout=120) for seed in range(8)]

    assert [end.returncode for end in ends] == [0] * 8


def test_a_character_outside_of_ascii_is_a_part_of_its_word() -> None:
    assert decide("ls 'é 🎉' naïve; ls àï", ["ls:*"], []) == "allow"
    assert decide("echo 🎉; rm é", ["*"], ["rm:*"]) == "deny"
    assert decide("é🎉 x", ["*"], ["é🎉:*"]) == "deny"


BEFORE_A_COMMAND = {
    "": "", "time ": "", "time -p ": "", "! ": "", "! time ": "", "coproc ": "", "a=1 ": "", "a=1 b=2 ": "",
    "> g ": "", "a=1 > g ": "", "< g a=1 ": "", "{ ": "; }", "( ": " )", "ls; ": "", "ls && ": "", "ls || ": "",
    "ls | ": "", "ls |& ": "", "ls & ": "", "ls\n": "", "until ": "; do break; done", "while ": "; do break; done",
    "if ": "; then ls; fi", "if ls; then ": "; fi", "if ls; then ls; else ": "; fi",
    "if ls; then ls; elif ": "; then ls; fi", "for i in 1; do ": "; done", "while ls; do ": "; done",
    "select i in 1; do ": "; done", "case a in a) ": ";; esac", "f() { ": "; }; f", "f() ( ": " ); f",
    "function f { ": "; }; f", "echo $(": ")", "echo `": "`", "cat <(": ")", "[[ -n $(": ") ]]", "a=$(": ")",
    "command ": "", "builtin ": "", "exec ": "", "env ": "", "env a=1 ": "", "nohup ": "", "timeout 1 ": "",
    "sudo ": "", "xargs ": "",
}  # fmt: skip
"""Every place in which a simple command can stand, and how the text ends there."""
REDIRECTIONS = (
    "", "> f ", ">f ", ">> f ", ">| f ", "< f ", "<> f ", "&> f ", "&>> f ", ">& f ", "2> f ", "2>&1 ", ">&2 ",
    "<&0 ", "2>&- ", "<<<a ", "<<< 'a b' ", "{fd}> f ", "{fd}>f ", "{fd}>> f ", "{fd}< f ", "{fd}>&1 ", "{fd}<<<a ",
    "{fd[0]}> f ", "{_f1}<> f ", "{fd}> 'f g' ", "{fd}> >(cat) ", "{fd}> f 2> g ", "2> g {fd}> f ", "> f 2>&1 ",
    "> f > g < h ", "> $f ", '> "f g" ', "> 'f g' ", "> f$(ls) ", "< <(ls) ", "> >(cat) ",
)  # fmt: skip


def test_a_program_is_found_after_every_redirection_wherever_a_command_can_stand() -> None:
    texts = [
        f"{before}{redirection}rm x{end}" for before, end in BEFORE_A_COMMAND.items() for redirection in REDIRECTIONS
    ]

    assert [text for text in texts if decide(text, ["*"], ["rm:*"]) != "deny"] == []


@pytest.mark.parametrize(
    "text",
    [
        "echo 'time {fd}> f rm x'", 'git commit -m "a -> b; rm it"', "cat < rm > mv", "ls > rm 2>&1",
        "cat <<EOF\ntime > f rm x\nEOF", "[[ a > rm ]]", "echo rm > f x", "diff <(ls a) <(ls rm)",
    ],
)  # fmt: skip
def test_no_program_is_found_in_texts_and_names_of_files(text: str) -> None:
    assert decide(text, ["*"], ["rm:*", "mv:*"]) == "allow"


@pytest.mark.proof("T2")
@pytest.mark.scaled
@pytest.mark.timeout(4 * 3600 if FAULTS else 180)
def test_bash_runs_what_was_allowed_and_nothing_else(tmp_path: Path, record_measure: RecordMeasure) -> None:
    count, workers = (FUZZ_COUNT, 2) if FAULTS else (1_000, 1)
    batch = min(count, 20_000)

    def compare(number: int) -> Differences:
        (folder := tmp_path / str(number)).mkdir()
        texts = list(commands(batch, seed=2026 + number))
        return differences(texts, folder, seed=number, timeout_s=3600 if FAULTS else 150)

    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(compare, range(count // batch)))
    rate = count / (time.monotonic() - began)

    wrong = [case for part in found for case in part.wrongly_allowed]
    missed = [case for part in found for case in part.denied_commands_missed]
    allowed, denied = sum(part.allowed for part in found), sum(part.denied for part in found)
    name = f"{count:,} commands in bash"
    record_measure(f"{name}: allowed but run otherwise", "0", f"{len(wrong)} ({allowed} allowed)")
    record_measure(f"{name}: denied program run but not refused", "0", f"{len(missed)} ({denied} denied)")
    record_measure(f"{name}: rate", "-", f"{rate:.0f}/s")
    assert (wrong, missed) == ([], [])
    assert allowed > count / 5


def test_hostile_size_does_not_take_long() -> None:
    nested = ["$(" * 2_000 + ")" * 2_000, "env " * 20_000, "echo `" * 2_001, "{a,b}" * 2_000]
    nested += ["timeout 1 " * 3_000 + "ls", "fd " + "-x " * 32_000, f"tar {'I' * 32_000}{' x' * 32_000}"]
    began = time.process_time()
    decisions = [decide(text, ["*"], DENY) for text in nested]

    assert decisions == ["ask"] * len(nested)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "part", ["1", "{a", "{a[", "> ", ">$(", ">(", ">'", '>"', '>"\\', "> f ", "<> f rm ", "{fd}>f ", ">&1 "]
)
def test_redirections_of_hostile_size_do_not_take_long(part: str) -> None:
    began = time.process_time()
    for text in (part * (90_000 // len(part)), f">{part * (90_000 // len(part))}"):
        search(text)

    assert time.process_time() - began < 10


def test_the_parser_is_loaded_with_the_first_command_only() -> None:
    script = "import sys, makai.tools.shell_policy.policy; sys.exit('tree_sitter' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == 0


def test_a_decision_is_quick(record_measure: RecordMeasure) -> None:
    text = "git log --oneline -3 && ls -la src | cat"
    batches_us: list[float] = []
    for _ in range(10):
        began = time.process_time()
        for _ in range(20):
            decide(text, ALLOW, DENY)
        batches_us.append((time.process_time() - began) / 20 * 1e6)

    # The best batch: other work on the machine only ever adds.
    record_measure("shell decision of three commands", "<= 5 ms", f"{min(batches_us):.0f} us")
    assert min(batches_us) < 5_000 * slack()
