"""Amp as an agent behind ACP: `peer.AgentPeer` over `amp --execute --stream-json`.

Its conversation is a thread on Amp's server. Each prompt is a process of its own that continues the thread, writes the
same lines as Claude Code and ends. It asks no permission: what it may do is in its own settings.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from makai.aio.cancellation import RunOnce, consume_exception
from makai.aio.private_folder import PrivateFolder
from makai.core.errors import AgentFailed
from makai.harness.acp.connection import AgentLines, AgentTransport
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.peer import AgentClient, AgentLaunch, StartTransport
from makai.harness.acp.version_probe import probe_version
from makai.harness.claude_code.launching import mcp_config, private_file
from makai.harness.claude_code.translator import ClaudeTranslator, PermissionAsked, Signal, notice
from makai.harness.claude_code.turn_results import ClaudeTurnResult
from makai.harness.drift import DriftCounter
from makai.wire import json_rpc
from makai.wire.acp import common, connecting, sessions, updates
from makai.wire.acp.common import Empty, Implementation
from makai.wire.json_rpc_errors import RpcError

NEW_THREAD_S: Final = 60.0
MAX_LINES: Final = 50
MODES: Final = tuple(
    sessions.SessionMode(id=name, name=name.title()) for name in ("default", "low", "medium", "high", "ultra")
)
OFFERS: Final = connecting.AgentCapabilities(
    mcp_capabilities=connecting.McpCapabilities(http=True, sse=True),
    session_capabilities=connecting.SessionCapabilities(resume=Empty()),
)
_THREAD: Final = re.compile(rb"\bT-[0-9A-Za-z][0-9A-Za-z-]{7,80}")
_LOGIN: Final = re.compile(rb"log ?in|api[ _]key|unauthori[sz]ed", re.IGNORECASE)
_WITH_INPUT: Final = ("/bin/sh", "-c", 'input="$1"; shift; exec "$@" <"$input"', "sh")
"""Amp begins when its input has ended, so the prompt is a file. On a command line every user could read it."""


class _AmpPrompt:
    """One process that answers one prompt."""

    def __init__(
        self, title: str, transport: AgentTransport, client: AgentClient, session_id: str, drift: DriftCounter
    ) -> None:
        self.answer: asyncio.Future[ClaudeTurnResult] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(consume_exception)
        self.translator = ClaudeTranslator(drift=drift)
        self._client = client
        self._session_id = session_id
        self.lines = AgentLines(title, "Amp's stream of JSON", transport, self._take, self._no_more)

    def cancel(self) -> None:
        if not self.answer.done():
            self.answer.set_result(ClaudeTurnResult(stop_reason="cancelled"))

    async def _take(self, line: bytes) -> str | None:
        signals = self.translator.feed(line)
        if signals is None:
            return ""
        for signal in signals:
            self._on_signal(signal)
        await self._client.room()
        return None

    def _on_signal(self, signal: Signal) -> None:
        if isinstance(signal, ClaudeTurnResult):
            if not self.answer.done():
                self.answer.set_result(signal)
        elif isinstance(signal, PermissionAsked):
            self.translator.drift.note("permission question")
        elif isinstance(signal, updates.SessionUpdate) and not self.answer.done():
            self._client.on_session_update(self._session_id, signal)

    async def _no_more(self, why: AgentFailed) -> None:
        if not self.answer.done():
            self.answer.set_exception(why)


class AmpPeer:
    def __init__(
        self,
        spec: AgentSpec,
        launch: AgentLaunch,
        argv: Sequence[str],
        env: Mapping[str, str],
        client: AgentClient,
        start: StartTransport,
    ) -> None:
        self.ended = asyncio.Event()
        self._drift = DriftCounter()
        self.drift = self._drift.counts
        self._spec, self._launch, self._argv, self._env = spec, launch, list(argv), dict(env)
        self._client, self._start = client, start
        self._thread, self._mode = "", MODES[0].id
        self._folder: PrivateFolder | None = None
        self._mcp = ""
        self._prompt: _AmpPrompt | None = None
        self._notices: list[updates.NoticeUpdate] = []
        self.close = RunOnce(self._close, f"close {spec.title}")

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        match method:
            case "initialize":
                return await self._initialize()
            case "session/new":
                return self._opened(params, await self._new_thread())
            case "session/resume" | "session/load":
                if _THREAD.fullmatch(params.session_id.encode()) is None:
                    raise RpcError(json_rpc.RESOURCE_NOT_FOUND, "There is no such thread.")
                return self._opened(params, params.session_id)
            case "session/prompt":
                return await self._answered(params.prompt)
            case "session/set_mode":
                self._mode = params.mode_id
                return {}
            case _:
                raise RpcError(json_rpc.METHOD_NOT_FOUND, f"{self._spec.title} does not offer {method}.")

    def notify(self, method: str, params: Any) -> None:
        if method == "session/cancel" and self._prompt is not None:
            self._prompt.cancel()

    def failure(self, why: str) -> AgentFailed:
        if self._prompt is not None:
            return self._prompt.lines.failure(why)
        return AgentFailed(f"{self._spec.title} {why.rstrip('.')}.")

    async def _initialize(self) -> Any:
        spec = self._spec
        probed = await probe_version(spec, self._argv[0], self._env, self._launch.cwd, self._start)
        if probed.notice:
            self._notices.append(notice("warning", probed.notice))
        self._folder = await asyncio.to_thread(PrivateFolder)
        answer = connecting.InitializeResponse(
            protocol_version=connecting.PROTOCOL_VERSION,
            agent_capabilities=OFFERS,
            agent_info=Implementation(name=spec.name, title=spec.title, version=probed.version),
        )
        return msgspec.to_builtins(answer)

    async def _new_thread(self) -> str:
        """The id of a new thread; `RpcError` when a login is needed."""
        transport = await self._start([*self._argv, "threads", "new"], self._env, self._launch.cwd)
        said: list[bytes] = []
        found: re.Match[bytes] | None = None
        try:
            async with asyncio.timeout(NEW_THREAD_S):
                async for line in transport.lines(4096):
                    said += [line] if isinstance(line, bytes) else []
                    found = _THREAD.search(said[-1]) if said else None
                    if found is not None or len(said) >= MAX_LINES:
                        break
                if found is None:
                    await transport.wait_for_errors(1.0)
        except TimeoutError:
            pass
        finally:
            await transport.stop()
        if found is not None:
            return found[0].decode()
        words = b" ".join(said) + transport.stderr_tail.encode()
        if _LOGIN.search(words):
            raise RpcError(json_rpc.AUTH_REQUIRED, "it began no thread")
        raise AgentFailed(f"{self._spec.title} began no thread: {words[-500:].decode('utf-8', 'replace')}")

    def _opened(self, params: sessions.NewSessionRequest | sessions.ResumeSessionRequest, thread: str) -> Any:
        self._thread = thread
        if (config := mcp_config(params.mcp_servers)) is not None:
            servers = msgspec.json.encode(msgspec.json.decode(config.text)["mcpServers"]).decode()
            self._mcp = self._private(servers) if config.has_secret else servers
        modes = sessions.SessionModeState(current_mode_id=self._mode, available_modes=MODES)
        return msgspec.to_builtins(sessions.NewSessionResponse(session_id=thread, modes=modes))

    def _private(self, text: str) -> str:
        assert self._folder is not None  # `initialize` comes first
        return private_file(text, self._folder.path)

    async def _answered(self, content: Sequence[common.ContentBlock]) -> Any:
        """Continue the thread by one prompt. The process is gone when this returns."""
        for told in self._notices:
            self._client.on_session_update(self._thread, told)
        self._notices.clear()
        words = "\n\n".join(_words(block) for block in content)
        options = ["--execute", "--stream-json-thinking", "--no-ide", "--no-notifications"]
        options += [f"--mode={self._mode}"] if self._mode != MODES[0].id else []
        options += [f"--mcp-config={self._mcp}"] if self._mcp else []
        command = [*self._argv, "threads", "continue", self._thread, *options]
        input_file = self._private(words)
        try:
            transport = await self._start([*_WITH_INPUT, input_file, *command], self._env, self._launch.cwd)
            self._client.on_process(transport)
            prompt = self._prompt = _AmpPrompt(self._spec.title, transport, self._client, self._thread, self._drift)
            result = await prompt.answer
        finally:
            if self._prompt is not None:
                await self._prompt.lines.close()
            self._prompt = None
            with suppress(FileNotFoundError):  # `close` removes the folder
                os.unlink(input_file)
        if (failure := result.failure) is not None:
            if failure.needs_login:
                raise RpcError(json_rpc.AUTH_REQUIRED, failure.message)
            raise AgentFailed(f"{self._spec.title} could not answer: {failure.message}", hint=failure.hint)
        return result.answer()

    async def _close(self) -> None:
        if (prompt := self._prompt) is not None:
            await prompt.lines.close()
        self.ended.set()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)


def _words(block: common.ContentBlock) -> str:
    match block:
        case common.TextBlock(text=text):
            return text
        case common.ResourceLinkBlock(uri=uri):
            return f"@{uri.removeprefix('file://')}"
        case _:
            raise RpcError(json_rpc.INVALID_PARAMS, "Amp takes text only.")
