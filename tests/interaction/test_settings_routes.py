"""The settings of the page over REST, on a real socket and real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.serving import Site, serving
from support.tokens import bearer, make_token

FILE = """\
# mine
effort = "low" # for now

[sandbox] # the long way
level = "read-only"
"""


@pytest.fixture(autouse=True)
def server_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(tmp_path: Path) -> Path:
    return tmp_path / "makai-home/config.toml"


async def shown(site: Site) -> dict[str, tuple[str | None, str, str | None]]:
    """Setting -> what counts, where that is from, and what the user's file says."""
    status, said = await site.ask("GET", "/api/settings")
    assert status == 200
    return {one["name"]: (one["value"], one["source"], one["written"]) for one in said["settings"]}


async def test_settings_are_shown_with_their_source_and_changed_without_losing_a_comment(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        config(tmp_path).write_text(FILE, encoding="utf-8")
        assert await shown(site) == {
            "agent": (None, "default", None),
            "model": (None, "default", None),
            "mode": ("ask", "default", None),
            "sandbox": ("read-only", "user", "read-only"),
            "effort": ("low", "user", "low"),
        }

        values = {"agent": "claude", "mode": "plan", "sandbox": "workspace-write"}
        change = {"values": values, "reset": ["effort", "model"]}
        assert (await site.ask("PATCH", "/api/settings", change))[0] == 200

        assert await shown(site) == {
            "agent": ("claude-code", "user", "claude-code"),
            "model": (None, "default", None),
            "mode": ("plan", "user", "plan"),
            "sandbox": ("workspace-write", "user", "workspace-write"),
            "effort": (None, "default", None),
        }
    text = config(tmp_path).read_text(encoding="utf-8")
    assert "# mine" in text
    assert '[sandbox] # the long way\nlevel = "workspace-write"' in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": {"mode": "plan", "sandbox": "everything"}}, "sandbox cannot be 'everything'."),
        ({"values": {"model": "no-such-model-anywhere"}}, "model not found: 'no-such-model-anywhere'."),
        ({"values": {"agent": "no-such-agent"}}, "There is no agent 'no-such-agent'."),
        ({"values": {"theme": "dark"}}, "The page cannot change 'theme'."),
        ({"values": {"mode": "x" * 1001}}, "A value has at most 1,000 characters."),
    ],
)
async def test_a_change_that_is_refused_changes_nothing(tmp_path: Path, change: object, message: str) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        config(tmp_path).write_text(FILE, encoding="utf-8")
        status, said = await site.ask("PATCH", "/api/settings", change)

    assert status == 400
    assert message in said["error"]["message"]
    assert config(tmp_path).read_text(encoding="utf-8") == FILE


async def test_a_broken_file_is_named_with_its_line_and_nothing_is_lost(tmp_path: Path) -> None:
    broken = '# mine\nmode = "sometimes"\n'
    async with serving(tmp_path, "say: Hi.") as site:
        config(tmp_path).write_text(broken, encoding="utf-8")
        _, said = await site.ask("GET", "/api/settings")
        assert said["problem"]["message"].startswith(f"{config(tmp_path)}, line 2: ")
        assert {one["source"] for one in said["settings"]} == {"default"}

        status, mended = await site.ask("PATCH", "/api/settings", {"values": {"mode": "plan"}})

    assert (status, mended["problem"]) == (200, None)
    assert config(tmp_path).read_text(encoding="utf-8") == '# mine\nmode = "plan"\n'


async def test_instructions_are_written_for_every_session_unless_the_file_changed_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "makai-home/AGENTS.md"
    async with serving(tmp_path, "say: Hi.") as site:
        _, said = await site.ask("GET", "/api/settings")
        seen = said["instructions"]["version"]
        change = {"instructions": "Answer in Dutch.\n", "instructions_version": seen}
        _, said = await site.ask("PATCH", "/api/settings", change)
        assert (said["instructions"]["text"], file.read_text()) == ("Answer in Dutch.\n", "Answer in Dutch.\n")
        assert file.stat().st_mode & 0o777 == 0o600

        status, said = await site.ask("PATCH", "/api/settings", change | {"instructions": "Mine wins."})
        assert (status, said["error"]["message"]) == (400, f"{file} changed since you opened it.")

        _, said = await site.ask("GET", "/api/settings")
        change = {"instructions": " ", "instructions_version": said["instructions"]["version"]}
        assert (await site.ask("PATCH", "/api/settings", change))[0] == 200
    assert not file.exists()


async def test_a_token_for_one_session_sees_no_settings(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        _, token = await make_token(site.sessions, "admin", session_id=await site.session())
        for method, path in (("GET", "/api/settings"), ("GET", "/api/mcp"), ("GET", "/api/tokens")):
            assert (await site.ask(method, path, headers=bearer(token)))[0] == 403, path
