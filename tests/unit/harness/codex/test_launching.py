"""How Codex's program is found and started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from makai.core.errors import InvalidRequest
from makai.harness.acp.peer import AgentLaunch
from makai.harness.codex.launching import codex_environment, direct_program, thread_settings


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("place", ["@openai/codex-linux-x64", "@openai/codex/node_modules/@openai/codex-linux-x64"])
def test_the_program_runs_without_the_script_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    modules = tmp_path / "node_modules"
    script = program(modules / "@openai/codex/bin/codex.js")
    link = tmp_path / "codex"
    link.symlink_to(script)
    assert direct_program(str(link)) == str(link)  # nothing else is there
    binary = program(modules / place / "vendor/x86_64-unknown-linux-musl/bin/codex")
    program(modules / "@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex")
    assert direct_program(str(link)) == str(binary)
    assert direct_program(str(binary)) == str(binary)


def test_temporary_files_lie_elsewhere_only_where_the_home_of_codex_lies_among_them(tmp_path: Path) -> None:
    inside = {"CODEX_HOME": str(tmp_path / "t/home"), "TMPDIR": str(tmp_path / "t")}
    other = codex_environment(inside)
    assert other == {**inside, "TMPDIR": str(tmp_path / "t/home/makai-tmp")}
    assert os.stat(other["TMPDIR"]).st_mode & 0o777 == 0o700
    for env in ({"CODEX_HOME": str(tmp_path / "a"), "TMPDIR": str(tmp_path / "ab")}, {"HOME": "/root"}, {}):
        assert codex_environment(env) == env


def test_servers_keep_their_secrets_off_the_command_line_and_join_those_of_the_options() -> None:
    servers = [
        {"name": "a", "command": "/a", "args": [], "env": [{"name": "KEY", "value": "secret"}]},
        {"type": "http", "name": "b", "url": "https://b", "headers": [{"name": "X", "value": "y"}]},
        {"type": "http", "name": "c", "url": "https://c", "headers": []},
    ]
    launch = AgentLaunch(cwd="/w", sandbox="read-only", options_json='{"mcp_servers": {"d": {"command": "/d"}}}')
    raw = [msgspec.Raw(json.dumps(server).encode()) for server in servers]
    assert thread_settings(launch, raw, ()) == {
        "cwd": "/w",
        "approvalPolicy": "untrusted",
        "approvalsReviewer": "user",
        "sandbox": "read-only",
        "config": {
            "mcp_servers": {
                "a": {"command": "/a", "args": [], "env": {"KEY": "secret"}},
                "b": {"url": "https://b", "http_headers": {"X": "y"}},
                "c": {"url": "https://c"},
                "d": {"command": "/d"},
            }
        },
    }


def test_options_that_are_no_object_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="not a JSON object"):
        thread_settings(AgentLaunch(cwd="/w", options_json="[1]"), (), ())


def test_the_driver_is_not_imported_before_it_is_used() -> None:
    code = "import sys, makai.harness.acp.driver; print([name for name in sys.modules if 'codex' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
