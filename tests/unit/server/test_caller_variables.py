"""A run in another process gets the keys and addresses of the process that asks for it, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from makai.auth.credentials import PROXY_VARIABLES
from makai.server.caller_variables import caller_variables
from makai.sessions.state import SessionState

OPENAI = {"OPENAI_API_KEY": "c4n4ry", "OPENAI_BASE_URL": "https://proxy.test/v1"}
PROXIES = dict.fromkeys(PROXY_VARIABLES, "") | {"https_proxy": "http://proxy.test"}
OTHERS = {"ANTHROPIC_API_KEY": "another", "ANTHROPIC_BASE_URL": ""}


@pytest.mark.req("DM-ENDP-010")
@pytest.mark.parametrize(
    ("harness", "environ", "sent"),
    [
        ("native", OPENAI | {"SECRET": "unrelated", "PATH": "/usr/bin"}, OPENAI),
        ("native", OPENAI | OTHERS | {"https_proxy": "http://proxy.test"}, OPENAI | OTHERS | PROXIES),
        ("native", {"OPENAI_BASE_URL": "https://proxy.test/v1"}, OPENAI | {"OPENAI_API_KEY": ""}),
        ("native", {"OPENAI_API_KEY": " ", "SECRET": "unrelated"}, {}),
        ("acp:gemini", OPENAI | {"GEMINI_API_KEY": "third"}, {"GEMINI_API_KEY": "third"}),
        ("acp:gemini", {"https_proxy": "http://proxy.test"}, PROXIES),
        ("acp:", OPENAI, {}),
        (
            "claude-code",
            OTHERS | {"AGENT_ENV_BLOCKLIST": "ANTHROPIC_API_*"},
            {"AGENT_ENV_BLOCKLIST": "ANTHROPIC_API_*"},
        ),
        ("acp:gemini", {"AGENT_ENV_BLOCKLIST": "*", "GEMINI_API_KEY": "third"}, {"AGENT_ENV_BLOCKLIST": "*"}),
        ("native", OPENAI | {"AGENT_ENV_BLOCKLIST": "OPENAI_API_KEY"}, OPENAI),
    ],
)
def test_whole_groups_of_what_providers_or_the_agent_read_are_sent_and_nothing_else(
    tmp_path: Path, harness: str, environ: dict[str, str], sent: dict[str, str]
) -> None:
    found = caller_variables(environ, tmp_path, SessionState(harness=harness))

    values = {name: secret.reveal() for name, secret in found.items()}
    assert {name: value for name, value in values.items() if value or name in sent} == sent
    assert "c4n4ry" not in repr(found)
