"""The slash commands of one session in an editor: which ones are offered, and what a prompt that names one sends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from makai.core.content import SessionPart, Text
from makai.core.errors import MakaiError
from makai.core.server_prompts import ServerPrompt
from makai.protocols.acp.slash_commands import (
    PromptCommand,
    available_commands,
    is_agents_own,
    parsed_command,
    requested_prompt,
)
from makai.sessions.requests import CommandSummary, ExpandCommand, GetPrompt, GetState, ListCommands, ListPrompts
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState
from makai.wire.acp.updates import AvailableCommandsUpdate, SessionUpdate

log = logging.getLogger(__name__)


class SessionCommands:
    def __init__(self, session_id: str, sessions: Sessions, send: Callable[[Sequence[SessionUpdate]], None]) -> None:
        self._session_id = session_id
        self._sessions = sessions
        self._send = send
        self._prompts: tuple[ServerPrompt, ...] = ()
        """Of its MCP servers that were up when they were last asked."""
        self._custom: tuple[CommandSummary, ...] = ()
        self._announced: AvailableCommandsUpdate | None = None

    def announce(self, state: SessionState) -> None:
        """Send what is offered, unless the editor knows it."""
        offered = available_commands(
            self._prompts, state.agent, custom=self._custom, can_compact=state.capabilities.compact
        )
        update = AvailableCommandsUpdate(available_commands=offered)
        if update != self._announced:
            self._announced = update
            self._send([update])

    async def find_custom(self) -> None:
        """Look for commands that were written as files."""
        try:
            self._custom = tuple(await self._sessions.dispatch(ListCommands(self._session_id)))
        except MakaiError as error:
            log.warning("the commands of the project cannot be listed: %s", error)

    async def find_prompts(self, awaited: tuple[str, ...] | None = None) -> None:
        """Ask the session's MCP servers for their prompts, which become commands, when the `awaited` ones are up; None
        for all."""
        try:
            self._prompts = tuple(await self._sessions.dispatch(ListPrompts(self._session_id, awaited)))
        except MakaiError as error:
            log.info("the prompts of MCP servers cannot be listed: %s", error)
        with suppress(MakaiError):  # the session may have been deleted
            self.announce(await self._sessions.dispatch(GetState(self._session_id)))

    async def refresh(self) -> None:
        """After a run: it may have written commands, and more servers may be up."""
        await self.find_custom()
        await self.find_prompts(awaited=())

    async def expanded(
        self, content: str | tuple[SessionPart, ...], state: SessionState
    ) -> str | tuple[SessionPart, ...]:
        """What a prompt sends whose text names a command: a file's text, or a prompt of an MCP server. Any other prompt
        stays as it is, and so does one with a command that an external agent has itself."""
        match content:
            case str(text):
                return await self._expanded(text, state)
            case parts:
                first = next((part for part in parts if isinstance(part, Text)), None)
                if first is None:
                    return parts
                expanded = msgspec.structs.replace(first, text=await self._expanded(first.text, state))
                return tuple(expanded if part is first else part for part in parts)

    async def _expanded(self, text: str, state: SessionState) -> str:
        asked = parsed_command(text)
        if asked is None or is_agents_own(asked.name, state.agent):
            return text
        message = await self._sessions.dispatch(ExpandCommand(self._session_id, asked.name, asked.argument))
        if message is None:
            message = await self._prompt(asked)
        return text if message is None else message

    async def _prompt(self, asked: PromptCommand) -> str | None:
        found = requested_prompt(asked, self._prompts)
        server, colon, _ = asked.name.partition(":")
        if found is None and colon:
            await self.find_prompts(awaited=(server,))
            found = requested_prompt(asked, self._prompts)
        if found is None:
            return None
        prompt, arguments = found
        return await self._sessions.dispatch(GetPrompt(self._session_id, prompt.server, prompt.name, arguments))
