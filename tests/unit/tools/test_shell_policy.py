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

PLAIN = {
    "words": ["git diff HEAD~1", "git diff HEAD~3..HEAD", "git log --since=2.weeks", "git diff HEAD^", "git log -- src/a.py"],
    "quotes": ["rg 'foo bar' src", 'rg "fn \\w+" src', 'git log --author="A B"', "echo 'it'\"'\"'s'", 'echo "cost: \\$5"', "cat ''"],
    "escapes": ["cat a\\ b.txt", "rg foo\\.bar", "echo \\$HOME", "echo a\\;b"],
    "operators": ["git status && git diff", "git status; ls", "git log | cat | rg fix", "ls\ncat a", "ls &&\nls", "npm test || echo no;"],
    "punctuation": ["echo 100%", "echo hello!", "ls a,b", "git diff @{u}", "git log stash@{0}", "echo a#b", "rg 'a$'", "ls +x"],
    "text": ["echo rm -rf /", 'git log --grep="curl"', "rg 'git push' docs", 'echo "héllo – wörld"', "cat naïve.txt", "echo 'a\nb'"],
    "options": ["rg -n -i foo", "rg -tpy foo", "rg -ezz foo", "git log -S'-O' -p", "git log --oneline --graph -20", "ls -laR"],
}

ASKED = {
    "chain": ["ls; touch x", "ls |touch x", "ls\n\ntouch x", "ls & ls", "ls &", "ls |& cat", "ls;;ls", "; ls", "ls && ", "ls | "],
    "grouping": ["(ls)", "{ ls; }", "! ls", "if ls; then ls; fi", "for i in a; do ls; done", "while ls; do ls; done", "time ls"],
    "functions": ["f() { ls; }; f", "function ls { touch x; }", "coproc ls", "[[ -f x ]] && ls", "((1)) && ls", "select i in a; do ls; done"],
    "variables": ["echo $x", "echo ${x}", 'echo "$x"', "ls $HOME", "echo $?", "echo $$", "echo ${x@P}", "echo ${!x}", 'echo "$"'],
    "substitution": ["echo $(ls)", "echo `ls`", 'echo "$(ls)"', "ls <(ls)", "cat >(ls)", "echo $((1))", "echo $[1]", "echo $'a'"],
    "arithmetic": ["echo $[ x='a[$(touch FLAG)]', x ]", "echo $(( a[$(touch x)] ))", "[[ 'a[$(touch x)]' -eq 1 ]]", "let a=1"],
    "globs": ["ls *", "cat /etc/pass??", "rg foo [a-z].py", "cat {a,b}", "echo {1..3}", "ls ~", "ls ~root/x", "echo a=~/x", "ls @(a|b)"],
    "redirection": ["ls > f", "ls >> f", "ls 2>&1", "ls &> f", "cat <<EOF\na\nEOF", "cat <<'EOF'\na\nEOF", ">f ls", "ls <>f", "{fd}>f ls"],
    "assignment": ["A=1 ls", "A=1", "A+=1 ls", "a[0]=1 ls", "IFS=x ls", "export A=1", "declare -x A=1", "local x", "readonly x=1"],
    "builtins": ["eval ls", "source x", "exec ls", "builtin echo a", "hash -p /tmp/x ls", "enable -f ./x ls", "set -- a", "shopt -s x"],
    "quoted names": ["'git' status", 'git "log"', "l\\s", "l''s", '"ls"', "\\ls", "ca\\\nt x", "g\\it log"],
    "comments": ["ls # a", "# ls", "echo a # b\ntouch x", "ls #\ntouch x"],
    "characters": ["ls\r", "ls\rtouch x", "ls\ttouch", "ls\x0btouch", "ls\x00", "ls \u200b", "\ufeffls", "ls\u3000x", "echo '\u202ex'"],
    "look-alikes": ["lѕ", "ｌｓ", "ls；touch x", "ls ｜ cat", "ls –la", "git statuѕ", "LS", "git Log", "gi t log", "git-log", "git_log"],
    "prefixes": ["git logs", "git", "git status -s", "npm test x", "npm tests", "lsx", "ls-x", "catx", "git --no-pager log", "git -P log"],
    "paths": ["./ls", "/bin/ls", "../cat x", "~/ls", "/usr/bin/git status", "bin/../ls", ".//ls"],
    "git": ["git log --output=x", "git diff --outp x", "git log --ext-d", "git diff --textc", "git log --show-signature", "git diff --no-index a b"],
    "git formats": ["git log --format=%GS", "git log --pretty=format:%H%G?", "git log --help", "git diff -Ox", "git -C /tmp status"],
    "rg": ["rg -z a", "rg -nz a", "rg --pre=x a", "rg --pr x a", "rg --hostname-b x", "rg --search-z a", "rg -e -- --pre=x", "rg '--pre' x"],
    "hidden options": ["rg --p\\re x a", "rg -'z' a", 'git log "--output=x"', "git log --out''put=x", "rg \\-z a", "rg '-'z a"],
    "size": ["ls" + " " * 5000 + "x", "echo " + "a" * 100_000, "ls;" * 60, "ls" + "\n" * 500 + "ls", "(" * 3000, "`" * 3001],
    "broken": ["ls '", 'ls "', "ls \\", "ls (", "ls )", "ls }; }", "$(", "fi", "do ls", "case", "&& ls", "| ls", "ls &&& ls", "", " ", "\n"],
    "wrappers": ["env ls", "nohup ls", "xargs ls", "timeout 1 ls", "sudo ls", "sh -c ls", "command ls", "busybox ls", "ls | xargs cat"],
}

