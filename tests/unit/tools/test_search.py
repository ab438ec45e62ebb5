"""The tools glob and grep, and what they are made of."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from support.machine import slack
from support.orphan_trials import Silent, processes_with, text_of

from makai.core.errors import InvalidRequest
from makai.core.session_events import FilePlace
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.permissions.path_patterns import GlobPattern, IgnoreRules
from makai.tools.permissions.rules import denied_paths, parse_rules
from makai.tools.search import GlobTool, GrepTool
from makai.tools.workspace import Workspace


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "a.py": "import os\nprint('Needle')\n",
        "src/b.py": "needle = 1\n",
        "src/c.ts": "const needle = 2\n",
        "src/deep/d.tsx": "none\n",
        ".git/config": "needle\n",
        "node_modules/x/index.js": "needle\n",
        "build/out.py": "needle\n",
        "src/gen/made.py": "needle\n",
        "src/gen/kept.py": "needle\n",
        ".gitignore": "/build/\n# made by a program\nsrc/gen/*\n!kept.py\n*.log\n",
        "x.log": "needle\n",
        ".makai-home/token": "needle\n",
    }
    for name, content in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "root" / "binary").write_bytes(b"needle\0")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text("needle\n")
    (tmp_path / "root" / "way-out").symlink_to("../outside")
    return tmp_path / "root"


def workspace(tree: Path) -> Workspace:
    return Workspace([tree], hidden=[tree / ".makai-home"])


async def glob(tree: Path, **arguments: Any) -> ToolOutcome:
    return await GlobTool(workspace(tree)).run(arguments, Silent())


async def grep(tree: Path, deadline_s: float = 20.0, **arguments: Any) -> ToolOutcome:
    return await GrepTool(workspace(tree), deadline_s=deadline_s).run(arguments, Silent())


async def test_glob_finds_files_and_skips_what_git_ignores_and_what_is_hidden(tree: Path) -> None:
    assert await glob(tree, pattern="*.py") == text_outcome("a.py\nsrc/b.py\nsrc/gen/kept.py")
    assert await glob(tree, pattern="src/**/*.{ts,tsx}") == text_outcome("src/c.ts\nsrc/deep/d.tsx")
    assert await glob(tree, pattern="*", path="node_modules") == text_outcome("node_modules/x/index.js")
    assert await glob(tree, pattern="token") == text_outcome("[nothing found]")


async def test_grep_tells_file_line_and_text(tree: Path) -> None:
    assert await grep(tree, pattern="needle", glob="*.{py,ts}") == text_outcome(
        "src/b.py:1: needle = 1\nsrc/c.ts:1: const needle = 2\nsrc/gen/kept.py:1: needle"
    )
    assert await grep(tree, pattern="NEEDLE", path="a.py", ignore_case=True) == text_outcome("a.py:2: print('Needle')")
    assert await grep(tree, pattern="needle", files_only=True, limit=1) == text_outcome(
        "src/b.py\n[there are more; use a narrower pattern or path]\n[1 binary files not searched]"
    )


async def test_grep_matches_each_line_by_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one\r\ntwo\nlast")

    assert await grep(tmp_path, pattern=r"^\w+$") == text_outcome("file:1: one\nfile:2: two\nfile:3: last")
    assert await grep(tmp_path, pattern=r"one\s+two") == text_outcome("[nothing found]")


async def test_long_lines_are_cut_around_the_match(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a" * 5000 + "needle" + "b" * 5000)

    outcome = await grep(tmp_path, pattern="needle")
    assert outcome == text_outcome(f"file:1: ...{'a' * 125}needle{'b' * 369}...")


@pytest.mark.parametrize("path", ["..", "way-out", "/etc", ".makai-home", "missing"])
async def test_a_search_elsewhere_is_refused(tree: Path, path: str) -> None:
    for outcome in (await glob(tree, pattern="*", path=path), await grep(tree, pattern="needle", path=path)):
        assert outcome.is_error


@pytest.mark.parametrize("arguments", [{"pattern": ""}, {"pattern": "x" * 3000}, {"pattern": "x", "glob": "{a,b}" * 9}])
async def test_patterns_that_are_none_are_refused_by_both(tree: Path, arguments: dict[str, Any]) -> None:
    tool = GrepTool(workspace(tree))

    with pytest.raises(InvalidRequest):
        await tool.describe(arguments)
    assert (await tool.run(arguments, Silent())).is_error


async def test_only_the_worker_compiles_an_expression_for_that_can_take_seconds(tree: Path) -> None:
    tool = GrepTool(workspace(tree))
    slow = {"pattern": "(?i:" + "|".join(f"[^{chr(code)}]{{0,9}}" for code in range(0x400, 0x4A0)) + ")"}
    begun = time.process_time()
    await tool.describe(slow)

    assert time.process_time() - begun < 0.1 * slack()
    refused = await tool.run({"pattern": "("}, Silent())
    assert refused == text_outcome(
        "The pattern is not a regular expression: missing ), unterminated subpattern at position 0.", is_error=True
    )


async def test_a_pattern_that_never_ends_is_stopped_and_what_was_found_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("aaa\n")
    (tmp_path / "b").write_text("a" * 50 + "!\n")

    outcome = await asyncio.wait_for(grep(tmp_path, deadline_s=4, pattern="^(a+)+$"), 60)
    assert outcome == text_outcome("a:1: aaa\n[stopped after 4 s; use a simpler pattern or a narrower path]")


async def test_a_cancelled_search_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a" * 50 + "!\n")
    call = asyncio.create_task(grep(tmp_path, pattern="^(a+)+$"))
    await asyncio.wait([call], timeout=0.3)

    call.cancel()
    await asyncio.wait([call])

    assert call.cancelled()
    assert processes_with(str(tmp_path)) == []


async def test_many_matches_are_cut(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(("x" * 400 + "\n") * 5000)

    found = text_of(await grep(tmp_path, pattern="x", limit=1000))
    assert found.endswith("\n[there are more; use a narrower pattern or path]")
    assert len(found) < 130 * 1024


async def test_searches_are_described_by_where_they_look(tree: Path) -> None:
    described = await GrepTool(workspace(tree)).describe({"pattern": "needle", "path": "src"})

    assert described == CallDescription(
        kind="search", title="Search for needle in src", subject="src", locations=(FilePlace(path=f"{tree}/src"),)
    )
    assert (await GlobTool(workspace(tree)).describe({"pattern": "*.py"})).title == "Find *.py"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.py", ["a.py", "x/y/a.py"], []),
        ("/a.py", [], ["x/a.py"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], []),
        ("**/test_*", ["a/b/test_x"], []),
        ("**", ["a/b"], []),
        ("src/**", ["src/x/y"], []),
        ("[ab]?", ["b1"], []),
        ("[!ab]", [], ["a"]),
        ("{a,b/{c,d}}", ["b/d"], []),
        ("a.py", [], ["A.py"]),
    ],
)
def test_glob_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    assert [path for path in (*matching, *others) if GlobPattern(pattern).matches(path.split("/"))] == matching


def test_no_glob_pattern_takes_long() -> None:
    begun = time.process_time()

    assert not GlobPattern("*a" * 200 + "b").matches(["a" * 255])
    assert not GlobPattern("**/" * 200 + "b").matches(["a"] * 100)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("path", "is_folder", "ignored"),
    [
        ("build", True, True),
        ("sub/build", True, True),
        ("build", False, False),
        ("top", False, True),
        ("sub/top", False, False),
        ("x.log", False, True),
        ("keep.log", False, False),
        ("sub/only", False, True),
        ("only", False, False),
    ],
)
def test_the_last_ignore_rule_that_matches_decides(path: str, is_folder: bool, ignored: bool) -> None:
    rules = IgnoreRules().with_file("# a comment\n\nbuild/\n/top\n*.log\n!keep.log\n", ())
    rules = rules.with_file("only\n", ("sub",))

    assert rules.ignores(path.split("/"), is_folder=is_folder) is ignored


async def test_what_a_rule_denies_is_neither_found_nor_looked_into(tree: Path) -> None:
    rules = parse_rules(workspace=str(tree), deny=["Read(/src/gen)", "Read(C.ts)", "Read(*.git*)", "Bash"])
    files, lines = (
        GlobTool(workspace(tree), denied_paths(rules, "Read")),
        GrepTool(workspace(tree), denied_paths(rules, "Read")),
    )

    # Without its .gitignore, build is looked into as well.
    found = text_outcome("a.py\nbinary\nx.log\nbuild/out.py\nsrc/b.py\nsrc/deep/d.tsx")
    assert await files.run({"pattern": "**"}, Silent()) == found
    assert await lines.run({"pattern": "needle", "path": "src"}, Silent()) == text_outcome("src/b.py:1: needle = 1")
    for path in ("src/gen", "src/gen/kept.py"):
        hidden = text_outcome(f"{path} does not exist.", is_error=True)
        assert await lines.run({"pattern": "needle", "path": path}, Silent()) == hidden
        assert await files.run({"pattern": "**", "path": path}, Silent()) == hidden
