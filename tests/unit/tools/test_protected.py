"""Secrets and files that make later commands run code: by every spelling, and wherever a session works."""

from __future__ import annotations

import os
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from support.orphan_trials import Silent, text_of

from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.core.errors import InvalidRequest
from makai.core.session_events import SandboxLevel
from makai.tools.edit import EditTool
from makai.tools.file_errors import printable
from makai.tools.permissions.judge import judge
from makai.tools.permissions.rules import parse_rules
from makai.tools.protected import is_guarded, is_protected
from makai.tools.workspace import Workspace

SECRET = "the-secret-key"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder in which a session is started."""
    home = tmp_path / "ada"
    for name in (".ssh/id_ed25519", ".docker/config.json", ".netrc", ".pgpass", ".mozilla/cookies.sqlite"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{SECRET}\n")
    (home / "notes").mkdir()
    (home / "notes/plan.txt").write_text("no secret\n")
    os.link(home / ".netrc", home / "notes/linked.txt")
    return home


def bench_in(home: Path, cwd: Path, sandbox: SandboxLevel = "workspace-write") -> Workbench:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_CACHE_HOME": str(home.parent / "cache")}
    return Workbench(
        WorkbenchSpec(
            session_id="s1", cwd=str(cwd), makai_home=home / ".makai", environ=environ, sandbox=sandbox, trusted=False
        )
    )


async def said(bench: Workbench, name: str, **arguments: Any) -> str:
    tool = bench.tools(bench.rules())[name]
    try:
        await tool.describe(arguments)
        return text_of(await tool.run(arguments, Silent()))
    except InvalidRequest as error:
        return str(error)


@pytest.mark.parametrize("above", [False, True], ids=["in the home folder", "above it"])
async def test_file_tools_show_no_secret_that_commands_do_not_see(home: Path, above: bool) -> None:
    cwd = home.parent if above else home
    async with bench_in(home, cwd) as bench:
        for name in (".ssh/id_ed25519", ".docker/config.json", ".netrc", ".pgpass", "notes/linked.txt"):
            assert (await said(bench, "read", path=str(home / name))).endswith("does not exist.")
        assert await said(bench, "grep", pattern="secret", path=str(home)) == (
            f"{'ada/' if above else ''}notes/plan.txt:1: no secret"
        )
        assert ".ssh" not in await said(bench, "glob", pattern="**/*")
        assert await said(bench, "list", path=str(home)) == ".docker/\nnotes/"


async def test_with_full_access_the_secrets_of_the_user_are_files_like_others(home: Path) -> None:
    async with bench_in(home, home, "full-access") as bench:
        assert await said(bench, "read", path=".netrc") == f"     1\t{SECRET}"


@pytest.mark.parametrize(
    "path",
    [
        *(".git/config", ".git/hooks/pre-commit", "sub/.git", ".GIT/config", "./.git//config", ".gitmodules", "HEAD"),
        *(".makai/config.toml", ".bashrc", "x/.zshrc", ".vscode/tasks.json", ".envrc", ".mcp.json"),
        *(".config/git/config", ".git./config", ".git /hooks/pre-commit", "GIT~1/config", ".g\u200cit/config"),
        *("sub/.GIT/config", ".agents/skills/deploy/SKILL.md", ".venv/bin/python", "node_modules/.bin/tsc"),
        *("lib/python3.12/site-packages/anything.pth", ".nvim.lua", ".exrc", ".pnp.cjs", ".gdbinit"),
    ],
)
def test_files_that_make_later_commands_run_code_are_protected_by_every_spelling(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "paths",
    [
        ".autoenv .autoenv_leave.zsh .bash_completion .bashrc.d/x .env.leave .envrc.local .mkshrc .rvmrc .wezterm.lua "
        ".xonshrc .yashrc .zshrc.local .config/nushell/config.nu .config/starship.toml .config/powershell/profile.ps1",
        "simple-git-hooks.cjs simple-git-hooks.json .simple-git-hooks.js husky.config.js hk.pkl .hk.pkl .config/hk.pkl "
        "prek.toml captainhook.json .git-hooks/x .cargo-husky/hooks/pre-push .sl/config .git-credentials",
        ".devcontainer.json .helix/languages.toml hie.yaml .vs/tasks.vs.json .nova/Tasks/a.json .theia/tasks.json "
        ".nvim/init.lua rust-analyzer.toml .luarc.json .gdbearlyinit .config/Code/User/tasks.json .config/zed/x "
        ".merlin .local.vimrc .vimrc_local .lazygit.yml .jjconfig.toml",
        ".builds/a.yml .tekton/p.yaml .zuul.yaml zuul.d/jobs.yaml bitrise.yml .drone.star .gitlab-ci.yaml "
        "Jenkinsfile.release .azure-pipelines/x.yml .packit.yaml .azure-pipelines.yml azure-pipelines-nightly.yaml "
        "bamboo-specs/bamboo.yml amplify.yml .platform.app.yaml .upsun/config.yaml codeship-steps.yml",
        ".octaverc .pdbrc.py .pythonrc.py .psqlrc .sqliterc .sbclrc .mongoshrc.js .julia/config/startup.jl startup.m "
        "sitecustomize/__init__.py usercustomize.pyc sitecustomize.cpython-311-x86_64-linux-gnu.so "
        "jupyter_server_config.py",
        "uv.toml poetry.toml pip.ini nuget.config pnpmfile.cjs .pnpmfile.mjs .yarn/sdks/x .asdfrc .bazelversion "
        "mise/config.toml .flox/env/manifest.toml .cargo/env .cargo/bin/cargo .mavenrc",
        ".opencode.json .roomodes .kilocode/rules.md .openhands/setup.sh .factory/hooks.json .claude-plugin/x.json "
        ".claude.json .aider.conf.yml .aider.model.settings.yml CODEX.md AGENTS.local.md .crush/x .agent/rules/x "
        ".openhands_instructions .continuerc.json",
        ".kube/config .docker/config.json .docker/cli-plugins/x .aws/config .azure/config .pgpass .rhosts .k5login",
        ".local/share/systemd/user/x.service .local/share/applications/x.desktop .config/systemd/user/x.service "
        ".local/share/dbus-1/services/x .config/autostart/x.desktop .config/plasma-workspace/env/x.sh "
        ".local/share/bash-completion/completions/git .bash_functions .p10k.zsh .oh-my-bash/x .config/bash/bashrc "
        ".vscode-server/x .config/sublime-text/x .config/hg/hgrc .subversion/config .bun/bin/x .npm-global/bin/x",
    ],
    ids=["shells", "hooks", "editors", "builds", "interpreters", "packages", "agents", "keys", "home folders"],
)
def test_the_files_of_each_family_are_protected_and_guarded(paths: str) -> None:
    unprotected = [path for path in paths.split() if not is_protected(path)]
    places = {path: list(accumulate(path.split("/"), "{}/{}".format, initial="/work")) for path in paths.split()}
    unguarded = [
        path for path, names in places.items() if not any(is_guarded(*os.path.split(one)) for one in names[1:])
    ]

    assert (unprotected, unguarded) == ([], [])


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "src/app.py", ".gitignore", "git/config", "src/hooks/use.ts", "x.git/a.py", "git~/x", "legit~1"),
        *("src/.github.py", "a.pth.txt", "venv/lib/x.py", "Makefile", "package.json", "pyproject.toml", "conftest.py"),
        *("Dockerfile", "tox.ini", "justfile", "flake.nix", ".env", ".docker/php/Dockerfile", ".cargo/x", "mise/x.py"),
        *("share/systemd/x", "dist/share/applications/x.desktop", ".local/share/x"),
        *("azure-pipelines.md", "docs/azure-pipelines/x.yml", "amplify/x.ts", "merlin"),
        *("src/jupyter_config_test.py", "customize.py", "simple-git-hooks", "husky.config", ".config/nextest.toml"),
    ],
)
def test_ordinary_files_and_those_that_only_look_like_them_are_not_protected(path: str) -> None:
    assert not is_protected(path)


@pytest.mark.parametrize("folder", [".git", ".git/hooks", "repo/.makai"])
async def test_a_session_inside_of_such_a_folder_is_asked_about_every_write(tmp_path: Path, folder: str) -> None:
    root = tmp_path / folder
    root.mkdir(parents=True)
    (root / "config").write_text("old\n")
    tool = EditTool(Workspace([root]))
    description = await tool.describe({"path": "config", "old_text": "old", "new_text": "new"})

    verdict = judge("accept_edits", parse_rules(workspace=str(root), allow=["Edit"]), [], "edit", description)

    assert (description.protected, verdict.decision) == (True, "ask")


async def test_what_a_person_consented_to_can_be_written_there(tmp_path: Path) -> None:
    root = tmp_path / ".git"
    root.mkdir()
    (root / "description").write_text("old\n")
    arguments = {"path": "description", "old_text": "old", "new_text": "new"}
    tool = EditTool(Workspace([root]))
    await tool.describe(arguments)

    assert text_of(await tool.run(arguments, Silent())) == "Edited description."


@pytest.mark.parametrize("sign", ["\u3164", "\u115f", "\uffa0", "\u2800", "\u034f", "\u180b", "\U000e0101", "\u200b"])
def test_signs_that_show_nothing_are_shown_as_escapes(sign: str) -> None:
    assert printable(f"ls{sign * 2}x") == "ls" + sign.encode("unicode_escape").decode() * 2 + "x"


def test_letters_of_every_script_and_emoji_are_shown_as_they_are() -> None:
    assert printable("prüfen 검사 проверка ❤️ 見る") == "prüfen 검사 проверка ❤️ 見る"
