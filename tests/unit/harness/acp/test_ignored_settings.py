"""Settings that an external agent does not take are named."""

from __future__ import annotations

import pytest

from makai.core import session_events as ev
from makai.core.request import StreamOptions
from makai.harness.acp.ignored_settings import ignored_of_run, ignored_of_session
from makai.harness.acp.known_agents import known_agents

RUN = ev.RunTerms(
    options=StreamOptions(temperature=0.5, reasoning_effort="low", json_schema="{}"),
    max_turns=2,
    max_output_tokens=10,
    allow=("Bash",),
    deny=("Bash(rm:*)",),
)
SESSION = ev.SessionTerms(
    reasoning_effort="low",
    system_append="Be brief.",
    agent_options_json='{"a":1}',
    sandbox="read-only",
    mcp_servers=(ev.McpServer(name="m", command="true"),),
)


@pytest.mark.parametrize(
    ("agent", "of_run", "of_session"),
    [
        (
            "amp",
            ["temperature", "reasoning_effort", "json_schema", "max_turns", "max_output_tokens", "allow", "deny"],
            ["reasoning_effort", "system_append", "agent_options", "sandbox"],
        ),
        (
            "antigravity",
            ["temperature", "reasoning_effort", "json_schema", "max_turns", "max_output_tokens", "allow", "deny"],
            ["reasoning_effort", "system_append", "agent_options", "sandbox", "mcp_servers"],
        ),
        ("claude-code", ["temperature", "max_output_tokens"], ["agent_options", "sandbox"]),
        ("codex", ["temperature", "max_turns", "max_output_tokens"], []),
        (
            "gemini",
            ["temperature", "reasoning_effort", "json_schema", "max_turns", "max_output_tokens"],
            ["reasoning_effort", "system_append", "agent_options", "sandbox"],
        ),
    ],
)
def test_every_setting_is_taken_or_named(agent: str, of_run: list[str], of_session: list[str]) -> None:
    spec = known_agents()[agent]
    assert ignored_of_run(RUN, spec) == of_run
    assert ignored_of_session(SESSION, spec) == of_session


def test_settings_that_were_not_made_are_not_named() -> None:
    for spec in known_agents().values():
        assert ignored_of_run(ev.RunTerms(), spec) == []
        assert ignored_of_session(ev.SessionTerms(agent_options_json="{}"), spec) == []
