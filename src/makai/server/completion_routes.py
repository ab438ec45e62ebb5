"""What the page's message field completes and attaches: files after an `@`, slash commands, and the message that a text
with either of them stands for. Sessions answer for their folder, which may be on another machine; before there is one,
the caller names a folder of this machine in which it may begin sessions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from makai.agent.builtin_prompts import BUILTIN_PROMPTS, with_hints
from makai.agent.custom_commands import find_commands
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.home import home_directory
from makai.core.session_files import Mentioned
from makai.core.visible_text import one_line
from makai.protocols.acp.slash_commands import (
    COMPACT,
    DIFF,
    REDO,
    UNDO,
    available_commands,
    is_agents_own,
    parsed_command,
)
from makai.server.acp_commands import SessionCommands
from makai.server.allowed_folders import allowed_folder
from makai.server.folder_routes import typed_path
from makai.server.http_json import answer, answering, read_body
from makai.server.scopes import ScopedSessions, check_all_sessions
from makai.server.session_names import session_id_of
from makai.sessions import requests as req
from makai.sessions.folder_files import FileIndexes
from makai.sessions.readable_files import ReadableFiles
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState
from makai.tools.file_mentions import mentions
from makai.transports.http_guard import caller_of
from makai.wire.json_rpc_errors import RpcError

MAX_BODY: Final = 1024 * 1024
_OF_THE_PAGE: Final = frozenset({COMPACT, UNDO, REDO, DIFF})
"""Commands that the page carries out itself."""


class ComposeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str


class CompletionRoutes:
    def __init__(self, sessions: Callable[[], Awaitable[Sessions]]) -> None:
        self._sessions = sessions
        self._indexes = FileIndexes()

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/files", answering(self._files_of_folder))
        app.router.add_get("/api/commands", answering(self._commands_of_folder))
        app.router.add_get("/api/sessions/{id}/files", answering(self._files))
        app.router.add_get("/api/sessions/{id}/commands", answering(self._commands))
        app.router.add_post("/api/sessions/{id}/compose", answering(self._compose))
        app.on_shutdown.append(self._close)

    async def _files_of_folder(self, request: web.Request) -> web.Response:
        folder, _ = await self._folder(request)
        readable = await asyncio.to_thread(ReadableFiles.of_folder, (folder,), home_directory(os.environ), os.environ)
        return answer(await self._indexes.find(folder, readable, request.query.get("prefix", "")))

    async def _commands_of_folder(self, request: web.Request) -> web.Response:
        """The commands that were written as files, as a new session in this folder would have them."""
        folder, sessions = await self._folder(request)
        trusted = await sessions.dispatch(req.IsTrusted(folder))
        found = await asyncio.to_thread(find_commands, home_directory(os.environ), folder, trusted=trusted)
        commands = [_command(each.name, each.description, each.argument_hint) for each in found.values()]
        return answer({"commands": commands})

    async def _files(self, request: web.Request) -> web.Response:
        sessions, session_id = await self._session(request)
        return answer(await sessions.dispatch(req.FindFiles(session_id, request.query.get("prefix", ""))))

    async def _commands(self, request: web.Request) -> web.Response:
        """Commands of files, of MCP servers that are up, and of an external agent."""
        sessions, session_id = await self._session(request)
        state = await sessions.dispatch(req.GetState(session_id))
        custom = await sessions.dispatch(req.ListCommands(session_id))
        try:
            prompts = await sessions.dispatch(req.ListPrompts(session_id, ()))
        except MakaiError:
            prompts = []  # a session whose servers cannot start has none
        offered = available_commands(prompts, state.agent, custom=custom)
        hints = {each.name: each.argument_hint for each in custom}
        commands = [
            _command(each.name, each.description, hints.get(each.name, each.input.hint if each.input else ""))
            for each in offered
            if each.name not in _OF_THE_PAGE
        ]
        return answer({"commands": commands})

    async def _compose(self, request: web.Request) -> web.Response:
        """The message that a text stands for: a command is replaced by its text, and the files that the text names go
        along as the terminal attaches them."""
        text = (await read_body(request, ComposeBody, MAX_BODY)).text
        sessions, session_id = await self._session(request)
        state = await sessions.dispatch(req.GetState(session_id))
        message = await self._expanded(sessions, session_id, state, text)
        mentioned = Mentioned()
        if mentions(message):
            mentioned = await sessions.dispatch(req.ReadMentioned(session_id, message))
        files = [{"uri": file.uri, "text": file.text} for file in mentioned.files]
        images = [{"data": image.data, "mime_type": image.mime_type} for image in mentioned.images]
        return answer({"text": message, "files": files, "images": images, "notices": mentioned.notices})

    async def _expanded(self, sessions: Sessions, session_id: str, state: SessionState, text: str) -> str:
        asked = parsed_command(text)
        if asked is None:
            return text
        try:
            expanded = await SessionCommands(session_id, sessions, lambda _: None).expanded(text, state)
        except RpcError as error:
            raise InvalidRequest(error.message) from None
        if expanded != text and isinstance(expanded, str):
            return expanded
        if asked.name in BUILTIN_PROMPTS and not is_agents_own(asked.name, state.agent):
            return with_hints(BUILTIN_PROMPTS[asked.name], asked.argument)
        if state.harness == "native":  # another agent may have commands that it has not reported yet
            raise InvalidRequest(f"There is no command /{one_line(asked.name, 60)}.", hint="Type / to see them.")
        return text

    async def _folder(self, request: web.Request) -> tuple[str, Sessions]:
        """The folder that the request names, free of links, and the sessions."""
        caller = caller_of(request)
        check_all_sessions(caller, "choosing a folder")
        sessions = await self._sessions()
        named, _ = typed_path(request.query.get("folder", ""))
        return await allowed_folder(sessions, caller, named), sessions

    async def _session(self, request: web.Request) -> tuple[Sessions, str]:
        sessions = ScopedSessions(await self._sessions(), caller_of(request))
        return sessions, await session_id_of(sessions, request.match_info["id"])

    async def _close(self, app: web.Application) -> None:
        self._indexes.close()


def _command(name: str, description: str, argument: str) -> dict[str, Any]:
    return {"name": name, "description": description, "argument": argument}
