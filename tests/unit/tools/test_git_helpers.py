"""A repository that makes git run programs, or read another repository, is asked about; an ordinary one is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.looking import git, judged, unasked

from makai.core.session_events import PermissionMode
from makai.tools.permissions.git_repository import UnusualRepository, repository_at, tracked_paths
from makai.tools.permissions.judge import HELPERS_REASON
from makai.tools.permissions.looking import LooksAt, looking_environment

LOOKS = ("git status", "git diff", "git log -p")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit, and a folder beside it."""
    folder = Path(os.path.realpath(tmp_path)) / "root"
    make_repository(folder)
    (folder.parent / "outside").mkdir()
    (folder.parent / "outside/secret").write_text("secret\n")
    return folder


def make_repository(folder: Path) -> None:
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.py").write_text("x\n")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "x")


async def looked(root: Path, texts: tuple[str, ...] = LOOKS) -> list[bool]:
    return [await unasked(text, root) for text in texts]


CONFIGURED = {
    "fsmonitor": "[core]\n\tfsmonitor = ./x\n",
    "a clean filter": '[filter "f"]\n\tclean = ./x\n',
    "a text converter": '[diff "d"]\n\ttextconv = ./x\n',
    "an external diff": "[diff]\n\texternal = ./x\n",
    "an include": "[include]\n\tpath = other\n",
    "on the section's line": "[core] fsmonitor = ./x\n",
    "a continued line": "[core]\n\tfilemode = true \\\n\tfsmonitor = ./x\n",
    "hooks": "[core]\n\thooksPath = x\n",
    "a pager": "[pager]\n\tlog = ./x\n",
    "another work tree": "[core]\n\tworktree = /etc\n",
    "a promisor": '[remote "o"]\n\tpromisor = true\n',
    "upper case": "[CORE]\n\tFSMonitor = ./x\n",
    "another object format": "[extensions]\n\tobjectFormat = sha256\n",
    "a named format": "[pretty]\n\tx = %G?\n",
    "a format": "[format]\n\tpretty = %G?\n",
    "summaries of submodules": "[status]\n\tsubmoduleSummary = true\n",
    "not text": "\x00\n",
}


@pytest.mark.parametrize("config", CONFIGURED.values(), ids=CONFIGURED.keys())
async def test_a_repository_whose_configuration_may_run_something_is_asked_about(root: Path, config: str) -> None:
    git(root, "remote", "add", "origin", "https://example.com/x.git")
    texts = ("git status", "git log -p", "cd src && git diff")
    assert [await unasked(text, root) for text in texts] == [True, True, True]

    with (root / ".git/config").open("a") as file:
        file.write(config)
    assert [await unasked(text, root) for text in (*texts, "ls")] == [False, False, False, True]


# Which repository git uses -----------------------------------------------------------------------------------------


PASSED_BY = {
    "an empty folder": {".git/": ""},
    "a folder without refs": {".git/objects/": "", ".git/HEAD": "ref: refs/heads/main\n"},
    "a branch that is none": {".git/objects/": "", ".git/refs/": "", ".git/HEAD": "ref: x\n"},
    "a file that names nothing": {".git": "no such thing"},
    "a bare repository": {"objects/": "", "refs/": "", "HEAD": "ref: refs/heads/main\n"},
}


@pytest.mark.parametrize("files", PASSED_BY.values(), ids=PASSED_BY.keys())
async def test_a_folder_that_git_may_pass_by_is_asked_about(root: Path, files: dict[str, str]) -> None:
    texts = ("cd src && git status", "cd src && git log -p")
    assert await looked(root, texts) == [True, True]

    for name, text in files.items():
        if name.endswith("/"):
            (root / "src" / name).mkdir(parents=True)
        else:
            (root / "src" / name).write_text(text)
    assert await looked(root, texts) == [False, False]
    assert [(await judged(text, root, mode="plan")).decision for text in texts] == ["ask", "ask"]


async def test_a_repository_outside_of_the_session_is_not_found_past_an_empty_one(root: Path) -> None:
    (root / "src/.git").mkdir()

    assert await looked(root / "src") == [False, False, False]


