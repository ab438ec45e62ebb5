"""The editor of a run: what `tools` read, write and run through it, and which commands people approved for it."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from makai.aio.cancellation import finish_cleanup
from makai.core import session_events as ev
from makai.core.confinement import Confinement, in_editor_terminal
from makai.core.errors import InvalidRequest
from makai.harness import editor_calls as calls
from makai.harness.base import RunPort
from makai.harness.editor_calls import EditorCall, ask_editor
from makai.wire.acp import client_calls as acp

ParamsT = TypeVar("ParamsT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT", bound=msgspec.Struct)

_RELEASE_S: Final = 2.0


class RunEditor:
    """`EditorBuffers` and `EditorTerminals` over the executors of a session. It asks for what the session's terms say
    that its client does, and the client decides again."""

    def __init__(self, port: RunPort) -> None:
        self._port = port
        self._approved: set[str] = set()

    async def read_text_file(self, path: str) -> str | None:
        if not self._port.session.terms.client.read_files:
            return None
        wanted = acp.ReadTextFileRequest(session_id=self._port.session_id, path=path)
        read = await self._ask(calls.READ_TEXT_FILE, wanted)
        return None if read is None else read.content

    async def write_text_file(self, path: str, text: str) -> bool:
        if not self._port.session.terms.client.write_files:
            return False
        wanted = acp.WriteTextFileRequest(session_id=self._port.session_id, path=path, content=text)
        return await self._ask(calls.WRITE_TEXT_FILE, wanted) is not None

    async def edits_text_files(self) -> bool:
        client = self._port.session.terms.client
        offered = await self._offered() if client.read_files and client.write_files else None
        return offered is not None and offered.read_files and offered.write_files

    async def terminal_confinement(self) -> Confinement | None:
        """How the terminals of the connected editor run a command; None without an editor that has terminals."""
        offered = await self._offered() if self._port.session.terms.client.terminals else None
        return in_editor_terminal(offered.terminal_sandbox) if offered is not None and offered.terminals else None

    async def _offered(self) -> ev.ClientCapabilities | None:
        """What the connected editor does; None without one."""
        try:
            return await self._ask(calls.CAPABILITIES, calls.NoParams())
        except InvalidRequest:
            return None

    def approve_terminal(self, call_id: str) -> None:
        """A person approved that this call runs in a terminal of the editor."""
        self._approved.add(call_id)

    def takes_terminal(self, call_id: str) -> bool:
        is_approved = call_id in self._approved
        self._approved.discard(call_id)
        return is_approved

    async def create_terminal(self, call_id: str, wanted: acp.CreateTerminalRequest) -> str | None:
        made = await self._ask(calls.TERMINAL_CREATE, wanted, call_id)
        if made is None:
            return None
        try:
            await self._port.emit(ev.ToolUpdated(call_id=call_id, terminal_id=made.terminal_id))
        except BaseException:
            await finish_cleanup(self.release_terminal(made.terminal_id), _RELEASE_S, "the release of a terminal")
            raise
        return made.terminal_id

    async def terminal_output(self, terminal: str) -> acp.TerminalOutput | None:
        return await self._ask(calls.TERMINAL_OUTPUT, self._request(terminal))

    async def wait_for_terminal(self, terminal: str) -> acp.TerminalExit | None:
        return await self._ask(calls.TERMINAL_WAIT, self._request(terminal))

    async def kill_terminal(self, terminal: str) -> None:
        await self._ask(calls.TERMINAL_KILL, self._request(terminal))

    async def release_terminal(self, terminal: str) -> None:
        await self._ask(calls.TERMINAL_RELEASE, self._request(terminal))

    def _request(self, terminal: str) -> acp.TerminalRequest:
        return acp.TerminalRequest(session_id=self._port.session_id, terminal_id=terminal)

    async def _ask(self, call: EditorCall[ParamsT, ResultT], params: ParamsT, call_id: str = "") -> ResultT | None:
        port = self._port
        return await ask_editor(
            port.execute, call, params, session_id=port.session_id, run_id=port.run_id, call_id=call_id
        )
