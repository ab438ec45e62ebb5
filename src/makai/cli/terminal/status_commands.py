"""The slash commands that tell about the session: /status, /permissions and /mcp. They change nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from makai.cli.session_selection import shown_agent
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.styled_text import Lines, Piece, lines_of, note
from makai.cli.terminal.usage_text import all_input, context_share, run_totals
from makai.core.home import home_directory
from makai.core.session_events import SANDBOX_MEANINGS, PermissionMode
from makai.core.version import __version__
from makai.core.visible_text import one_line
from makai.sessions.requests import IsTrusted, ListGrants

MODE_MEANINGS: Final[dict[PermissionMode, str]] = {
    "ask": "asks before it changes files or runs commands",
    "accept_edits": "changes files in the folder without asking",
    "plan": "reads only, changes nothing",
    "never_ask": "asks nothing; only the sandbox protects your files",
}


async def status(chat: ChatSession, argument: str) -> list[Piece]:
    state, usage = chat.view.state, chat.view.usage
    folder = chat.cwd
    trusted = folder is not None and await chat.sessions.dispatch(IsTrusted(folder))
    total = usage.total if usage is not None else state.usage
    rows = [
        ("session", chat.session_id or "begins with your first message"),
        ("title", one_line(state.title)),
        ("folder", f"{one_line(folder or 'none')} ({'trusted' if trusted else 'not trusted'})"),
        ("agent", shown_agent(state)),
        ("mode", f"{state.mode}: {MODE_MEANINGS[state.mode]}"),
        ("sandbox", f"{state.terms.sandbox}: {SANDBOX_MEANINGS[state.terms.sandbox]}"),
        ("used", run_totals(total, 0)[1:-1] if all_input(total) or total.output else ""),
        ("context", context_share(usage)),
        ("makai", f"{__version__}, files in {one_line(str(home_directory(os.environ)))}"),
    ]
    return [_rows([f"  {name:<8} {value}" for name, value in rows if value])]


async def permissions(chat: ChatSession, argument: str) -> list[Piece]:
    state = chat.view.state
    saved = await chat.sessions.dispatch(ListGrants(chat.cwd)) if chat.cwd is not None else []
    rules = [(grant.allow, grant.rule, "always, in this folder") for grant in saved]
    rules += [(grant.allow, grant.rule, "in this session") for grant in state.grants]
    rows = [f"  {'allow' if allow else 'deny '}  {one_line(rule)}  ({where})" for allow, rule, where in rules]
    return [
        note(f"{state.mode}: {MODE_MEANINGS[state.mode]}. Change it with /mode.", ""),
        note(f"{state.terms.sandbox}: {SANDBOX_MEANINGS[state.terms.sandbox]}. Change it with /sandbox.", ""),
        _rows(rows or ["  You have allowed nothing else yet."]),
        note("Take one back with `makai sessions grants --revoke RULE`; your own rules are in config.toml."),
    ]


async def servers(chat: ChatSession, argument: str) -> list[Piece]:
    from makai.server.mcp_servers import server_files, server_line  # loads what starts servers, too

    files = server_files(home_directory(os.environ), chat.cwd or os.getcwd())
    listed = await asyncio.to_thread(lambda: [one for file in files for one in file.listed(os.environ)])
    if not listed:
        return [note("No MCP server is configured. Add one: `makai mcp add NAME -- COMMAND`.", "")]
    return [
        _rows([f"  {server_line(one)}" for one in listed]),
        note("`makai mcp list --check` says which ones answer; /prompts lists their prompts."),
    ]


def _rows(rows: Sequence[str]) -> Lines:
    return Lines(lines=tuple(lines_of("\n".join(rows))))