REFUSED = {
    "position": ["ls; curl x", "ls && curl x", "ls || rm x", "ls | rm x", "ls\nrm x", "ls & rm x", "rm x &", "curl", "rm\tx", "ls;rm x"],
    "grouping": ["(rm x)", "{ rm x; }", "! rm x", "if rm x; then ls; fi", "if ls; then :; else rm x; fi", "for i in a; do rm x; done"],
    "loops": ["while ls; do curl x; done", "until curl x; do ls; done", "case a in a) rm x;; esac", "select i in a; do rm x; done"],
    "functions": ["f() { rm x; }", "function f { rm x; }; f", 'f() { "$@"; }; f rm x', "coproc rm x", "time rm x", "[[ a ]] && rm x"],
    "substitution": ["echo $(rm x)", "echo `rm x`", 'echo "$(rm x)"', "cat <(curl x)", "ls >(rm x)", "echo $(( $(rm x) ))", "echo ${x:-$(rm x)}"],
    "arithmetic": ["echo $[ x='a[$(rm x)]', x ]", "[[ 'a[$(rm x)]' -eq 1 ]]", "(( a[$(rm x)] ))"],
    "depth": ["echo $(echo $(echo `rm x`))", "( ( ( { rm x; } ) ) )", "$($($(rm x)))", "bash -c \"sh -c 'rm x'\"", "eval eval rm x"],
    "quotes": ["'rm' x", '"rm" x', "r''m x", 'r""m x', "r\\m x", "\\rm x", "$'rm' x", "$'\\x72m' x", "$'\\162m' x", '$"rm" x', "git 'pu'sh"],
    "lines": ["r\\\nm x", "git \\\npush", "ls \\\n; rm x", "git push\\\n origin"],
    "variables": ["c=rm; $c x", "c=r; ${c}m x", "a=r b=m; $a$b x", "for c in ls rm; do $c x; done", "${c:-rm} x", "X=(rm x); ${X[@]}", "$x rm y"],
    "empty expansions": ["r$@m x", "r${x}m x", "$x$y rm z", "rm${IFS}-rf${IFS}x", "git${IFS}push", "r`true`m x", "$(true)rm x"],
    "generated names": ["$(echo rm) x", "$(which curl) x", "`echo rm` x", "{rm,-rf,x}", "/bin/r? x", "/usr/bin/cur* x", "/*/rm x", "RM x"],
    "paths": ["/bin/rm x", "./rm x", "../../bin/rm x", "~/bin/curl x", "/usr/lib/git-core/git-push origin", "git-push origin"],
    "assignment": ["A=1 rm x", "A=1 B=2 curl x", "A=$(rm x)", "export A=$(curl x)", "PAGER='rm x' git log", "GIT_SSH_COMMAND='curl x' git fetch"],
    "redirection": [">f rm x", "2>&1 rm x", "rm >f x", "git >f push", "{fd}>f rm x", "<f rm x", "rm x 2>/dev/null", "cat <<< $(rm x)"],
    "input": ["bash <<EOF\nrm x\nEOF", "sh <<'E'\ncurl x\nE", "bash <<< 'rm x'", "echo 'rm x' | sh", "printf 'ls\\nrm x\\n' | bash -s", "echo rm | xargs -I@ @ x"],
    "here-documents": ["cat <<EOF\n$(rm x)\nEOF", "cat <<EOF | sh\nrm x\nEOF", "cat <<EOF\n`curl x`\nEOF", "cat <<A\nx\nA\nrm x", "sudo bash <<E\nrm x\nE"],
    "wrappers": ["env rm x", "env -i A=1 rm x", "env -u A rm x", "nohup rm x", "nice -n 5 rm x", "timeout -k 1 5 curl x", "sudo -u me rm x", "setsid rm x"],
    "more wrappers": ["xargs rm", "ls | xargs -0 -n 1 rm", "stdbuf -oL curl x", "busybox rm x", "command rm x", "builtin eval rm x", "exec -a z rm x"],
    "nested wrappers": ["sudo env A=1 nohup timeout 5 rm x", "xargs sh -c 'rm x'", "env bash -c 'rm x'", "flock /l rm x", "ssh h rm x", "ssh h 'ls; rm x'"],
    "text": ["eval 'rm x'", "eval rm x", "sh -c 'rm x'", "bash -lc 'ls; rm x'", "bash -ec 'rm x'", "trap 'rm x' EXIT", "alias ls='rm x'", "env -S 'rm x'"],
    "options": ["find . -exec rm {} \\;", "find . -name a -execdir rm {} +", "fd -x rm", "git rebase --exec 'rm x'", "rg --pre rm a", "tar --to-command='rm x' -xf a"],
    "git": ["git -C . push", "git -c a=b push", "git --git-dir=x push", "git --git-dir x push", "git -P push", "git -c alias.p=push p", "git -c alias.p='!rm x' p"],
    "git subcommands": ["git submodule foreach git push", "git submodule foreach 'rm x'", "git bisect run rm x", "git push --force", "git push"],
    "interpreters": ["python -c \"import os; os.system('rm x')\"", "perl -e 'system(\"rm x\")'", "awk 'BEGIN{system(\"curl x\")}'", "vim -c ':!rm x'"],
    "more interpreters": ["node -e \"require('child_process').execSync('git push')\"", "python3 -c 'run([\"git\", \"push\"])'", "sed '1e rm x' f", "ruby -e '`rm x`'"],
    "launchers": ["npm exec rm x", "docker run img rm x", "kubectl exec pod -- rm x", "npx rm x", "uv run rm x", "tmux new-session 'rm x'", "watch rm x"],
    "size": ["ls && " * 60 + "rm x", "ls; " * 50_000 + "rm x", "env " * 2000 + "rm x", "ls" + " " * 5000 + "; rm x", "echo " + "a" * 200_000 + "; curl x"],
    "broken": ["rm x '", 'ls "; rm x', "rm x )", "if rm x", "ls; rm $(", "curl x ;; ls", "rm \\"],
    "characters": ["ls\r\nrm x", "rm x\r", "\x1b[2Jls; rm x", "ls \u200b; rm x", "rm\u00a0x; rm y", "ls;\u200brm x; curl x"],
}