async def test_a_blank_at_the_end_of_a_path_belongs_to_it(root: Path) -> None:
    (root / ".git").rename(root / "g")
    (root / ".git").write_text("gitdir: g\n")
    assert await looked(root) == [True, True, True]

    (root / ".git").write_text("gitdir: g \n")
    assert await looked(root) == [False, False, False]
    make_repository(root.parent / "hostile")
    git(root.parent / "hostile", "config", "filter.x.clean", "./x")
    (root.parent / "hostile/.git").rename(root / "g ")
    assert await looked(root) == [False, False, False]

    (root / ".git").write_text("gitdir: g\n")
    assert await looked(root) == [True, True, True]
    (root / "g/commondir").write_text("../g \n")
    assert await looked(root) == [False, False, False]


async def test_worktrees_and_repositories_above_are_seen(root: Path) -> None:
    git(root, "worktree", "add", "tree")
    assert await looked(root / "tree") == [True, True, True]
    assert await looked(root / "src") == [True, False, False]

    git(root, "config", "core.fsmonitor", "./x")
    assert [await looked(root / name) for name in (".", "src", "tree")] == [[False] * 3] * 3


async def test_the_worktrees_of_a_bare_repository_are_ordinary(root: Path) -> None:
    bare = root.parent / "bare"
    git(root, "clone", "--bare", ".", str(bare))
    git(bare, "worktree", "add", "tree")
    (bare / "tree/link").symlink_to(root)
    assert [await looked(folder) for folder in (bare / "tree", bare)] == [[True] * 3, [False] * 3]

    (bare / "worktrees/other").symlink_to(root)
    assert await looked(bare / "tree") == [False, False, False]


