"""Which shell commands run without asking, which are asked for, and which are refused."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fixtures import fixture
from support.machine import slack
from support.shell_fuzz import ALLOW, DENY, commands, differences

if TYPE_CHECKING:
    from conftest import RecordMeasure

from makai.core.errors import InvalidRequest
from makai.tools.shell_policy import ShellRule, decide, parse_shell_rule


class Vector(msgspec.Struct, frozen=True):
    """A case of the corpus. `ask` means: must not run without asking, refusing it is right too."""

    cmd: str
    verdict: str
    cls: str
    src: str


VECTORS = msgspec.json.decode(fixture("vectors/shell.json"), type=list[Vector])


class Guarded(msgspec.Struct, frozen=True):
    """A rule with `:*`, a command that it covers, and commands that it must not cover."""

    rule: str
    harmless: str
    dangerous: list[str]


class Cases(msgspec.Struct, frozen=True):
    """Our own cases against the policy of the corpus, by class."""

    plain: dict[str, list[str]]
    asked: dict[str, list[str]]
    refused: dict[str, list[str]]
    guarded: list[Guarded]


CASES = msgspec.json.decode(fixture("shell_cases.json"), type=Cases)

TOO_LARGE = [
    "ls" + " " * 5000 + "x",
    "echo " + "a" * 100_000,
    "ls;" * 60,
    "ls" + "\n" * 500 + "ls",
    "(" * 3000,
    "`" * 3001,
]
LARGE_WITH_DENIED = [
    "ls && " * 60 + "rm x",
    "ls; " * 50_000 + "rm x",
    "env " * 2000 + "rm x",
    "ls" + " " * 5000 + "; rm x",
]
LARGE_WITH_DENIED += [
    "echo " + "a" * 200_000 + "; curl x",
    "timeout 1 " * 3000 + "rm x",
    "$(" * 3000 + "rm x" + ")" * 3000,
]

UNCOVERABLE = [
    *("env", "xargs", "timeout", "timeout 5", "sudo", "nohup", "sh", "bash", "eval", "exec", "command"),
    *("source", "alias"),
]
UNCOVERABLE += ["export", "set", "hash", "trap", "time", "read", "nice -n 5", "bash -x", "enable", "ssh"]


def cases(table: dict[str, list[str]]) -> list[pytest.ParameterSet]:
    return [pytest.param(text, id=f"{name}: {text[:40]!r}") for name, texts in table.items() for text in texts]


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
    decisions = {command: decide(command, [case.rule], []) for command in (case.harmless, *case.dangerous)}

    assert decisions == {case.harmless: "allow", **dict.fromkeys(case.dangerous, "ask")}


@pytest.mark.parametrize("words", UNCOVERABLE)
def test_a_rule_that_leaves_the_program_open_covers_no_program(words: str) -> None:
    assert decide(f"{words} ls", [f"{words}:*"], []) == "ask"


def test_a_rule_without_a_star_means_exactly_these_words() -> None:
    rules = ["python -c 1", "git push"]
    decisions = [decide(command, rules, []) for command in ("python -c 1", "python -c 1 2", "git push", "git push -f")]

    assert decisions == ["allow", "ask", "allow", "ask"]


def test_a_denied_exact_command_is_refused_with_options_but_not_with_other_operands() -> None:
    commands_and_answers = {
        "git push": "deny",
        "git --no-pager push": "deny",
        "git push -f": "deny",
        "git push a b": "allow",
    }

    assert {text: decide(text, ["*"], ["git push"]) for text in commands_and_answers} == commands_and_answers


def test_denied_options_are_found_in_any_order() -> None:
    refused = ["rm -rf x", "rm -fr x", "rm -r -f x", "rm x -rf", "git push origin --force", "git push --force=yes"]
    passed = ["rm -r x", "rm x", "git push", "git pull --force"]
    rules = ["rm -rf:*", "git push --force:*"]

    assert [decide(text, ["*"], rules) for text in refused] == ["deny"] * len(refused)
    assert [decide(text, ["*"], rules) for text in passed] == ["allow"] * len(passed)


def test_arguments_from_a_pipe_are_not_trusted_to_be_harmless() -> None:
    assert decide("xargs find a", ["xargs find:*"], []) == "ask"


def test_a_denied_interpreter_is_denied_in_every_version_but_other_names_are_whole() -> None:
    answers = {
        "python3.11 a": "deny",
        "python a": "deny",
        "/usr/bin/python3 a": "deny",
        "base64 a": "deny",
        "base32 a": "allow",
    }

    assert {text: decide(text, ["*"], ["python:*", "base64:*"]) for text in answers} == answers


def test_changing_the_folder_and_then_running_git_is_asked_for() -> None:
    rules = ["cd:*", "ls:*", "git status"]
    decisions = [decide(command, rules, []) for command in ("cd a && ls", "cd a && git status", "cd a")]

    assert decisions == ["allow", "ask", "allow"]


def test_an_allow_of_everything_allows_what_is_certainly_not_denied() -> None:
    harmless = [
        "for i in *; do echo $i; done",
        "make > log 2>&1",
        "X=1 ./run.sh",
        "git commit -m 'rm the curl docs'",
        "python a.py",
    ]
    uncertain = ["$EDITOR x", "$(cat name) x", "eval $x", "ls '", 'sh -c "$x"']

    assert [decide(text, ["*"], DENY) for text in harmless] == ["allow"] * len(harmless)
    assert [decide(text, ["*"], DENY) for text in uncertain] == ["ask"] * len(uncertain)
    assert [decide(text, [":*"], []) for text in uncertain] == ["allow"] * len(uncertain)


def test_what_only_mentions_a_denied_command_is_not_refused() -> None:
    mentions = [
        "echo rm",
        "rg curl",
        "git log push",
        "cat rm",
        "ls # rm x",
        "git commit -m 'git push'",
        "which curl",
        "command -v rm",
    ]
    mentions += [
        *("cat > a <<'E'\nrm x\nE", "git log --grep push", "echo 'a; rm x'", "git stash push"),
        *("npm run rm-all", "xargs -n 1 grep rm"),
    ]

    assert [text for text in mentions if decide(text, ALLOW, DENY) == "deny"] == []


def test_everything_can_be_denied() -> None:
    assert decide("ls", ["*", "ls:*"], ["*"]) == "deny"


def test_nothing_is_allowed_by_no_rule() -> None:
    assert decide("ls", [], []) == "ask"


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


def test_bash_runs_what_was_allowed_and_nothing_else(tmp_path: Path, record_measure: RecordMeasure) -> None:
    found = differences(list(commands(1_000, seed=7)), tmp_path, seed=7, timeout_s=150)

    record_measure(
        "1,000 commands in bash: wrongly allowed", "0", f"{len(found.wrongly_allowed)} ({found.allowed} allowed)"
    )
    assert (found.wrongly_allowed, found.denied_commands_missed) == ([], [])
    assert found.allowed > 200


def test_hostile_size_does_not_take_long() -> None:
    nested = [
        "$(" * 2_000 + ")" * 2_000,
        "env " * 20_000,
        "echo `" * 2_001,
        "{a,b}" * 2_000,
        "timeout 1 " * 3_000 + "ls",
    ]
    began = time.process_time()
    decisions = [decide(text, ["*"], DENY) for text in nested]

    assert decisions == ["ask"] * len(nested)
    assert time.process_time() - began < 10


def test_the_parser_is_loaded_with_the_first_command_only() -> None:
    script = "import sys, makai.tools.shell_policy; sys.exit('tree_sitter' in sys.modules)"

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