GUARDED_OPTIONS = [
    ("find:*", "find . -name a", ["find . -exec ls ;", "find . -delete", "find . -fprintf f x", "find -execdir ls +", "find . -ok ls ;"]),
    ("sort:*", "sort -k2 -t, a", ["sort -o f a", "sort --output=f a", "sort --out f", "sort -uo f a", "sort --compress-program=x a"]),
    ("sed:*", "sed -n 1,5p a", ["sed -i s/a/b/ f", "sed -n '1e ls' f", "sed 's/a/b/e' f", "sed 's/a/b/w x' f", "sed 'w x' f", "sed -f x", "sed --in-place p f"]),
    ("sed:*", "sed 's/a/b/g' f", ["sed -e p -e 'w x'", "sed 's/a/b/;w x' f", "sed '$!N;e' f", "sed -ni p f", "sed 'r /etc/passwd' f", "sed 'p\ne ls' f"]),
    ("awk:*", "awk '{print $1}' f", ["awk 'BEGIN{system(\"ls\")}'", "awk '{print > \"f\"}'", "awk '{print | \"sh\"}'", "awk -f x", "awk '\"ls\" | getline'"]),
    ("tar:*", "tar -tf a.tar", ["tar -xf a --to-command=x", "tar Ixf x a", "tar -I x -xf a", "tar --checkpoint-action=exec=x -cf a b", "tar --use-comp=x -xf a"]),
    ("git:*", "git log", ["git -c core.pager=x log", "git -C /tmp log", "git --git-dir=x log", "git --exec-path=x log", "git grep -Ox a", "git archive --output=x"]),
    ("git:*", "git --no-pager log", ["git difftool --extcmd=x", "git clone ext::sh", "git rebase --exec=x", "git -p log", "git fetch --upload-pack=x"]),
    ("python:*", "python a.py", ["python -c 1", "python", "python -", "python -ic 1", "python /dev/stdin", "python -Bc 1"]),
    ("node:*", "node a.js", ["node -e 1", "node --eval 1", "node -p 1", "node", "node -r ./x a.js", "node --require=./x a.js"]),
    ("printf:*", "printf %s a", ["printf -v PATH a", "printf -vPATH a", "printf a%n x", "printf %5n x"]),
    ("uniq:*", "uniq a", ["uniq a b", "uniq -c a b"]),
    ("less:*", "less a", ["less +!ls a", "less -o f a", "less --log-file=f a"]),
    ("man:*", "man ls", ["man -P x ls", "man --pager=x ls", "man -Hx ls"]),
    ("wget:*", "wget -q http://x", ["wget -O f http://x", "wget --output-document=f x", "wget -e a=b x", "wget --use-askpass=x y"]),
    ("xargs grep:*", "xargs grep a", []),
    ("timeout 5 find:*", "timeout 5 find .", ["timeout 5 find . -delete"]),
    ("bash run.sh:*", "bash run.sh a", ["bash -c ls", "bash", "bash other.sh"]),
]

