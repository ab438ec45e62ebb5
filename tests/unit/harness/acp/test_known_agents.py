"""Which agents there are by name, and what each may see and needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.core.config import AgentConfig
from makai.core.errors import InvalidRequest
from makai.harness.acp.known_agents import agent_of, is_named, known_agents, offered_agents
from makai.harness.registry import harness_id_of

CONFIGURED = {
    "mine": AgentConfig(command=("my-agent", "--acp"), env=("MY_KEY",)),
    "goose": AgentConfig(command=("honk",)),
}


def test_every_known_agent_says_how_to_install_it_and_how_to_log_in() -> None:
    assert set(known_agents()) == {
        "amp", "antigravity", "claude-agent-acp",
        "claude-code", "codex", "codex-acp", "gemini", "goose", "kimi", "makai", "opencode",
        "qwen", "stub", "vibe",
    }  # fmt: skip
    for spec in known_agents().values():
        if spec.hidden:
            continue
        assert spec.command
        assert spec.install
        assert spec.login


@pytest.mark.parametrize(
    ("agent", "command"),
    [
        ("gemini", ("gemini", "--acp")),
        ("claude-code", ("claude",)),
        ("claude", ("claude",)),
        ("acp:claude-agent-acp", ("claude-agent-acp",)),
        ("acp:codex-acp", ("codex-acp",)),
        ("mine", ("my-agent", "--acp")),
        ("goose", ("honk",)),
        ("acp:./agent 'a b' --c", ("./agent", "a b", "--c")),
    ],
)
def test_an_agent_is_a_name_or_a_command_line(agent: str, command: tuple[str, ...]) -> None:
    assert agent_of(harness_id_of(agent), CONFIGURED).command == command


@pytest.mark.parametrize("harness_id", ["acp:gemini --acp", "acp: gemini", "acp:", "gemini", "native", "acp:sh -c x"])
def test_only_exact_names_are_names(harness_id: str) -> None:
    assert not is_named(harness_id, CONFIGURED)
    assert is_named("acp:mine", CONFIGURED)
    assert not is_named("acp:mine", {})


def test_a_missing_program_is_explained_with_the_way_to_install_it(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    with pytest.raises(InvalidRequest) as refused:
        agent_of("acp:gemini", {}).argv("/", environ)
    assert str(refused.value) == (
        "Gemini CLI is not installed: `gemini` is not on your PATH. Install it: npm install -g @google/gemini-cli"
    )
    with pytest.raises(InvalidRequest, match="no agent or program 'gemni'"):
        agent_of("acp:gemni", {}).argv("/", environ)


def test_a_program_that_commands_may_write_is_not_started_and_said(tmp_path: Path) -> None:
    program = tmp_path / "node_modules/.bin/gemini"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(InvalidRequest) as refused:
        agent_of("acp:gemini", {}).argv(str(tmp_path), {"PATH": str(program.parent), "HOME": "/nowhere"})
    assert refused.value.message == (
        f"Gemini CLI is found only as {program}, which commands may write, so it is not started."
    )


def test_a_program_is_looked_for_on_the_path_or_in_the_folder_of_the_session(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert agent_of("acp:./agent -x", {}).argv(str(tmp_path), {}) == [f"{tmp_path}/./agent", "-x"]
    assert agent_of("acp:agent", {}).argv("/nowhere", {"PATH": str(tmp_path)}) == [str(program)]


def test_an_agent_sees_the_variables_that_it_needs_and_no_others() -> None:
    environ = {
        "PATH": "/bin", "HOME": "/home/me", "IS_SANDBOX": "1", "OPENAI_API_KEY": "o", "GEMINI_API_KEY": "g",
        "https_proxy": "http://me:secret@proxy", "AWS_SECRET_ACCESS_KEY": "a", "MAKAI_HOME": "/home/me/.makai",
    }  # fmt: skip
    seen = agent_of("acp:gemini", {}).environment(environ)
    assert {name: seen[name] for name in seen if name in environ} == {
        "PATH": "/bin", "HOME": "/home/me", "GEMINI_API_KEY": "g", "https_proxy": "http://me:secret@proxy",
    }  # fmt: skip


def test_installed_agents_are_offered_first_and_makai_does_not_offer_itself(tmp_path: Path) -> None:
    for name in ("qwen", "my-agent"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    offered = offered_agents(CONFIGURED, {"PATH": str(tmp_path)})
    assert [(one.name, one.harness, one.program) for one in offered[:3]] == [
        ("mine", "acp:mine", f"{tmp_path}/my-agent"),
        ("qwen", "acp:qwen", f"{tmp_path}/qwen"),
        ("amp", "amp", ""),
    ]
    assert [one.name for one in offered[2:]] == [
        "amp", "antigravity", "claude-agent-acp",
        "claude-code", "codex", "codex-acp", "gemini", "goose", "kimi", "opencode", "vibe",
    ]  # fmt: skip
    assert (offered[5].harness, offered[5].install) == ("claude-code", "npm install -g @anthropic-ai/claude-code")


@pytest.mark.req("DM-SPEC-011")
def test_an_agent_gets_no_variable_that_the_blocklist_names() -> None:
    environ = {
        **{"AGENT_ENV_BLOCKLIST": "GEMINI_API_KEY, LC_*\nHTTPS_PROXY", "GEMINI_API_KEY": "k", "GOOGLE_API_KEY": "g"},
        **{"LC_ALL": "C", "LC_TIME": "C", "LANG": "C", "HTTPS_PROXY": "http://p", "PATH": "/bin"},
    }

    seen = agent_of("acp:gemini", {}).environment(environ)

    assert {name: seen[name] for name in seen if name in environ} == {
        "GOOGLE_API_KEY": "g", "LANG": "C", "PATH": "/bin"
    }  # fmt: skip
    assert "GEMINI_API_KEY" in agent_of("acp:gemini", {}).environment(environ | {"AGENT_ENV_BLOCKLIST": ""})