async def test_a_repository_that_is_another_one_is_asked_about(root: Path) -> None:
    other, trees = root.parent / "other", root.parent / "trees"
    make_repository(other)
    trees.mkdir()
    git(other, "worktree", "add", str(trees / "tree"))
    (root / ".git").rename(root / "own")
    (root / ".git").write_text(f"gitdir: {other}/.git\n")
    assert await looked(root) == [False, False, False]

    (root / ".git").write_text(f"gitdir: {other}/.git/worktrees/tree\n")
    assert await looked(root) == [False, False, False]

    (root / ".git").unlink()
    (root / ".git").symlink_to(other / ".git")
    assert await looked(root) == [False, False, False]

    (root / ".git").unlink()
    (root / "own").rename(root / ".git")
    assert await looked(root) == [True, True, True]
    (root / ".git/commondir").write_text(f"{other}/.git\n")
    assert await looked(root) == [False, False, False]
    (root / ".git/commondir").unlink()
    (root / ".git/objects/info").mkdir(exist_ok=True)
    (root / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    assert await looked(root) == [False, False, False]
    assert await looked(trees / "tree") == [True, True, True]


async def test_a_repository_does_not_become_a_worktree_of_another_by_its_own_word(root: Path) -> None:
    other = root.parent / "other"
    make_repository(other)
    (root / ".git").rename(root / "g")
    (root / ".git").write_text("gitdir: g\n")
    (root / "g/gitdir").write_text(f"{root}/.git\n")
    git(root, "config", "core.worktree", str(root))
    assert await looked(root) == [True, True, True]

    (root / "g/commondir").write_text(f"{other}/.git\n")
    assert await looked(root) == [False, False, False]


@pytest.mark.parametrize(
    "name", ["objects", "objects/pack", "refs", "refs/heads/main", "HEAD", "config", "index", "logs", "info/exclude"]
)
async def test_a_link_among_the_files_of_a_repository_is_asked_about(root: Path, name: str) -> None:
    (root / ".git" / name).rename(root.parent / "outside/moved")
    (root / ".git" / name).symlink_to(root.parent / "outside/moved")

    assert await looked(root) == [False, False, False]


async def test_a_link_in_a_state_that_git_status_shows_is_asked_about(root: Path) -> None:
    (root / ".git/rebase-merge").mkdir()
    assert await looked(root) == [True, True, True]

    (root / ".git/rebase-merge/done").symlink_to(root.parent / "outside/secret")
    assert await looked(root) == [False, False, False]


async def test_hooks_may_be_links(root: Path) -> None:
    (root / ".git/hooks/pre-commit").symlink_to("../../src/a.py")

    assert await looked(root) == [True, True, True]


# What the index names ----------------------------------------------------------------------------------------------


async def test_a_nested_repository_counts_when_the_index_names_it(root: Path) -> None:
    make_repository(root / "sub")
    git(root / "sub", "config", "filter.x.clean", "./x")
    texts = (*LOOKS, "git diff-files", "git diff-index HEAD")
    assert await looked(root, texts) == [True] * 5

    git(root, "add", "sub")
    assert await looked(root, texts) == [False] * 5
    assert (await judged("git status", root, mode="plan")).decision == "ask"
    git(root / "sub", "config", "--unset", "filter.x.clean")
    assert await looked(root, texts) == [True] * 5


async def test_an_ordinary_submodule_is_looked_at_and_a_hostile_one_is_asked_about(root: Path) -> None:
    other = root.parent / "other"
    make_repository(other)
    git(root, "submodule", "add", str(other), "deep/sub")
    git(root, "commit", "-m", "sub")
    assert (root / "deep/sub/.git").is_file()
    assert [await looked(root / name) for name in (".", "deep/sub")] == [[True] * 3] * 2

    git(root / "deep/sub", "config", "core.worktree", str(other))
    assert [await looked(root / name) for name in (".", "deep/sub")] == [[False] * 3] * 2
    git(root / "deep/sub", "config", "core.worktree", "../../../../deep/sub")
    assert await looked(root) == [True] * 3
    git(root / "deep/sub", "config", "diff.external", "./x")
    assert [await looked(root / name) for name in (".", "deep/sub")] == [[False] * 3] * 2


async def test_what_looks_into_submodules_of_the_history_is_asked_about(root: Path) -> None:
    texts = ("git log -p --submodule=diff", "git show --submodule=log", "git diff --submodule")

    assert await looked(root, texts) == [False, False, False]


async def test_a_link_in_place_of_a_tracked_folder_is_asked_about(root: Path) -> None:
    (root / "src/a.py").unlink()
    (root / "src").rmdir()
    (root / "src").symlink_to(root.parent / "outside")

    assert await looked(root, ("git grep x", "git status")) == [False, False]


@pytest.mark.parametrize("version", ["2", "3", "4"])
async def test_every_version_of_the_index_is_read(root: Path, version: str) -> None:
    for number in range(20):
        (root / f"src/{'long' * number}.py").touch()
    (root / f"src/{'n' * 200}").mkdir()
    (root / f"src/{'n' * 200}" / ("m" * 250)).touch()
    git(root, "add", ".")
    if version == "3":
        (root / "later").touch()
        git(root, "add", "--intent-to-add", "later")
    else:
        git(root, "update-index", "--index-version", version)
    assert (root / ".git/index").read_bytes()[4:8] == bytes([0, 0, 0, int(version)])
    assert await looked(root) == [True, True, True]

    make_repository(root / "sub")
    git(root / "sub", "config", "filter.x.clean", "./x")
    git(root, "add", "sub")
    assert await looked(root) == [False, False, False]


async def test_an_index_that_names_files_outside_is_asked_about(root: Path) -> None:
    index = (root / ".git/index").read_bytes()
    for name in (b"../a.txt", b"/etc/mtd", b"sr/../ab"):
        (root / ".git/index").write_bytes(index.replace(b"src/a.py", name))
        assert await looked(root) == [False, False, False]


async def test_an_index_that_continues_elsewhere_is_asked_about(root: Path) -> None:
    git(root, "update-index", "--split-index")

    assert await looked(root) == [False, False, False]


@pytest.mark.parametrize("version", ["2", "4"])
def test_an_index_that_is_cut_is_not_read(root: Path, version: str) -> None:
    git(root, "update-index", "--index-version", version)
    index, repository = (root / ".git/index").read_bytes(), repository_at(root)
    assert list(tracked_paths(repository)) == [(0o100644, "src/a.py")]

    for length in range(12 + 62 + 8):
        (root / ".git/index").write_bytes(index[:length])
        with pytest.raises(UnusualRepository):
            list(tracked_paths(repository))


# How git runs ------------------------------------------------------------------------------------------------------


SHOWN = """
git status
git status --short
git diff
git diff --stat
git diff --cached
git diff HEAD
git diff HEAD --stat -M
git diff-index HEAD
git log -p
git log --stat --format=fuller
git show
git show HEAD:src/renamed.py
git stash list
git stash show -p
git blame -s src/a.py
git grep -n y
git ls-files -s
git branch -vv
""".strip().splitlines()


def test_an_ordinary_repository_is_shown_as_plain_git_shows_it(root: Path) -> None:
    other = root.parent / "other"
    make_repository(other)
    git(root, "submodule", "add", str(other), "sub")
    git(root, "commit", "-m", "sub")
    (root / "src/a.py").write_text("stashed\n")
    git(root, "stash")
    git(root, "mv", "src/a.py", "src/renamed.py")
    git(root, "commit", "-m", "renamed")
    git(root, "mv", "src/renamed.py", "src/a.py")
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    (root / "src/a.py").write_text("x\ny\n")
    (root / "sub/src/a.py").write_text("changed\n")
    plain = {"PATH": os.environ["PATH"], "HOME": str(root.parent)}

    def shown(environ: dict[str, str]) -> list[tuple[int, bytes, bytes]]:
        done = [
            subprocess.run(text.split(), cwd=root, env=environ, capture_output=True, timeout=30, check=False)
            for text in SHOWN
        ]
        return [(each.returncode, each.stdout, each.stderr) for each in done]

    expected = shown(plain)
    assert [code for code, _, _ in expected] == [0] * len(SHOWN)
    assert shown(looking_environment(plain, [str(root)])) == expected


def test_git_runs_no_helper_with_the_switches_on(root: Path) -> None:
    (root / "src/a.py").write_text("y\n")
    (root / "run").write_text(f"#!/bin/sh\ntouch {root}/ran\n")
    (root / "run").chmod(0o755)
    (root / ".git/hooks/post-index-change").write_text(f"#!/bin/sh\ntouch {root}/ran\n")
    (root / ".git/hooks/post-index-change").chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "gpg.program"):
        git(root, "config", key, str(root / "run"))
    environ = looking_environment(dict(os.environ), [str(root)])
    texts = ("status", "diff", "log -p", "show", "ls-files -m", "grep x", "log --show-signature")

    def ran(environ: dict[str, str]) -> list[str]:
        found = []
        for text in texts:
            subprocess.run(["git", *text.split()], cwd=root, env=environ, capture_output=True, timeout=30)
            if (root / "ran").exists():
                (root / "ran").unlink()
                found.append(text)
        return found

    assert (ran(environ), "status" in ran(dict(os.environ))) == ([], True)