UNCOVERABLE = ["env", "xargs", "timeout", "timeout 5", "sudo", "nohup", "sh", "bash", "eval", "exec", "command", "source", "alias"]
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


@pytest.mark.parametrize("command", cases(PLAIN))
def test_a_plain_command_runs_without_asking(command: str) -> None:
    assert decide(command, ALLOW, DENY) == "allow"


@pytest.mark.parametrize("command", cases(ASKED))
def test_what_is_not_provably_covered_is_asked_for(command: str) -> None:
    assert decide(command, ALLOW, DENY) == "ask"


@pytest.mark.parametrize("command", cases(REFUSED))
def test_a_denied_command_is_refused_wherever_it_stands(command: str) -> None:
    blanket = [*ALLOW, "*", "rm:*", "curl:*", "git:*"]
    assert (decide(command, ALLOW, DENY), decide(command, blanket, DENY)) == ("deny", "deny")


@pytest.mark.parametrize(("rule", "harmless", "dangerous"), GUARDED_OPTIONS)
def test_any_arguments_does_not_mean_those_that_run_or_write(rule: str, harmless: str, dangerous: list[str]) -> None:
    # Plain single quotes keep the shell from expanding; what is left is the program's own reading.
    decisions = {command: decide(command, [rule], []) for command in (harmless, *dangerous)}

    assert decisions == {harmless: "allow", **dict.fromkeys(dangerous, "ask")}


@pytest.mark.parametrize("words", UNCOVERABLE)
def test_a_rule_that_leaves_the_program_open_covers_no_program(words: str) -> None:
    assert decide(f"{words} ls", [f"{words}:*"], []) == "ask"


