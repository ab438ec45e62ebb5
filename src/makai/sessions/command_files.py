"""The slash commands that the user, or the trusted project of a session's folder, wrote as files, for clients of a
session. The terminal reads the same files itself, because it offers commands before there is a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from makai.agent.custom_commands import CustomCommand, find_commands
from makai.sessions import requests as req
from makai.sessions import trust
from makai.sessions.live import LiveSession
from makai.sessions.log.base import EventLog


class CommandFiles:
    def __init__(self, home: Path, log: EventLog, session: Callable[[str], Awaitable[LiveSession]]) -> None:
        """`session` finds a session by its id."""
        self._home = home
        self._log = log
        self._session = session

    async def summaries(self, wanted: req.ListCommands) -> list[req.CommandSummary]:
        return [
            req.CommandSummary(name=command.name, description=command.description, argument_hint=command.argument_hint)
            for command in (await self._commands(wanted.session_id)).values()
        ]

    async def expand(self, wanted: req.ExpandCommand) -> str | None:
        command = (await self._commands(wanted.session_id)).get(wanted.name.lower())
        return None if command is None else command.message(wanted.argument)

    async def _commands(self, session_id: str) -> dict[str, CustomCommand]:
        session = await self._session(session_id)
        folder = session.state.cwd if session.claim.is_here else None
        trusted = folder is not None and await trust.is_trusted(self._log, req.IsTrusted(folder))
        return await asyncio.to_thread(find_commands, self._home, folder, trusted=trusted)