# Addresses -----------------------------------------------------------------------------------------------------------


SHOWS_ADDRESSES = ("git remote -v", "git remote get-url origin", "git config --local --list")
WITH_CREDENTIALS = (
    "https://token@example.com/x.git",
    "HTTPS://user:password@example.com/x.git",
    "ssh://user:password@example.com/x.git",
    "https://example.com/x.git?private_token=1",
)
WITHOUT_CREDENTIALS = ("https://example.com/x@2.git", "git@example.com:x.git", "ssh://git@example.com:22/x", "../x")


async def test_addresses_of_remotes_are_shown_unasked_only_without_credentials(root: Path) -> None:
    git(root, "remote", "add", "origin", "x")
    found: dict[str, list[bool]] = {}
    for address in (*WITH_CREDENTIALS, *WITHOUT_CREDENTIALS):
        git(root, "remote", "set-url", "origin", address)
        found[address] = await looked(root, (*SHOWS_ADDRESSES, "git status && git remote --verbose", "git remote"))

    expected = {address: [False] * 4 + [True] for address in WITH_CREDENTIALS}
    assert found == expected | {address: [True] * 5 for address in WITHOUT_CREDENTIALS}


def test_addresses_are_shown_without_the_tokens_of_the_users_own_configuration(root: Path, tmp_path: Path) -> None:
    token = '[url "https://token@example.com/"]\n\tinsteadOf = https://example.com/\n'
    (tmp_path / ".gitconfig").write_text(token)
    git(root, "remote", "add", "origin", "https://example.com/x.git")

    def shown(*, shows_addresses: bool) -> str:
        given = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        environ = looking_environment(given, [str(root)], shows_addresses=shows_addresses)
        words = ["git", "remote", "get-url", "origin"]
        return subprocess.check_output(words, cwd=root, env=environ, timeout=30, text=True).strip()

    found = [shown(shows_addresses=False), shown(shows_addresses=True)]
    assert found == ["https://token@example.com/x.git", "https://example.com/x.git"]


