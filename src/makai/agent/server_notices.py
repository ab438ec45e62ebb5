"""What a person reads about the MCP servers of a session: which are still starting, which failed and why, which joined.

A server that is ready at once needs no notice. The same thing is said once, until the server is ready again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from makai.core.session_events import Notice
from makai.tools.mcp.config import StdioServer
from makai.tools.mcp.manager import ServerStatus

_CLIENTS = "The MCP server {} comes from your editor; it may use the network."
_MEANS_NETWORK = "The MCP server {} may use the network, as its entry says."
_MEANS_GIT = "The MCP server {} may write the git repository, as its entry says."
_DANGER = "What it writes there can run code when you use git."


def opened_notices(server: StdioServer) -> Iterator[Notice]:
    """What its entry gives a server beyond the session's sandbox."""
    if server.opened.network:
        text = _CLIENTS if server.is_clients else _MEANS_NETWORK
        yield Notice(level="info", code="mcp_server_network", message=text.format(server.name))
    if server.opened.git:
        yield Notice(level="info", code="mcp_server_git", message=f"{_MEANS_GIT.format(server.name)} {_DANGER}")


class ServerNotices:
    """`offline`: the servers that are programs and run without network."""

    def __init__(self, offline: Collection[str] = ()) -> None:
        self._offline = offline
        self._told: dict[str, Notice | None] = {}
        """The servers that are not ready, and what was last said about each."""

    def waiting(self, statuses: Sequence[ServerStatus], seconds: float) -> list[Notice]:
        """A run begins to wait for the servers that are starting."""
        names = [status.name for status in statuses if status.state == "connecting"]
        if not names:
            return []
        self._told |= dict.fromkeys(names)
        message = f"Waiting up to {seconds:g} s for MCP servers that are starting: {', '.join(names)}."
        return [Notice(level="info", code="mcp_server_waiting", message=message)]

    def current(self, statuses: Sequence[ServerStatus]) -> list[Notice]:
        """What there is to say about servers that are not ready, said before or not."""
        return [notice for status in statuses if (notice := self._about(status)) is not None]

    def take(self, statuses: Sequence[ServerStatus], *, waits: bool = False) -> list[Notice]:
        """What is new. `waits`: the run waits, so that servers which are still starting are not mentioned again."""
        news: list[Notice] = []
        for status in statuses:
            notice = self._about(status)
            if notice is None:
                if status.state == "ready" and status.name in self._told:
                    del self._told[status.name]
                    news.append(_joined(status))
            elif self._told.get(status.name) != notice and not (waits and notice.code == "mcp_server_starting"):
                self._told[status.name] = notice
                news.append(notice)
        return news

    def _about(self, status: ServerStatus) -> Notice | None:
        match status.state:
            case "failed" | "connecting" if status.reason:  # also while it is tried again
                message = f"The MCP server {status.name} failed: {status.reason}"
                if status.has_started and status.name in self._offline:
                    message += ' (It has no network; `"network": true` in its entry would give it one.)'
                return Notice(level="warning", code="mcp_server_failed", message=message)
            case "connecting":
                message = f"The MCP server {status.name} is still starting; its tools join the next turn when it is up."
                return Notice(level="info", code="mcp_server_starting", message=message)
            case "failed" | "ready" | "stopped":
                return None


def _joined(status: ServerStatus) -> Notice:
    tools = "1 tool" if status.tools == 1 else f"{status.tools} tools"
    message = f"The MCP server {status.name} is up: {tools} joined."
    return Notice(level="info", code="mcp_server_joined", message=message)
