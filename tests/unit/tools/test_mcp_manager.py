"""The manager of MCP servers, as far as it needs none. See tests/real/test_mcp_servers.py for the rest."""

from __future__ import annotations

from pathlib import Path

from makai.tools.mcp.config import Launch, McpConfig, Timing
from makai.tools.mcp.manager import McpManager, ServerStatus

LAUNCH = Launch(
    environ={"PATH": "/bin", "LANG": "C", "OPENAI_API_KEY": "s3cret"},
    cwd="/",
    wrap=list,
    spill_directory=Path("/nowhere"),
)


async def test_entries_that_cannot_be_used_are_shown_as_failed() -> None:
    async with McpManager(McpConfig(problems={"bad": "It has no url."}), LAUNCH) as manager:
        assert manager.statuses() == (ServerStatus(name="bad", state="failed", reason="It has no url."),)
        assert manager.tools() == ()
        assert await manager.settled(0)


async def test_closing_what_was_never_started_is_fine() -> None:
    manager = McpManager(McpConfig(), LAUNCH)

    await manager.close()
    await manager.close()


def test_a_server_gets_what_it_cannot_run_without_and_what_is_its_own() -> None:
    assert LAUNCH.environment({"TOKEN": "t", "LANG": "de"}) == {"PATH": "/bin", "LANG": "de", "TOKEN": "t"}


def test_retries_come_slower_and_slower_up_to_a_bound() -> None:
    timing = Timing(first_retry_s=0.5, longest_retry_s=3.0)

    assert [timing.retry_after(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