def test_a_rule_without_a_star_means_exactly_these_words() -> None:
    rules = ["python -c 1", "git push"]
    decisions = [decide(command, rules, []) for command in ("python -c 1", "python -c 1 2", "git push", "git push -f")]

    assert decisions == ["allow", "ask", "allow", "ask"]


def test_a_denied_exact_command_is_refused_with_options_but_not_with_other_operands() -> None:
    commands_and_answers = {"git push": "deny", "git --no-pager push": "deny", "git push -f": "deny", "git push a b": "allow"}

    assert {text: decide(text, ["*"], ["git push"]) for text in commands_and_answers} == commands_and_answers


def test_denied_options_are_found_in_any_order() -> None:
    refused = ["rm -rf x", "rm -fr x", "rm -r -f x", "rm x -rf", "git push origin --force", "git push --force=yes"]
    passed = ["rm -r x", "rm x", "git push", "git pull --force"]
    rules = ["rm -rf:*", "git push --force:*"]

    assert [decide(text, ["*"], rules) for text in refused] == ["deny"] * len(refused)
    assert [decide(text, ["*"], rules) for text in passed] == ["allow"] * len(passed)


def test_changing_the_folder_and_then_running_git_is_asked_for() -> None:
    rules = ["cd:*", "ls:*", "git status"]
    decisions = [decide(command, rules, []) for command in ("cd a && ls", "cd a && git status", "cd a")]

    assert decisions == ["allow", "ask", "allow"]


def test_an_allow_of_everything_allows_what_is_certainly_not_denied() -> None:
    harmless = ["for i in *; do echo $i; done", "make > log 2>&1", "X=1 ./run.sh", "git commit -m 'rm the curl docs'", "python a.py"]
    uncertain = ["$EDITOR x", "$(cat name) x", "eval $x", "ls '", "sh -c \"$x\""]

    assert [decide(text, ["*"], DENY) for text in harmless] == ["allow"] * len(harmless)
    assert [decide(text, ["*"], DENY) for text in uncertain] == ["ask"] * len(uncertain)
    assert [decide(text, [":*"], []) for text in uncertain] == ["allow"] * len(uncertain)


def test_what_only_mentions_a_denied_command_is_not_refused() -> None:
    mentions = ["echo rm", "rg curl", "git log push", "cat rm", "ls # rm x", "git commit -m 'git push'", "which curl", "command -v rm"]
    mentions += ["cat > a <<'E'\nrm x\nE", "git log --grep push", "echo 'a; rm x'", "git stash push", "npm run rm-all", "xargs -n 1 grep rm"]

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
    found = differences(list(commands(1_000, seed=7)), tmp_path, seed=7, timeout_s=50)

    record_measure("1,000 commands in bash: wrongly allowed", "0", f"{len(found.wrongly_allowed)} ({found.allowed} allowed)")
    assert (found.wrongly_allowed, found.denied_commands_missed) == ([], [])
    assert found.allowed > 200


def test_hostile_size_does_not_take_long() -> None:
    nested = ["$(" * 2_000 + ")" * 2_000, "env " * 20_000, "echo `" * 2_000, "{a,b}" * 2_000, "timeout 1 " * 3_000 + "ls"]
    began = time.perf_counter()
    decisions = [decide(text, ["*"], DENY) for text in nested]

    assert decisions == ["ask"] * len(nested)
    assert time.perf_counter() - began < 10


def test_the_parser_is_loaded_with_the_first_command_only() -> None:
    script = "import sys, makai.tools.shell_policy; sys.exit('tree_sitter' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == 0


def test_a_decision_is_quick(record_measure: RecordMeasure) -> None:
    text = "git log --oneline -3 && ls -la src | cat"
    decide(text, ALLOW, DENY)
    began = time.perf_counter()
    for _ in range(200):
        decide(text, ALLOW, DENY)
    each_us = (time.perf_counter() - began) / 200 * 1e6

    record_measure("shell decision of three commands", "<= 5 ms", f"{each_us:.0f} us")
    assert each_us < 5_000
