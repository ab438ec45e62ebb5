"""`agy`, the command line of Antigravity, as an agent of ACP: one process per prompt, on a terminal.

The program has no protocol: it takes a prompt as an argument, says nothing without a terminal, and its exit status is
all it tells about success. It asks nothing before it acts and keeps no session that could be found again, so makai runs
it only in the mode that asks nothing, and gives it the transcript of the session with every prompt of a new process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.errors import AgentFailed
from makai.core.visible_text import shown
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.peer import AgentClient, AgentLaunch
from makai.harness.antigravity.terminal_text import TerminalText
from makai.tools.launching import launcher
from makai.wire import json_rpc
from makai.wire.acp import connecting, sessions, updates
from makai.wire.acp.common import Implementation, TextBlock
from makai.wire.json_rpc_errors import RpcError

MAX_PROMPT_BYTES: Final = 100_000
"""An argument of a program has at most 128 KiB on Linux."""
STOP_S: Final = 5.0
MAX_WORDS_LENGTH: Final = 2_000

StartOnTerminal: TypeAlias = Callable[[Sequence[str], dict[str, str], str], Awaitable[ChildProcess]]


async def start_on_terminal(argv: Sequence[str], env: dict[str, str], cwd: str) -> ChildProcess:
    return await ChildProcess.start(argv, env=env, cwd=cwd, launcher=launcher(), terminal=True)


class AntigravityPeer:
    """`peer.AgentPeer` for one session."""

    def __init__(
        self,
        spec: AgentSpec,
        launch: AgentLaunch,
        argv: Sequence[str],
        env: dict[str, str],
        client: AgentClient,
        start: StartOnTerminal = start_on_terminal,
    ) -> None:
        self._title = spec.title
        self._argv = argv
        self._env = env
        self._cwd = launch.cwd
        self._client = client
        self._start = start
        self._session_id = ""
        self._process: ChildProcess | None = None
        self._is_cancelled = False
        self.drift: Mapping[str, int] = {}
        self.ended = asyncio.Event()

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        match method:
            case "initialize":
                info = Implementation(name="antigravity", title=self._title, version="")
                return msgspec.to_builtins(connecting.InitializeResponse(protocol_version=1, agent_info=info))
            case "session/new":
                self._session_id = str(uuid4())
                return {"sessionId": self._session_id}
            case "session/prompt":
                return await self._prompt(params)
            case _:
                raise RpcError(json_rpc.METHOD_NOT_FOUND, f"{self._title} does not take {method[:100]}.")

    def notify(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            self._is_cancelled = True
            if self._process is not None:
                self._process.kill()

    def failure(self, why: str) -> AgentFailed:
        return AgentFailed(f"{self._title} {why.rstrip('.')}.")

    async def close(self) -> None:
        self.ended.set()
        if (process := self._process) is not None:
            await process.stop(term_grace_s=STOP_S)

    async def _prompt(self, asked: sessions.PromptRequest) -> dict[str, Any]:
        words = "\n\n".join(block.text for block in asked.prompt if isinstance(block, TextBlock))
        if len(words.encode()) > MAX_PROMPT_BYTES:
            raise RpcError(json_rpc.INVALID_PARAMS, f"The prompt is longer than {MAX_PROMPT_BYTES:,} bytes.")
        self._is_cancelled = False
        argv = (*self._argv, "-p", words, "--dangerously-skip-permissions")
        try:
            self._process = process = await self._start(argv, self._env, self._cwd)
        except OSError as error:
            raise self.failure(f"could not be started: {error.strerror}") from None
        try:
            self._client.on_process(process)
            said = await self._listen(process)
            code = await process.wait()
        finally:
            await process.stop(term_grace_s=STOP_S)
            self._process = None
        if self._is_cancelled:
            return {"stopReason": "cancelled"}
        if code != 0:
            last = shown(said)[-MAX_WORDS_LENGTH:].strip()
            raise self.failure(f"ended with exit code {code}" + (f". It said last:\n{last}" if last else ""))
        if not said.strip():
            raise self.failure("said nothing")
        return {"stopReason": "end_turn"}

    async def _listen(self, process: ChildProcess) -> str:
        """Report what the program writes until it closes its terminal; the end of it."""
        text, tail = TerminalText(), ""
        while chunk := await process.read():
            tail = self._report(text.feed(chunk), tail)
            await self._client.room()
        return self._report(text.end(), tail)

    def _report(self, words: str, tail: str) -> str:
        if words:
            chunk = updates.AgentMessageChunk(content=TextBlock(text=words))
            self._client.on_session_update(self._session_id, chunk)
        return (tail + words)[-MAX_WORDS_LENGTH:]
