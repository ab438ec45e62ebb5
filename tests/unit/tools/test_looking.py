"""Commands that only look run unasked, inside the session's folders and nowhere else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.looking import command, judged, rules_in, unasked
from support.machine import RecordMeasure, slack

from makai.core.session_events import PermissionMode
from makai.tools.permissions.git_helpers import SWITCHES
from makai.tools.permissions.judge import judge
from makai.tools.permissions.looking import looked_at, looking_environment
from makai.tools.permissions.rules import PermissionRules, parse_rules
from makai.tools.shell_policy.syntax import MAX_CHARACTERS

ROOT = "/srv/app"
OFTEN_USED = """
ls
ls -la
ls -la src
ls src tests
ls *.md
ls -1 src/*.py
ls && cat README.md
cd src && ls
cd src && git status
pwd
cat README.md
cat README.md | head -50
cat src/main.py src/util.py
cat pyproject.toml 2>/dev/null
head -n 40 src/main.py
tail -20 app.log
tail -n +10 src/main.py | head -30
wc -l src/*.py
wc -l **/*.py
wc -l < README.md
sed -n '1,80p' src/main.py
sed -n '10,20p;30,40p' src/main.py
sed 's/foo/bar/g' src/main.py
awk '{print $1}' data.txt
awk -F, 'NR==1 {print NF}' data.csv
grep -rn foo src
grep -rn foo src | head
grep -rn "def main" --include=*.py .
grep -rln TODO . 2>/dev/null | wc -l
grep -n 'class \\w*' src/main.py
grep -c . README.md
rg -n foo
rg -n --hidden -g '!node_modules' foo src
rg --files | head -100
rg -l foo -t py
find . -name '*.py'
find . -name '*.py' | wc -l
find . -type f -not -path './node_modules/*' | sort | head -50
find src -maxdepth 2 -type d
find . -name '*.ts' -o -name '*.tsx'
tree -L 2
fd main src
du -sh .
stat README.md
file src/main.py
diff -u a.txt b.txt
sort data.txt | uniq -c | sort -rn | head -20
cut -d: -f1 data.txt
jq '.scripts' package.json
echo "=== files ===" && ls
which python3 node
python3 --version
node --version
date +%Y-%m-%d
git status
git status --short
git log --oneline -5
git log -3 --stat
git diff
git diff HEAD~1 --stat
git diff --cached
git show HEAD
git show HEAD:README.md | head
git branch -a
git branch --show-current
git remote -v
git rev-parse --show-toplevel
git ls-files | head -50
git blame -L 1,20 src/main.py
git grep -n foo
test -f README.md && echo yes
env
ps aux
xargs cat < list.txt
npm ls --depth=0
""".strip().splitlines()


def quiet(**written: list[str]) -> PermissionRules:
    return rules_in(ROOT, **written)


def decided(text: str, rules: PermissionRules | None = None, mode: PermissionMode = "ask", folder: str = ROOT) -> str:
    return judge(mode, rules or quiet(), (), "shell", command(text, folder)).decision


def test_plain_looking_commands_run_unasked(record_measure: RecordMeasure) -> None:
    asked = [text for text in OFTEN_USED if decided(text) != "allow"]

    record_measure(f"{len(OFTEN_USED)} looking commands: unasked", ">= 11 of 12", str(len(OFTEN_USED) - len(asked)))
    assert asked == ["env", "ps aux", "xargs cat < list.txt", "npm ls --depth=0"]
    assert [text for text in OFTEN_USED if decided(text, mode="plan") != decided(text)] == ["env", "ps aux", *asked[2:]]
    assert len(OFTEN_USED) - len(asked) >= 55


CHANGES = [
    *("rm x", "touch x", "ls > x", "ls >> x", "ls; rm x", "ls | tee x", "find . -delete", "sort -o a b", "uniq a b"),
    *("git branch x", "git branch --list --no-list -D victim", "git tag x", "git stash", "git log --output=x"),
    *("git grep -lO'touch p;' x", "git -C .. status", "git -c core.pager=x log", "git config a b", "git fetch"),
    *("printf '%ln' PATH; ls", "printf -v PATH x", "tree -Lo 1 out", "uniq a -- -out", "date 01010000", "fd -l"),
    *("LESSOPEN=x less a", "GIT_EXTERNAL_DIFF=x git diff", "export A=1; ls", "BASH_ENV=x ls", "A=1 ls"),
    *("cat <<E\nx\nE", "cat <(ls)", "ls $(rm x)", "ls `rm x`", "[[ x -eq a[$(cmd)] ]]", "history -w x", "hash -p x ls"),
    *("sort f --out=x", "sed -i p x", "sed 's/a/b/e' x", "awk 'BEGIN{system(\"x\")}'", "awk '{print > \"x\"}' f"),
    *("users /var/log/wtmp", "uptime /var/log/wtmp"),
    *("xxd a b", "tail -f x", "curl https://x", "wget -qO- x", "./ls", "/bin/ls", "\\ls", "'ls'", "command ls"),
    *(
        "find . -exec ls {} +",
        "rg --pre x y",
        "rg -z x",
        "diff -l a b",
        "git show --ext-diff",
        "git diff --no-index a b",
    ),
    *("ls &", "ls |& cat", "(ls)", "ls 2> x", "ls 3>/dev/null", "cd src; ls", "cd x || ls", "cd src", "cd src | ls"),
    *(
        "cd - && ls",
        "cd && ls",
        "cd a/.. && ls",
        "cd src && cd .. && cat x",
        "ls\ncd src",
        "env ls",
        "xargs ls",
        "man ls",
        "python3 -c 1",
        "git help",
        "git lfs ls",
    ),
]


@pytest.mark.parametrize("text", CHANGES)
def test_what_may_do_more_than_look_is_asked_and_in_plan_mode_denied(text: str) -> None:
    assert (decided(text), decided(text, mode="plan")) == ("ask", "deny")


SIGNATURES = [
    *("git log --format=%G?", "git log --format='%+G?'", "git show -s --format=%-GS", "git log --pretty='format:% G?'"),
    *("git rev-list --format='%w(10)%+GK' HEAD", "git shortlog --group='format:%+G?' HEAD", "git reflog --format=%+G?"),
    *("git stash list --format=%+G?", "git log --show-signature", "git branch --format='%(signature:grade)'"),
    *(
        "git for-each-ref --sort=-signature",
        "git tag --list --format='%(*signature)'",
        "git log --format='%(describe)'",
    ),
]


@pytest.mark.parametrize("text", SIGNATURES)
def test_a_format_that_has_git_run_another_program_is_asked_about(text: str) -> None:
    rules = quiet(allow=[f"Bash({' '.join(text.split()[:2])}:*)", "Bash(git stash list:*)"])

    assert (decided(text), decided(text, rules)) == ("ask", "ask")


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        *((f"git config {words}", "ask") for words in ("-l", "--get user.name", "--get-regexp .", "user.name")),
        *((f"git config {words}", "ask") for words in ("--global -l", "--local --global -l", "--local --includes -l")),
        *((f"git config {words}", "ask") for words in ("-l --no-local", "--local --no-local -l", "--local a b")),
        *((f"git config {words}", "allow") for words in ("-l --local", "--worktree -l", "--local --get a.b")),
    ],
)
def test_the_configuration_of_the_user_is_not_shown_unasked(text: str, decision: str) -> None:
    assert decided(text) == decision


OUTSIDE = [
    *(
        "cat /etc/passwd",
        "cat ../x",
        "ls ..",
        "ls /",
        "grep -rn x /etc",
        "find / -name x",
        "cat src/../../x",
        "cat <../x",
    ),
    *("wc -l < /etc/passwd", "cd /etc && cat passwd", "ls /srv/app-secret", "git diff /etc/a /etc/b"),
    *("rg x ..", "ls ../*", "grep -f /etc/x y", "diff -u a /etc/passwd", "sed -n 1p /etc/passwd", "test -f /etc/x"),
    *("date -r /etc/x", "stat /etc/x", "cat a ../b", "find . -newer /etc/x", "head -5 /etc/hosts", "cat /dev/sda"),
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_what_looks_outside_of_the_folders_is_asked_in_every_mode(text: str) -> None:
    assert [decided(text, mode=mode) for mode in ("ask", "accept_edits", "plan")] == ["ask"] * 3


@pytest.mark.parametrize(
    "text", ["cat ~/.netrc", "ls ~", "cat $HOME/x", "cat {a,b}", "ls [a]*", "rm *", "find -name *.py"]
)
def test_what_the_shell_makes_something_else_of_is_asked(text: str) -> None:
    assert decided(text) == "ask"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "grep -R x .",
            "find -L . -name x",
            "find . -follow",
            "rg -L x",
            "fd -L x",
            "tree -l",
            "du -L",
            "diff -r a b",
        ),
        *("ls -RL", "ls --recursive --dereference", "ls -laR /srv"),
    ],
)
def test_what_follows_links_is_asked(text: str) -> None:
    assert decided(text) == "ask"


def test_the_other_roots_of_a_session_may_be_looked_at() -> None:
    assert decided("cat /srv/lib/a /srv/app/b /dev/null") == "allow"
    assert decided("ls", folder="/srv/lib/x") == "allow"
    assert decided("ls", folder="/srv/other") == "ask"


def test_nothing_runs_unasked_where_commands_are_not_confined() -> None:
    bare = parse_rules(workspace=ROOT)

    assert (decided("ls", bare), decided("ls", bare, "plan")) == ("ask", "ask")


DENIED = {"deny": ["Read(.env)", "Read(secret/**)"]}


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("cat .env", "ask"),
        ("cat sub/.ENV", "ask"),
        ("head -3 ./x/../.env", "ask"),
        ("wc -l < .env", "ask"),
        ("cat secret/a", "ask"),
        ("ls secret", "ask"),
        ("cd secret && ls", "ask"),
        ("grep -rn x .", "ask"),
        ("grep -rn x src", "ask"),
        ("rg x", "ask"),
        ("find . -name x", "ask"),
        ("ls -R", "ask"),
        ("git diff", "ask"),
        ("git show HEAD:.env", "ask"),
        ("git log -p", "ask"),
        ("git grep x", "ask"),
        ("cat README.md", "allow"),
        ("ls -la", "allow"),
        ("git status", "allow"),
        ("echo x", "allow"),
    ],
)
@pytest.mark.parametrize("key", ["deny", "ask"])
def test_a_file_that_may_not_be_read_is_not_looked_at(text: str, decision: str, key: str) -> None:
    assert decided(text, quiet(**{key: DENIED["deny"]})) == decision


def test_a_rule_for_all_reading_or_for_the_command_itself_counts() -> None:
    assert [decided("cat a", quiet(**{key: ["Read"]})) for key in ("deny", "ask")] == ["ask", "ask"]
    assert [decided("cat a", quiet(**{key: ["Bash(cat:*)"]})) for key in ("deny", "ask")] == ["deny", "ask"]


# What the file system says -------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "root"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("x\n")
    (folder.parent / "outside").write_text("secret\n")
    return folder


async def test_a_link_that_leads_outside_is_asked_about(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    (root / "folder").symlink_to("..")

    looked = {text: await unasked(text, root) for text in ("cat src/a.py", "cat link", "ls folder", "cat l*", "ls s*")}
    assert looked == {"cat src/a.py": True, "cat link": False, "ls folder": False, "cat l*": False, "ls s*": True}
    assert (await judged("cat link", root)).grant == "Bash(cat link)"


async def test_a_name_that_looks_like_an_option_is_asked_about(root: Path) -> None:
    assert await unasked("sort *", root)
    (root / "-oout").touch()
    assert [await unasked(text, root) for text in ("sort *", "sort src/*", "sort ./*")] == [False, True, True]


async def test_another_name_of_a_file_that_may_not_be_read_is_asked_about(root: Path) -> None:
    (root / ".env").write_text("secret\n")
    (root / "soft").symlink_to(".env")
    os.link(root / ".env", root / "hard")
    texts = ("cat soft", "cat hard", "cat h*", "cat src/a.py")

    assert [await unasked(text, root, deny=["Read(.env)"]) for text in texts] == [False, False, False, True]


def test_no_program_of_the_sessions_folders_is_found(root: Path) -> None:
    environ = {"PATH": f"{root}/bin:/usr/bin::.:bin:{root}:/bin", "LANG": "C"}

    assert looking_environment(environ, [str(root)]) == {"LANG": "C", "PATH": "/usr/bin:/bin", **SWITCHES}


def test_no_variable_makes_a_program_load_code_of_the_sessions_folders(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    loaded = [
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "NODE_PATH"),
        "NODE_OPTIONS",
    ]
    loaded += [
        "GEM_PATH",
        "GEM_HOME",
        "RUBYOPT",
        "PERL5LIB",
        "PERL5OPT",
        "BASH_ENV",
        "GCONV_PATH",
        "GOFLAGS",
        "UNKNOWN",
    ]
    inside = {
        "GOROOT": str(root),
        "XDG_CONFIG_HOME": f"{root.parent}/link/x",
        "JAVA_HOME": "jdk",
        "GOPATH": f"/go:{root}",
    }
    kept = {"LC_ALL": "C", "HOME": str(root.parent), "CARGO_HOME": "/usr", "VIRTUAL_ENV": f"{root}/.venv"}

    found = looking_environment({**dict.fromkeys(loaded, "/x"), **inside, **kept}, [str(root)])

    assert found == {**kept, "PATH": "", **SWITCHES}


HOSTILE = [
    "awk 'AA'",
    "awk 'a(A('",
    "sed 's/[A'",
    "sed 's/\\aA'",
    "sed 'p;A'",
    "sed '/A'",
    "printf '%(A'",
    "printf '%(%aA'",
]
HOSTILE += [
    "find . -name xA",
    "ls  aA",
    "git log -p A",
    "ls */A",
    "ls * A",
    "jq 'env A'",
    "ls -lA",
    "ls|A",
    "cat <a A",
    "ls --aA",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_reading_a_command_is_quick_whatever_is_repeated_in_it(text: str) -> None:
    """An A repeats the word or the sign before it until the longest text that is read."""
    before, _, after = text.partition("A")
    repeated = before.rpartition(" ")[2].lstrip("'") or before[-3:]
    long_text = before + repeated * ((MAX_CHARACTERS - len(text)) // len(repeated)) + after
    begun = time.process_time()
    looked_at(long_text, "/r")

    assert time.process_time() - begun < 0.1 * slack()


def test_what_a_command_reads_is_told_whole() -> None:
    found = looked_at("cd src && grep -rn x a *.py | head -5 < b", "/r")

    assert found is not None
    assert (found.paths, found.trees, found.globs) == (
        ("/r/src", "/r/src/a", "/r/src/b"),
        ("/r/src/a", "/r/src/*.py"),
        ("/r/src/*.py",),
    )
    assert (found.searched, found.followed) == (found.trees, ())
    assert (found.bare_globs, found.repositories, found.whole_repository) == (("/r/src/*.py",), (), False)


@pytest.mark.parametrize(
    ("text", "trees", "searched", "followed"),
    [
        ("true | grep -r x", ("/r",), ("/r",), ()),
        ("grep -r x - < a", ("/r/-", "/r/a"), ("/r/-", "/r/a"), ()),
        ("grep -rf a", ("/r", "/r/a"), ("/r", "/r/a"), ()),
        ("true | grep x", (), (), ()),
        ("find -newer a", ("/r", "/r/a"), (), ()),
        ("ls", (), (), ()),
        ("ls -L a", (), (), ("/r/a",)),
        ("ls -L", (), (), ("/r",)),
        ("diff a /dev/null", ("/r/a",), ("/r/a",), ("/r/a",)),
    ],
)
def test_folders_are_told_by_what_is_shown_of_them(
    text: str, trees: tuple[str, ...], searched: tuple[str, ...], followed: tuple[str, ...]
) -> None:
    found = looked_at(text, "/r")

    assert found is not None
    assert (found.trees, found.searched, found.followed) == (trees, searched, followed)
