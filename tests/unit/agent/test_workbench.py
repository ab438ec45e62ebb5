"""What a native session works with, in a real repository and, where there is one, in the real sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.orphan_trials import Silent, processes_with, unique_mark
from support.plain_mcp import PYTHON, SERVER

from makai.agent.project_trust import digest_of, trusted_content
from makai.agent.prompt import BASE_PROMPT
from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.session_events import Notice, SandboxLevel
from makai.tools.base import ToolOutcome, text_outcome
from makai.tools.permissions.judge import judge
from makai.tools.permissions.looking import LooksAt
from makai.tools.permissions.rules import PermissionRules, parse_rules
from makai.tools.sandbox.detect import Detection, detect, try_landlock
from makai.tools.scratch import remove_scratch

BUILT_IN = ["read", "write", "edit", "list", "glob", "grep", "shell", "fetch", "plan"]
NO_SANDBOX = Detection(backend=None, problems=("bubblewrap is not installed", "Landlock is missing"))
LEVELS: tuple[SandboxLevel, ...] = ("read-only", "workspace-write")
WITHIN_S = 60.0

needs_sandbox = pytest.mark.skipif(detect().backend is None, reason="no sandbox works here")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository, beside a MAKAI_HOME with a secret."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/auth.json").write_text("the-secret")
    repo = tmp_path / "repo"
    for name, text in {"src/app.py": "print('hi')\n", ".env": "TOKEN=hush\n", "AGENTS.md": "Use tabs.\n"}.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    return repo


def spec(repo: Path, *, trusted: bool = False, **more: Any) -> WorkbenchSpec:
    environ = {"PATH": os.environ["PATH"], "HOME": str(repo.parent), "XDG_CACHE_HOME": str(repo.parent / "cache")}
    files = {path: digest_of(data) for path, data in trusted_content(str(repo)).items()} if trusted else {}
    known: dict[str, Any] = {"cwd": str(repo), "makai_home": repo.parent / "home"}
    return WorkbenchSpec(session_id="s1", environ=environ, trusted=trusted, trusted_files=files, **(known | more))


async def call(bench: Workbench, name: str, rules: PermissionRules | None = None, **arguments: Any) -> ToolOutcome:
    tool = bench.tools(rules or bench.rules())[name]
    await tool.describe(arguments)
    return await tool.run(arguments, Silent())


def text_of(outcome: ToolOutcome) -> str:
    return "\n".join(part.text for part in outcome.content if isinstance(part, Text))


def writes(folder: Path, name: str, content: str | dict[str, Any]) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def servers(**commands: list[str]) -> dict[str, Any]:
    return {"mcpServers": {name: {"command": argv[0], "args": argv[1:]} for name, argv in commands.items()}}


async def test_the_tools_work_in_the_repository_and_nowhere_else(repo: Path) -> None:
    async with Workbench(spec(repo)) as bench:
        assert list(bench.tools(bench.rules())) == BUILT_IN
        assert await call(bench, "read", path="src/app.py") == text_outcome("     1\tprint('hi')")
        await call(bench, "edit", path="src/app.py", old_text="hi", new_text="hello")
        assert text_of(await call(bench, "glob", pattern="*.py")) == "src/app.py"
        for path in ("../home/auth.json", str(repo.parent / "home/auth.json"), "/etc/passwd"):
            with pytest.raises(InvalidRequest):
                await call(bench, "read", path=path)

    assert (repo / "src/app.py").read_text() == "print('hello')\n"


async def test_further_roots_can_be_used_by_their_full_path(repo: Path) -> None:
    (repo.parent / "other").mkdir()
    (repo.parent / "other/note").write_text("a note\n")
    async with Workbench(spec(repo, roots=(str(repo.parent / "other"),))) as bench:
        assert text_of(await call(bench, "read", path=str(repo.parent / "other/note"))) == "     1\ta note"
        assert text_of(await call(bench, "list")) == text_of(await call(bench, "list", path=str(repo)))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cwd": "/no/such/folder"}, "/no/such/folder does not exist"),
        ({"cwd": "repo"}, "must be absolute"),
        ({"roots": ("/no/such/root",)}, "/no/such/root does not exist"),
        ({"cwd": "HOME"}, "holds makai's own state"),
        ({"cwd": "SSH"}, "holds secrets"),
    ],
)
async def test_a_folder_that_cannot_be_used_is_refused(repo: Path, wrong: dict[str, Any], says: str) -> None:
    (repo.parent / ".ssh").mkdir()
    folders = {"HOME": str(repo.parent / "home"), "SSH": str(repo.parent / ".ssh")}
    wrong = {key: folders.get(value, value) if isinstance(value, str) else value for key, value in wrong.items()}
    with pytest.raises(InvalidRequest, match=says):
        async with Workbench(spec(repo, **wrong)):
            pass


async def test_rules_are_the_users_the_projects_and_the_runs(repo: Path) -> None:
    writes(repo.parent / "home", "config.toml", "[permissions]\nallow = ['Bash(ls:*)']\nask = ['WebFetch']\n")
    writes(repo, ".makai/config.toml", "[permissions]\nallow = ['Edit(src/**)']\ndeny = ['Read(.env)']\n")
    async with Workbench(spec(repo, trusted=True)) as bench:
        written = parse_rules(
            workspace=str(repo),
            allow=["Bash(ls:*)", "Edit(src/**)", "Bash(make)"],
            ask=["WebFetch"],
            deny=["Read(.env)", "Bash(rm:*)"],
        )
        confined = () if bench.rules().asks_every_command else (str(repo),)
        assert bench.rules(("Bash(make)",), ("Bash(rm:*)",)) == msgspec.structs.replace(
            written, asks_every_command=not confined, looking_roots=confined
        )
        assert bench.notices == ()
        writes(repo.parent / "home", "config.toml", "")
        assert (bench.rules().allow, bench.rules().deny) == (written.allow[1:2], written.deny[:1])
        with pytest.raises(InvalidRequest, match=r"permission rule 'Edit\(../x\)' cannot be read"):
            bench.rules(("Edit(../x)",))


@pytest.mark.proof("L6")
async def test_a_project_that_is_not_trusted_settles_nothing_and_starts_nothing(repo: Path) -> None:
    mark = repo.parent / "started"
    writes(repo, ".makai/config.toml", "[permissions]\nallow = ['Bash']\n")
    writes(repo, ".mcp.json", servers(evil=["/bin/sh", "-c", f"touch {mark}"]))
    async with Workbench(spec(repo, sandbox="full-access")) as bench:
        await bench.ready(WITHIN_S)
        assert bench.rules() == parse_rules(workspace=str(repo))
        assert bench.servers == ()
        told = bench.take_notices()
        assert bench.take_notices() == ()

    assert told == tuple(
        Notice(level="warning", code="project_not_trusted", message=f"{name} is ignored until you trust this folder.")
        for name in (".makai/config.toml", ".mcp.json")
    )
    assert not mark.exists()


async def test_a_server_that_hangs_at_its_start_is_waited_for_once(repo: Path) -> None:
    writes(repo, ".mcp.json", servers(hung=[PYTHON, "-c", "import time; time.sleep(600)"]))
    async with Workbench(spec(repo, trusted=True, sandbox="full-access")) as bench:
        await bench.ready(0.0)
        async with asyncio.timeout(WITHIN_S):
            await bench.ready(3_600.0)
            assert await bench.prompts(awaited=()) == []
        assert [server.state for server in bench.servers] == ["connecting"]


@pytest.mark.parametrize("was_there", [True, False])
async def test_what_changed_since_a_project_was_trusted_settles_nothing_and_starts_nothing(
    repo: Path, was_there: bool
) -> None:
    mark = repo.parent / "started"
    if was_there:
        writes(repo, ".makai/config.toml", "[permissions]\ndeny = ['Read(.env)']\n")
        writes(repo, ".mcp.json", servers())
    trusted = spec(repo, trusted=True, sandbox="full-access")
    writes(repo, ".makai/config.toml", "[permissions]\nallow = ['Bash']\n")
    writes(repo, ".mcp.json", servers(evil=["/bin/sh", "-c", f"touch {mark}"]))
    async with Workbench(trusted) as bench:
        await bench.ready(WITHIN_S)
        assert (bench.rules(), bench.servers) == (parse_rules(workspace=str(repo)), ())
        told = bench.take_notices()

    assert [notice.code for notice in told] == ["project_changed"] * 2
    assert told[0].message == (
        ".makai/config.toml is new or changed since you trusted it, so it is ignored. Look at it, then trust the "
        f"folder again: `makai sessions trust --yes {repo}`."
    )
    assert not mark.exists()


async def test_rules_of_a_project_count_no_longer_when_they_change_during_a_session(repo: Path) -> None:
    writes(repo, ".makai/config.toml", "[permissions]\nallow = ['Bash(ls)']\n")
    async with Workbench(spec(repo, trusted=True)) as bench:
        before = [str(rule) for rule in bench.rules().allow]
        writes(repo, ".makai/config.toml", "[permissions]\nallow = ['Bash']\n")
        assert (len(before), bench.rules().allow) == (1, ())


@pytest.mark.parametrize(
    ("where", "text", "says"),
    [
        (
            "home/config.toml",
            "[permissions]\nallow = ['Read(../x)']",
            r"/home/config.toml, line 2: permission rule 'Read\(../x",
        ),
        (
            "home/config.toml",
            "[permissions]\nallow = ['Read']\n\nask = [\n  'Bash(',\n]",
            r"/home/config.toml, line 4: permission rule 'Bash\('",
        ),
        (
            "home/config.toml",
            "permissions.deny = ['Read']\npermissions.allow = ['Bash+no-sandbox']",
            r"/home/config.toml, line 2: the rule 'Bash\+no-sandbox' would let commands run without a sandbox",
        ),
        (
            "repo/.makai/config.toml",
            "[permissions]\ndeny = ['Zork(x)']",
            r"^.makai/config.toml, line 2: permission rule 'Zork\(x\)'",
        ),
        ("home/config.toml", "[permissions", "config.toml is not valid TOML"),
        ("repo/.makai/config.toml", "[permissions]\ndeny = 'x'", "^.makai/config.toml, line 2: "),
        ("repo/.makai/config.toml", "[providers.x]\nbase_url = 'https://a.example'", "unknown field `providers`"),
        ("repo/.makai/config.toml", "\udcff", "is not UTF-8"),
    ],
)
async def test_rules_that_cannot_be_read_are_not_ignored(repo: Path, where: str, text: str, says: str) -> None:
    path = repo.parent / where
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidRequest, match=says):
        async with Workbench(spec(repo, trusted=True)):
            pass


async def test_a_link_out_of_the_project_is_not_read_as_its_configuration(repo: Path) -> None:
    writes(repo.parent, "outside.toml", "[permissions]\nallow = ['Bash']\n")
    (repo / ".makai").mkdir()
    (repo / ".makai/config.toml").symlink_to(repo.parent / "outside.toml")
    with pytest.raises(InvalidRequest, match="outside the session's folders"):
        async with Workbench(spec(repo, trusted=True)):
            pass


async def test_denied_files_are_not_shown_by_any_file_tool(repo: Path) -> None:
    async with Workbench(spec(repo)) as bench:
        rules = bench.rules(deny=("Read(.env)",))
        assert ".env" in text_of(await call(bench, "list"))
        assert ".env" not in text_of(await call(bench, "list", rules))
        assert ".env" not in text_of(await call(bench, "glob", rules, pattern="*"))
        assert text_of(await call(bench, "grep", rules, pattern="TOKEN")) == "[nothing found]"
        assert judge(
            "never_ask", rules, (), "read", await bench.tools(rules)["read"].describe({"path": ".env"})
        ).decision == ("deny")


async def test_the_prompt_quotes_the_project_and_says_what_commands_may(repo: Path) -> None:
    async with Workbench(spec(repo, trusted=True)) as bench:
        prompt = bench.system_prompt()
    async with Workbench(spec(repo, sandbox="full-access")) as free:
        other = free.system_prompt()

    assert prompt.startswith(f"{BASE_PROMPT}\n\nThe working directory is {repo}.\n\nThese are the project's own")
    assert "Use tabs." in prompt
    assert "has not said whether this folder can be trusted" in other
    assert ("no network" in prompt) == (detect().backend is not None)
    assert "no network" not in other


@needs_sandbox
async def test_a_command_that_runs_unasked_is_read_only_and_runs_no_program_of_the_project(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ls", "bash"):
        writes(repo, f"bin/{name}", "#!/bin/sh\necho planted\n")
        (repo / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{repo}/bin", prepend=":")
    async with Workbench(spec(repo)) as bench:
        bench.looking.add(Silent.call_id, LooksAt())
        looked = await call(bench, "shell", command="ls src; echo x > src/new; echo $GIT_OPTIONAL_LOCKS")
        again = await call(bench, "shell", command="ls src; echo x > src/new; echo $GIT_OPTIONAL_LOCKS")

    assert ("app.py" in text_of(looked), "planted" in text_of(looked)) == (True, False)
    assert ("Read-only" in text_of(looked) or "denied" in text_of(looked), text_of(looked)[-1:]) == (True, "0")
    assert (text_of(again), (repo / "src/new").read_text()) == ("planted", "x\n")


@needs_sandbox
@pytest.mark.parametrize("level", LEVELS)
async def test_commands_are_confined_at_the_level_of_the_session(repo: Path, level: SandboxLevel) -> None:
    async with Workbench(spec(repo, sandbox=level)) as bench:
        wrote = await call(bench, "shell", command="cat src/app.py; echo new > src/new.py; cat src/new.py")
        hidden = await call(bench, "shell", command=f"cat {repo.parent}/home/auth.json")
        names = await call(bench, "shell", command=f"ls -A {repo.parent}/home 2>/dev/null | wc -l")
        hook = await call(bench, "shell", command="echo evil >> .git/config; echo evil > .git/hooks/pre-commit")
        await call(bench, "shell", command=f"echo x > {repo.parent}/outside")
        temporary = await call(bench, "shell", command='echo kept > "$TMPDIR/file"')
        later = await call(bench, "shell", command='cat "$TMPDIR/file"')

    assert (repo / "src/new.py").exists() == (level == "workspace-write")
    assert wrote.is_error == (level == "read-only")
    assert (hidden.is_error, "the-secret" in text_of(hidden), text_of(names)) == (True, False, "0")
    assert hook.is_error
    assert "evil" not in (repo / ".git/config").read_text()
    assert not (repo / ".git/hooks/pre-commit").exists()
    assert not (repo.parent / "outside").exists()
    assert (text_of(temporary), text_of(later)) == ("[no output]", "kept")
    assert names_in(repo) == [".env", ".git", "AGENTS.md", "src"], "nothing is left behind"


async def test_full_access_is_not_confined_and_not_asked_about(repo: Path) -> None:
    async with Workbench(spec(repo, sandbox="full-access"), detection=NO_SANDBOX) as bench:
        outcome = await call(bench, "shell", command=f"echo x > {repo.parent}/outside")
        assert not bench.rules().asks_every_command
        assert bench.notices == ()

    assert (outcome.exit_code, (repo.parent / "outside").read_text()) == (0, "x\n")


async def test_without_a_sandbox_commands_are_asked_about_and_servers_do_not_start(repo: Path) -> None:
    mark = repo.parent / "started"
    writes(repo.parent / "home", "mcp.json", servers(local=["/bin/sh", "-c", f"touch {mark}"]))
    async with Workbench(spec(repo), detection=NO_SANDBOX) as bench:
        await bench.ready(WITHIN_S)
        rules = bench.rules(("Bash",))
        described = await bench.tools(rules)["shell"].describe({"command": "true"})
        verdicts = [judge(mode, rules, (), "shell", described).decision for mode in ("ask", "never_ask")]
        approved = await call(bench, "shell", command="echo ran")
        missing, failed = bench.notices
        prompt = bench.system_prompt()

    assert verdicts == ["ask", "ask"]
    assert approved == ToolOutcome(content=(Text(text="ran"),), exit_code=0)
    assert (missing.level, missing.code) == ("warning", "sandbox_missing")
    assert "bubblewrap is not installed; Landlock is missing" in missing.message
    assert failed.code == "mcp_server_failed"
    assert "No sandbox works here" in failed.message
    assert not mark.exists()
    assert "no network" not in prompt


async def test_that_landlock_confines_is_told(repo: Path) -> None:
    landlock = try_landlock()
    if isinstance(landlock, str):
        pytest.skip(landlock)
    weaker = Detection(backend=landlock, problems=("bubblewrap is not installed",))
    async with Workbench(spec(repo), detection=weaker) as bench:
        [notice] = bench.notices
        outcome = await call(bench, "shell", command=f"cat src/app.py; cat {repo.parent}/home/auth.json")

    assert (notice.level, notice.code) == ("info", "sandbox_weaker")
    assert notice.message.startswith("Commands are confined by landlock ABI")
    assert "(bubblewrap is not installed). Not confined: " in notice.message
    assert "print('hi')" in text_of(outcome)
    assert "the-secret" not in text_of(outcome)


async def test_long_output_is_kept_outside_the_home_and_can_be_read_in_a_later_run(repo: Path) -> None:
    async with Workbench(spec(repo)) as bench:
        outcome = await call(bench, "shell", command="seq 1 100000")
    spilled = Path(outcome.spill_path or "")
    assert spilled.parent == repo.parent / "cache/makai/sessions/s1/output"
    assert spilled.parent.stat().st_mode & 0o777 == 0o700

    async with Workbench(spec(repo)) as later:
        assert text_of(await call(later, "read", path=str(spilled), offset=50_000, limit=1)).startswith(" 50000\t50000")
        refused = await later.tools(later.rules())["write"].run({"path": str(spilled), "content": ""}, Silent())
        assert "can be read, not written" in text_of(refused)
    remove_scratch("s1", spec(repo).environ, repo.parent / "home")
    assert names_in(repo.parent / "cache/makai/sessions") == []


@pytest.mark.parametrize("level", ["workspace-write", "full-access"])
async def test_tools_of_mcp_servers_join_as_they_connect_and_end_with_the_bench(
    repo: Path, level: SandboxLevel
) -> None:
    if level != "full-access" and detect().backend is None:
        pytest.skip("no sandbox works here")
    server = repo / "server.py"
    server.write_text(SERVER)
    own = servers(mine=[PYTHON, "-I", str(server)], both=[PYTHON, "-I", str(server)])
    writes(repo.parent / "home", "mcp.json", own)
    writes(repo, ".mcp.json", servers(both=["/bin/false"], broken=["no-such-program-anywhere"]))
    async with Workbench(spec(repo, trusted=True, sandbox=level)) as bench:
        assert list(bench.tools(bench.rules())) == BUILT_IN
        await bench.ready(WITHIN_S)
        assert [status.name for status in bench.servers if status.state == "ready"] == ["mine", "both"]
        assert await call(bench, "mcp__mine__echo", text="hi") == text_outcome("hi")
        warned = [(notice.code, notice.message.partition(". Install")[0]) for notice in bench.take_notices()]
        assert await call(bench, "mcp__both__cwd") == text_outcome(str(repo))
        during = names_in(repo)

    assert warned == [
        ("mcp_config", ".mcp.json: your own mcp.json has a server 'both' too, which is used."),
        (
            "mcp_server_failed",
            "The MCP server broken failed: The program no-such-program-anywhere is not on your PATH",
        ),
    ]
    assert during == names_in(repo) == [".env", ".git", ".mcp.json", "AGENTS.md", "server.py", "src"]
    assert processes_with(str(server)) == []


async def test_a_broken_list_of_servers_is_told_and_costs_nothing_else(repo: Path) -> None:
    writes(repo.parent / "home", "mcp.json", "{")
    async with Workbench(spec(repo)) as bench:
        await bench.ready(WITHIN_S)
        [notice] = bench.notices
        assert (notice.level, notice.code) == ("warning", "mcp_config")
        assert "mcp.json is not usable" in notice.message
        assert list(bench.tools(bench.rules())) == BUILT_IN


async def test_leaving_while_servers_start_leaves_no_process(repo: Path) -> None:
    mark = unique_mark()
    writes(repo.parent / "home", "mcp.json", servers(slow=["/bin/sh", "-c", f"trap '' TERM; : {mark}; sleep 600"]))
    for turns in range(0, 200, 40):
        async with Workbench(spec(repo)):
            for _ in range(turns):
                await asyncio.sleep(0)

    assert processes_with(mark) == []


def test_the_module_loads_nothing_that_is_heavy() -> None:
    """In a process of its own, where nothing is loaded yet."""
    program = """
import sys, makai.agent.workbench
print(sorted({"mcp", "aiohttp", "tree_sitter", "httpx2", "anyio", "sqlite3"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