async def test_a_rule_shows_addresses_as_they_are(root: Path) -> None:
    git(root, "remote", "add", "origin", WITH_CREDENTIALS[0])

    assert (await judged("git remote -v", root, allow=["Bash(git remote:*)"])).looks_at == LooksAt(
        repositories=(str(root),)
    )


# Rules ---------------------------------------------------------------------------------------------------------------


HELPERS = ("core.fsmonitor", "core.hooksPath", "core.pager", "diff.external", "diff.x.textconv", "filter.x.clean")
RULES = ["Bash(git status:*)", "Bash(git diff:*)", "Bash(cat:*)", "Bash(git commit:*)"]


@pytest.mark.parametrize("key", HELPERS)
async def test_a_rule_runs_no_helper_of_a_repository_in_plan_mode(root: Path, key: str) -> None:
    texts = ("git status -s", "git diff", "cat src/a.py", "cat /etc/hostname")
    assert [await judged_by_rule(text, root, "plan") for text in texts] == [("allow", True)] * 4

    git(root, "config", key, "./x")
    expected = [("ask", False), ("ask", False), ("allow", True), ("allow", True)]
    assert [await judged_by_rule(text, root, "plan") for text in texts] == expected


@pytest.mark.parametrize("mode", ["ask", "accept_edits"])
@pytest.mark.parametrize("key", HELPERS)
async def test_a_rule_for_git_commands_that_only_look_runs_no_helper_of_a_repository(
    root: Path, key: str, mode: PermissionMode
) -> None:
    texts = ("git status -s", "git diff", "cat /etc/hostname", "git commit -m x")
    expected = [("allow", True), ("allow", True), ("allow", False), ("allow", False)]
    assert [await judged_by_rule(text, root, mode) for text in texts] == expected

    git(root, "config", key, "./x")
    expected[:2] = [("ask", False), ("ask", False)]
    assert [await judged_by_rule(text, root, mode) for text in texts] == expected
    assert (await judged("git diff", root, mode=mode, allow=RULES)).reason == HELPERS_REASON


@pytest.mark.parametrize("rule", ["Bash", "Bash(*)", "Bash(:*)", "shell"])
async def test_a_rule_for_every_command_covers_the_helpers_of_a_repository_too(root: Path, rule: str) -> None:
    git(root, "config", "filter.x.clean", "./x")

    verdict = await judged("git diff", root, allow=[rule])
    assert (verdict.decision, verdict.looks_at) == ("allow", LooksAt())


async def judged_by_rule(text: str, root: Path, mode: PermissionMode) -> tuple[str, bool]:
    """The decision, and whether the command runs read-only and with the helpers of git off."""
    verdict = await judged(text, root, mode=mode, allow=RULES)
    return verdict.decision, verdict.looks_at is not None


def fill_index(root: Path, count: int) -> None:
    def said(*words: str, given: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=root, input=given.encode(), capture_output=True, check=True, timeout=60
        )
        return done.stdout.decode().strip()

    blob = said("hash-object", "-w", "--stdin", given="x")
    entries = (f"100644 {blob}\tfolder{number % 200}/file-{number}.py\n" for number in range(count))
    said("update-index", "--index-info", given="".join(entries))


async def test_a_repository_with_many_files_stays_quiet(root: Path) -> None:
    """The process that judges has 50 MB and little time; the index of 20,000 files is 2 MB."""
    fill_index(root, 20_000)

    assert await unasked("git status", root)
