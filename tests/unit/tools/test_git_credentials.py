"""What would show a git configuration with a password or token is asked about first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.looking import git, rules_in, unasked

from makai.tools.base import Tool
from makai.tools.edit import EditTool
from makai.tools.files import ReadTool
from makai.tools.permissions.git_credentials import REASON, holds_credentials
from makai.tools.permissions.judge import Verdict, judge
from makai.tools.search import GlobTool, GrepTool
from makai.tools.workspace import Workspace

TOKEN = "https://token@example.com/x.git"
SHOWS_CONFIGURATION = (
    *("cat .git/config", "head -3 .git/c*", "grep url < .git/config", "cat link", "cd .git && cat config"),
    *("grep -rn url .", "grep -rn url .git", "grep -r url", "rg url .git", "rg --hidden url", "rg -uu url"),
    *("rg -g '.git/*' url", "diff .git/config src/a.py", "cat .git/modules/a/config", "grep -r url .git/modules"),
    *("rg url && grep -r url .", "grep -r -e --exclude-dir=.git ."),
)
SHOWS_OTHER_FILES = (
    *("rg url", "grep -rn url src", "grep -rn url --exclude-dir=.git .", "find . -name '*.py'", "ls -R .git", "tree"),
    *("du -sh .", "git status", "git log -p", "cat .git/HEAD", "cat src/config", "grep -r url .git/refs"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit, a submodule's folder, and a link to its configuration."""
    folder = Path(os.path.realpath(tmp_path)) / "root"
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.py").write_text("x\n")
    (folder / "src/config").write_text(TOKEN)
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "x")
    git(folder, "remote", "add", "origin", "https://example.com/x.git")
    git(folder, "init", "--bare", ".git/modules/a")
    (folder / "link").symlink_to(".git/config")
    return folder


async def run_unasked(root: Path, texts: tuple[str, ...]) -> dict[str, bool]:
    return {text: await unasked(text, root) for text in texts}


async def test_commands_that_show_a_configuration_run_unasked_only_without_credentials(root: Path) -> None:
    both = (*SHOWS_CONFIGURATION, *SHOWS_OTHER_FILES)
    assert await run_unasked(root, both) == dict.fromkeys(both, True)

    for folder in (root, root / ".git/modules/a"):
        git(folder, "config", "remote.origin.url", TOKEN)
    expected = dict.fromkeys(SHOWS_CONFIGURATION, False) | dict.fromkeys(SHOWS_OTHER_FILES, True)
    assert await run_unasked(root, both) == expected


async def test_the_configuration_of_a_submodule_counts_for_a_search_through_the_project(root: Path) -> None:
    git(root / ".git/modules/a", "config", "remote.origin.url", TOKEN)

    texts = ("grep -rn url .", "cat .git/config", "grep -rn url src")
    assert await run_unasked(root, texts) == dict(zip(texts, (False, True, True), strict=True))


async def test_a_rule_covers_what_shows_credentials(root: Path) -> None:
    git(root, "config", "remote.origin.url", TOKEN)

    assert await unasked("cat .git/config", root, allow=["Bash(cat:*)"])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('[remote "o"]\n\turl = https://user:password@example.com/x\n', True),
        ('[http "https://example.com/"]\n\textraheader = AUTHORIZATION: basic x\n', True),
        ("[github]\n\toauth-token = x\n", True),
        ("[sendemail]\n\tsmtpPass = x\n", True),
        ("\udcff", True),
        ('[remote "o"]\n\turl = git@example.com:x\n\tfetch = +refs/heads/*:refs/remotes/o/*\n', False),
        ("[credential]\n\thelper = cache\n[push]\n\tdefault = simple\n", False),
    ],
)
def test_credentials_are_found_in_addresses_headers_and_values(tmp_path: Path, config: str, expected: bool) -> None:
    for folder, name in ((".git", "config"), (".git/worktrees/a", "config.worktree"), ("bare", "config")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "HEAD").touch()
        (tmp_path / folder / name).write_bytes(os.fsencode(config))
    (tmp_path / "config").write_bytes(os.fsencode(config))

    names = (".git/config", ".git/worktrees/a/config.worktree", "bare/config", "config", ".git/missing/config")
    assert [holds_credentials(f"{tmp_path}/{name}") for name in names] == [*[expected] * 3, False, False]


async def verdict(root: Path, tool: Tool, arguments: dict[str, str]) -> Verdict:
    rules = rules_in(str(root))
    return judge("accept_edits", rules, (), tool.definition.name, await tool.describe(arguments))


async def test_file_tools_ask_before_they_show_credentials(root: Path) -> None:
    files = Workspace([root])
    read, grep, glob = ReadTool(files), GrepTool(files), GlobTool(files)
    calls: list[tuple[Tool, dict[str, str]]] = [
        (read, {"path": ".git/config"}),
        (read, {"path": "link"}),
        (grep, {"path": ".git", "pattern": "url"}),
        (grep, {"path": ".git/config", "pattern": "url"}),
    ]
    free: list[tuple[Tool, dict[str, str]]] = [
        (read, {"path": "src/config"}),
        (read, {"path": ".git/HEAD"}),
        (grep, {"pattern": "url"}),
        (glob, {"path": ".git", "pattern": "*"}),
    ]
    assert {(await verdict(root, *call)).decision for call in (*calls, *free)} == {"allow"}

    git(root, "config", "remote.origin.url", TOKEN)
    asked = [await verdict(root, *call) for call in calls]
    assert [(each.decision, each.reason) for each in asked] == [("ask", REASON)] * len(calls)
    assert {(await verdict(root, *call)).decision for call in free} == {"allow"}


async def test_an_edit_does_not_tell_what_a_configuration_with_credentials_lacks(root: Path) -> None:
    tool = EditTool(Workspace([root]))
    guess = {"path": ".git/config", "old_text": "tokem@", "new_text": "x"}
    assert "does not occur" in (await tool.describe(guess)).problem

    git(root, "config", "remote.origin.url", TOKEN)
    assert (await tool.describe(guess)).problem == ""
    assert (await verdict(root, tool, guess)).decision == "ask"
