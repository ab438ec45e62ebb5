"""How an MCP server of the user is listed."""

from __future__ import annotations

import pytest

from makai.server.mcp_servers import ListedServer, server_line


@pytest.mark.parametrize(
    ("tools", "told"), [((), "ready"), (("one",), "ready, 1 tool"), (("one", "two"), "ready, 2 tools")]
)
def test_the_tools_of_a_server_are_counted(tools: tuple[str, ...], told: str) -> None:
    server = ListedServer(name="docs", scope="user", address="docs-server", state="ready", tools=tools)

    assert server_line(server) == f"docs (user) docs-server: {told}"
