"""Files that make later commands run code: no sandboxed command leaves one behind, at any depth, by any way."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orphan_trials import Silent, text_of
from support.places import folder_outside_tmp
from support.plain_mcp import PYTHON, SERVER

from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.tools.base import ToolOutcome
from makai.tools.sandbox import guard_snapshot
from makai.tools.sandbox.detect import Detection, try_bubblewrap, try_landlock
from makai.tools.sandbox.guard import FileGuard
from makai.tools.sandbox.guard_snapshot import GuardSnapshot, snapshot_of
from makai.tools.sandbox.policy import not_to_be_made

PLANTED = (
    *(".envrc", ".npmrc", ".yarnrc.yml", ".gitattributes", ".gitmodules", ".pre-commit-config.yaml", "lefthook.yml"),
    *(".lefthook.toml", "mise.local.toml", ".tool-versions", "sitecustomize.py", "x.pth", "AGENTS.md", "CLAUDE.md"),
    *("GEMINI.md", ".cursorrules", ".windsurfrules", ".gitlab-ci.yml", "Jenkinsfile", "all.code-workspace", ".ENVRC"),
    *(".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json", ".idea/workspace.xml", ".husky/pre-commit"),
    *(".github/workflows/ci.yml", ".github/copilot-instructions.md", ".devcontainer/devcontainer.json"),
    *(".devcontainer.json", ".helix/languages.toml", "sitecustomize/__init__.py", ".builds/a.yml", "uv.toml"),
    *(".mise/config.toml", ".claude/settings.json", ".cargo/config.toml", ".config/git/config", ".makai/config.toml"),
    ".local/share/systemd/user/x.service",
)


@pytest.fixture(params=[try_bubblewrap, try_landlock], ids=["bubblewrap", "landlock"])
def detection(request: pytest.FixtureRequest) -> Detection:
    found = request.param()
    if isinstance(found, str):
        pytest.skip(found)
    return Detection(backend=found)


@pytest.fixture
def bubblewrap() -> Detection:
    found = try_bubblewrap()
    if isinstance(found, str):
        pytest.skip(found)
    return Detection(backend=found)


@pytest.fixture
def base() -> Iterator[Path]:
    with folder_outside_tmp() as folder:
        (folder / "work/sub/deep").mkdir(parents=True)
        (folder / "user").mkdir()
        yield folder


def bench_in(base: Path, detection: Detection) -> Workbench:
    environ = {"PATH": os.environ["PATH"], "HOME": str(base / "user"), "XDG_CACHE_HOME": str(base / "cache")}
    spec = WorkbenchSpec(session_id="s1", cwd=str(base / "work"), makai_home=base / "makai", environ=environ)
    return Workbench(spec, detection=detection)


async def shell(bench: Workbench, script: str) -> ToolOutcome:
    tool = bench.tools(bench.rules())["shell"]
    await tool.describe({"command": script})
    return await tool.run({"command": script}, Silent())


def codes(outcome: ToolOutcome) -> list[str]:
    return [notice.code for notice in outcome.notices]


def content_of(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return {str(p.relative_to(root)): os.readlink(p) if p.is_symlink() else p.read_text() for p in files}


@pytest.mark.parametrize("folder", [".", "sub", "sub/deep"])
async def test_no_command_leaves_a_new_one_in_a_folder_that_was_there(
    base: Path, detection: Detection, folder: str
) -> None:
    script = "\n".join(f"mkdir -p $(dirname {path}); echo evil > {path}" for path in PLANTED)

    async with bench_in(base, detection) as bench:
        outcome = await shell(bench, f"cd {folder}; {script}; echo fine > ordinary || echo fine > sub/ordinary")

    left = content_of(base / "work")
    assert [path for path, text in left.items() if text == "evil\n"] == []
    assert "fine\n" in left.values()
    if detection.backend is not None and detection.backend.name == "bubblewrap":
        assert codes(outcome) == ["protected_file_taken"]
        assert ".envrc" in text_of(outcome)


async def test_a_command_sees_no_mount_points_and_none_are_left(base: Path, detection: Detection) -> None:
    async with bench_in(base, detection) as bench:
        outcome = await shell(bench, "ls -A; mount | grep -c $PWD/ || true")

    assert text_of(outcome) == "sub\n0"
    assert os.listdir(base / "work") == ["sub"]


async def test_nothing_is_left_in_the_home_folder_that_runs_at_login_or_names_a_program_for_a_login(
    base: Path, bubblewrap: Detection
) -> None:
    names = sorted(str(Path(path).relative_to(base / "user")) for path in not_to_be_made(base / "user"))
    spec = WorkbenchSpec(
        session_id="s1",
        cwd=str(base / "user"),
        makai_home=base / "makai",
        environ={"PATH": os.environ["PATH"], "HOME": str(base / "user"), "XDG_CACHE_HOME": str(base / "cache")},
    )
    for folder in {Path(name).parent for name in names}:
        (base / "user" / folder).mkdir(parents=True, exist_ok=True)

    async with Workbench(spec, detection=bubblewrap) as bench:
        await shell(bench, "\n".join(f"echo evil > {name}" for name in names))

    assert len(names) > 20
    assert content_of(base / "user") == {}


async def test_what_a_tool_of_an_mcp_program_plants_is_moved_away_and_what_appears_later_is_reported(
    base: Path, bubblewrap: Detection
) -> None:
    server = base / "user/server.py"
    server.write_text(SERVER)
    entry = {"command": PYTHON, "args": ["-I", str(server)]}
    (base / "makai").mkdir()
    (base / "makai/mcp.json").write_text(json.dumps({"mcpServers": {"plain": entry}}))

    async with bench_in(base, bubblewrap) as bench:
        await bench.ready(60)
        tools = bench.tools(bench.rules())
        planted = await tools["mcp__plain__plant"].run({"path": ".claude/settings.json"}, Silent())
        left = os.listdir(base / "work")
        (base / "work/.vscode").mkdir()
        (base / "work/.vscode/settings.json").write_text("{}")
        later = await tools["mcp__plain__echo"].run({"text": "hi"}, Silent())

    assert (codes(planted), left) == (["protected_file_taken"], ["sub"])
    assert text_of(planted).startswith("planted\n[A command or an MCP tool tried to leave .claude")
    assert [notice.message.partition(" and can")[0] for notice in later.notices] == [
        ".vscode appeared while an MCP program was running,"
    ]
    assert content_of(base / "work") == {".vscode/settings.json": "{}"}


async def test_an_existing_one_stays_as_it_is_at_any_depth(base: Path, detection: Detection) -> None:
    places = {f"sub/d{index}": path for index, path in enumerate(PLANTED)}
    for folder, path in places.items():
        (base / "work" / folder / path).parent.mkdir(parents=True)
        (base / "work" / folder / path).write_text("before\n")
    script = """
        echo evil > $folder/$path
        echo evil > sub/new; mv -f sub/new $folder/$path
        ln $folder/$path sub/linked && echo evil > sub/linked
        mv $folder sub/other && mkdir -p $(dirname $folder/$path) && echo evil > $folder/$path
        mv sub sub2 && mkdir -p $(dirname $folder/$path) && echo evil > $folder/$path
        rm -rf sub; mkdir -p $(dirname $folder/$path) && echo evil > $folder/$path"""

    async with bench_in(base, detection) as bench:
        await shell(bench, "".join(f"\nfolder={folder} path={path}{script}" for folder, path in places.items()))

    left = content_of(base / "work")
    assert {f"{folder}/{path}" for folder, path in places.items() if left[f"{folder}/{path}"] != "before\n"} == set()


@pytest.fixture
def repository(base: Path) -> None:
    environ = {"GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.environ["PATH"]}
    for arguments in (["init", "-q"], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm1", "--allow-empty"]):
        subprocess.run(["git", *arguments], cwd=base / "user", env=environ, check=True, timeout=30)


@pytest.mark.usefixtures("repository")
async def test_what_comes_with_a_new_folder_stays_and_is_reported(base: Path, bubblewrap: Detection) -> None:
    async with bench_in(base, bubblewrap) as bench:
        outcome = await shell(bench, "git clone -q $HOME clone && mkdir app && echo x > app/AGENTS.md && echo x >app/a")
        again = await shell(bench, "echo evil >> app/AGENTS.md; git -C clone config core.fsmonitor evil; ls clone")

    assert (codes(outcome), codes(again)) == (["protected_file_made"], [])
    assert "app/AGENTS.md, clone/.git" in outcome.notices[0].message
    assert (base / "work/app/AGENTS.md").read_text() == "x\n"
    assert "evil" not in (base / "work/clone/.git/config").read_text()


async def test_instructions_that_are_a_link_can_neither_be_replaced_nor_written(
    base: Path, bubblewrap: Detection
) -> None:
    (base / "work/rules.md").write_text("before\n")
    (base / "work/CLAUDE.md").symlink_to("rules.md")
    before = content_of(base / "work")

    async with bench_in(base, bubblewrap) as bench:
        through = await shell(bench, "cat CLAUDE.md; echo evil > CLAUDE.md; echo evil > rules.md")
        replaced = await shell(bench, "rm CLAUDE.md; echo evil > CLAUDE.md")
        removed = await shell(bench, "rm CLAUDE.md; ls")

    assert (text_of(through).splitlines()[0], content_of(base / "work")) == ("before", before)
    assert (codes(through), codes(replaced), codes(removed)) == ([], ["protected_file_taken"], ["protected_file_taken"])


@pytest.mark.parametrize("name", [".claude", ".vscode", ".husky"])
async def test_a_folder_that_is_a_link_keeps_its_target_and_what_is_in_it(
    base: Path, bubblewrap: Detection, name: str
) -> None:
    (base / "work/shared").mkdir()
    (base / "work/shared/settings.json").write_text("before\n")
    (base / "work" / name).symlink_to("shared")
    before = content_of(base / "work")

    async with bench_in(base, bubblewrap) as bench:
        await shell(bench, f"echo evil > {name}/settings.json; echo evil > shared/new")
        outcome = await shell(bench, f"rm {name}; mkdir {name}; echo evil > {name}/settings.json; echo fine > sub/x")

    assert content_of(base / "work") == {**before, "sub/x": "fine\n"}
    assert codes(outcome) == ["protected_file_taken"]


async def test_a_folder_that_is_replaced_by_a_link_brings_nothing_with_it(base: Path, bubblewrap: Detection) -> None:
    script = "mkdir other; echo evil > other/.envrc; rm -r sub; ln -s other sub"
    async with bench_in(base, bubblewrap) as bench:
        outcome = await shell(bench, script)

    assert (codes(outcome), (base / "work/sub/.envrc").exists()) == (["protected_file_taken"], False)


HIDING = {
    "in installed packages": (
        "mkdir node_modules; mv sub node_modules/sub; echo evil > node_modules/sub/.envrc; ln -s node_modules/sub sub"
    ),
    "a folder in it": "mkdir venv; mv sub venv/sub; mkdir venv/sub/.vscode; echo evil > venv/sub/.vscode/tasks.json; "
    "ln -s venv/sub sub",
    "below the one that is replaced": (
        "mkdir -p .cache/s/deep; echo evil > .cache/s/deep/.envrc; rmdir sub/deep; ln -s ../.cache/s/deep sub/deep"
    ),
    "the packages themselves": "mkdir .cache; echo evil > .cache/.envrc; rm -r sub; ln -s .cache sub",
    "by two links": "mkdir -p .tox/a; echo evil > .tox/a/.envrc; rm -r sub; ln -s .tox/a b; ln -s b sub",
    "in temporary files": "mv sub $TMPDIR/sub; echo evil > $TMPDIR/sub/.envrc; ln -s $(sed -n 's#^[^ ]* [^ ]* [^ ]* "
    "\\([^ ]*\\) /tmp .*#\\1#p' /proc/self/mountinfo | head -1)/sub sub; [ -e sub ] || "
    "{ rm sub; ln -s $TMPDIR/sub sub; }",
    "by another name": "mkdir -p node_modules/x; echo evil > node_modules/x/.envrc; rm -r sub; mv node_modules/x sub",
    "all packages by another name": (
        "mkdir node_modules; echo evil > node_modules/.envrc; rm -r sub; mv node_modules sub"
    ),
    "by a hard link": "mkdir node_modules; echo evil > node_modules/x; ln node_modules/x sub/.envrc",
    "behind many links": (
        "mkdir .cache d; echo evil > .cache/.envrc; for i in $(seq 1100); do ln -s d l$i; done; rm -r sub; "
        "ln -s .cache sub"
    ),
    "by a link that is named as a holder": "mkdir x; echo evil > x/config.toml; ln -s x .cargo",
}


@pytest.mark.parametrize("script", HIDING.values(), ids=HIDING)
async def test_no_way_leads_from_a_folder_that_was_there_to_a_new_one_elsewhere(
    base: Path, detection: Detection, script: str
) -> None:
    async with bench_in(base, detection) as bench:
        outcome = await shell(bench, script)

    places = ("sub/.envrc", "sub/.vscode/tasks.json", "sub/deep/.envrc", ".cargo/config.toml")
    assert [path for path in places if (base / "work" / path).exists()] == []
    assert "protected_file_taken" in codes(outcome)


async def test_what_a_later_command_puts_where_a_link_leads_is_moved_away(base: Path, bubblewrap: Detection) -> None:
    (base / "work/node_modules/x").mkdir(parents=True)
    (base / "work/x").symlink_to("node_modules/x")
    async with bench_in(base, bubblewrap) as bench:
        linked = await shell(
            bench, "mkdir -p .venv/y/.github node_modules/z; ln -s .venv/y y; echo 1 > node_modules/z/.npmrc"
        )
        planted = await shell(bench, "echo evil > node_modules/x/.envrc; echo evil > .venv/y/.envrc; ls -A x y")

    assert [notice.message.partition(",")[0] for notice in linked.notices] == ["A command made .venv/y/.github"]
    assert (codes(planted), sorted(content_of(base / "work"))) == (
        ["protected_file_taken"],
        ["node_modules/z/.npmrc", "x", "y"],
    )


async def test_links_to_other_places_of_the_user_move_nothing(base: Path, bubblewrap: Detection) -> None:
    (base / "user/.envrc").write_text("mine\n")
    async with bench_in(base, bubblewrap) as bench:
        outcome = await shell(bench, f"rm -r sub; ln -s {base}/user sub; ln -s .. up; ln -s . here")

    assert ((base / "user/.envrc").read_text(), codes(outcome)) == ("mine\n", [])


def test_a_folder_that_became_too_large_is_reported(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_snapshot, "MAX_FOLDERS", 4)
    watching = FileGuard([str(base / "work")], base / "taken")
    before = watching.look()
    for name in ("a", "b", "c"):
        (base / "work" / name).mkdir()
    watching.settle(before)

    assert [notice.code for notice in watching.take_notices()] == ["folder_too_large"]


@pytest.mark.skipif(os.getuid() == 0, reason="root can list every folder")
async def test_a_folder_that_cannot_be_listed_hides_nothing(base: Path, bubblewrap: Detection) -> None:
    async with bench_in(base, bubblewrap) as bench:
        outcome = await shell(bench, "echo evil > sub/.envrc; chmod 333 sub")

    assert (codes(outcome), (base / "work/sub/.envrc").exists()) == (["protected_file_taken"], False)


async def test_a_change_time_that_a_command_sets_back_hides_nothing(base: Path, bubblewrap: Detection) -> None:
    async with bench_in(base, bubblewrap) as bench:
        await shell(bench, "true")
        outcome = await shell(bench, "echo evil > sub/.envrc; touch -d @1 sub sub/.envrc .")

    assert (codes(outcome), (base / "work/sub/.envrc").exists()) == (["protected_file_taken"], False)


async def test_another_name_of_an_existing_one_is_no_way_to_change_it(base: Path, bubblewrap: Detection) -> None:
    (base / "work/AGENTS.md").write_text("before\n")
    os.link(base / "work/AGENTS.md", base / "work/sub/other")

    async with bench_in(base, bubblewrap) as bench:
        outcome = await shell(bench, "echo evil > sub/other")

    assert ((base / "work/AGENTS.md").read_text(), codes(outcome)) == ("before\n", ["protected_file_taken"])


async def test_those_beyond_the_mounts_are_put_back(
    base: Path, bubblewrap: Detection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_snapshot, "MAX_READ_ONLY", 1)
    for name in ("AGENTS.md", "sub/AGENTS.md", "sub/deep/AGENTS.md"):
        (base / "work" / name).write_text("before\n")
    (base / "work/sub/AGENTS.md").chmod(0o640)
    before = content_of(base / "work")

    async with bench_in(base, bubblewrap) as bench:
        await shell(bench, "echo evil > AGENTS.md; echo evil > sub/AGENTS.md; rm sub/deep/AGENTS.md")

    assert content_of(base / "work") == before
    assert (base / "work/sub/AGENTS.md").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "script",
    [
        "python3 -m venv --without-pip .venv && .venv/bin/python -c 'print(6 * 7)'",
        "mkdir -p node_modules/.bin sub/node_modules/x/.github && printf '#!/bin/sh\\necho 42' > node_modules/.bin/t "
        "&& chmod +x node_modules/.bin/t && touch sub/node_modules/x/.npmrc && node_modules/.bin/t",
        "echo 42 > Makefile; echo 42 > package.json; echo 42 > sub/conftest.py; mkdir -p src/Head; cat Makefile",
    ],
    ids=["virtual environment", "node modules", "build files"],
)
async def test_installed_packages_and_ordinary_work_are_left_alone(
    base: Path, bubblewrap: Detection, script: str
) -> None:
    async with bench_in(base, bubblewrap) as bench:
        outcome = await shell(bench, script)

    assert (text_of(outcome), codes(outcome)) == ("42", [])


async def test_a_file_that_a_person_approved_meanwhile_is_not_the_commands(base: Path, bubblewrap: Detection) -> None:
    async with bench_in(base, bubblewrap) as bench:
        tools = bench.tools(bench.rules())
        before = FileGuard([str(base / "work")], base / "taken")
        snapshot = before.look()
        await tools["write"].describe({"path": ".husky/pre-commit", "content": "mine\n"})
        await tools["write"].run({"path": ".husky/pre-commit", "content": "mine\n"}, Silent())
        before.settle(snapshot)

    assert ((base / "work/.husky/pre-commit").read_text(), before.take_notices()) == ("mine\n", ())


async def test_what_a_stopped_run_could_not_report_is_reported_by_the_next(base: Path, bubblewrap: Detection) -> None:
    async with bench_in(base, bubblewrap) as bench, asyncio.timeout(30):
        said = Silent()
        arguments = {"command": "echo evil > .envrc; echo done; sleep 60"}
        tool = bench.tools(bench.rules())["shell"]
        await tool.describe(arguments)
        running = asyncio.create_task(tool.run(arguments, said))
        await said.first.wait()
        running.cancel()
        await asyncio.wait({running})
        notices = bench.take_notices()

    assert ([notice.code for notice in notices], (base / "work/.envrc").exists()) == (["protected_file_taken"], False)


def test_only_folders_that_changed_are_read_again(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_snapshot, "_RECENT_NS", 0)
    root = str(base / "work")
    first = snapshot_of([root], GuardSnapshot())
    (base / "work/sub/.envrc").write_text("")
    second = snapshot_of([root], first)

    read_again = [path for path in second.folders if second.folders[path] is not first.folders[path]]
    assert (read_again, list(second.found)) == ([f"{root}/sub"], [f"{root}/sub/.envrc"])


def test_a_folder_that_is_too_large_is_looked_at_from_the_outside(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_snapshot, "MAX_FOLDERS", 2)
    for folder in ("sub", "sub/deep"):
        (base / "work" / folder / ".envrc").write_text("")

    found = snapshot_of([str(base / "work")], GuardSnapshot())

    assert (found.is_complete, list(found.found)) == (False, [str(base / "work/sub/.envrc")])


def test_the_configuration_of_a_bare_repository_is_guarded(base: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", base / "work/sub/bare"], check=True, timeout=30)

    found = snapshot_of([str(base / "work")], GuardSnapshot()).read_only

    assert {os.path.basename(path) for path in found} >= {"HEAD", "config", "hooks"}


async def test_no_command_can_turn_the_folder_that_makai_itself_writes_to(base: Path, detection: Detection) -> None:
    (base / "elsewhere").mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(base / "user"), "XDG_CACHE_HOME": str(base / "work/cache")}
    spec = WorkbenchSpec(session_id="s1", cwd=str(base / "work"), makai_home=base / "makai", environ=environ)
    script = f"""
        for folder in cache cache/makai cache/makai/sessions cache/makai/sessions/s1 cache/makai/sessions/s1/output; do
            mv $folder moved; ln -s {base}/elsewhere $folder
        done
        echo evil > sub/.envrc; seq 1000000"""

    async with Workbench(spec, detection=detection) as bench:
        outcome = await shell(bench, script)

    assert (os.listdir(base / "elsewhere"), (base / "work/sub/.envrc").exists()) == ([], False)
    assert outcome.spill_path is not None
    assert Path(outcome.spill_path).is_relative_to(base / "work/cache/makai/sessions/s1/output")
    assert (base / "work/cache/makai/sessions/s1/output").resolve() == base / "work/cache/makai/sessions/s1/output"
