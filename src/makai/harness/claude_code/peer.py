"""Claude Code as an agent behind ACP: `peer.AgentPeer` for its own protocol.

A process belongs to one session, which its command line names, so it is started when the session is opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec

from makai.aio.cancellation import RunOnce
from makai.aio.private_folder import PrivateFolder
from makai.core.errors import AgentFailed
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.peer import AgentClient, AgentLaunch, StartTransport
from makai.harness.acp.version_probe import probe_version
from makai.harness.claude_code.launching import arguments, environment, mcp_config, private_file
from makai.harness.claude_code.process import ClaudeProcess
from makai.harness.claude_code.translator import notice
from makai.harness.claude_code.turn_results import ClaudeTurnResult
from makai.wire import json_rpc
from makai.wire.acp import connecting, sessions, updates
from makai.wire.acp.common import Empty, Implementation
from makai.wire.json_rpc_errors import RpcError

OPEN_S: Final = 60.0
MODES: Final = (
    sessions.SessionMode(id="default", name="Ask before changes"),
    sessions.SessionMode(id="acceptEdits", name="Accept edits", description="Changes files without a question"),
    sessions.SessionMode(id="plan", name="Plan", description="Plans, and changes nothing"),
)
OFFERS: Final = connecting.AgentCapabilities(
    prompt_capabilities=connecting.PromptCapabilities(image=True, embedded_context=True),
    mcp_capabilities=connecting.McpCapabilities(http=True, sse=True),
    session_capabilities=connecting.SessionCapabilities(resume=Empty(), additional_directories=Empty()),
)


class ClaudePeer:
    def __init__(
        self,
        spec: AgentSpec,
        launch: AgentLaunch,
        argv: Sequence[str],
        env: Mapping[str, str],
        client: AgentClient,
        start: StartTransport,
    ) -> None:
        """`argv` and `env` are the program and what it may see of our environment."""
        self.ended = asyncio.Event()
        self._spec, self._launch, self._argv = spec, launch, list(argv)
        self._env = dict(env)
        self._client = client
        self._start = start
        self._starting: ClaudeProcess | None = None
        self._process: ClaudeProcess | None = None
        """Set while a session is open."""
        self._folder: PrivateFolder | None = None
        self._notices: list[updates.NoticeUpdate] = []
        self.close = RunOnce(self._close, f"close {spec.title}")

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        match method:
            case "initialize":
                return await self._initialize()
            case "session/new":
                return await self._open(params, new=str(uuid4()))
            case "session/resume" | "session/load":
                return await self._open(params, resume=params.session_id)
            case "session/prompt":
                return self._answered(await self._opened.prompt(params.prompt))
            case "session/set_mode":
                await self._opened.control("set_permission_mode", mode=params.mode_id)
                return {}
            case "session/set_model":
                await self._opened.control("set_model", model=params.model_id)
                return {}
            case "_session/steering":
                return {"outcome": "injected" if self._opened.steer(params.prompt) else "failed"}
            case _:
                raise RpcError(json_rpc.METHOD_NOT_FOUND, f"{self._spec.title} does not offer {method}.")

    def notify(self, method: str, params: Any) -> None:
        if method == "session/cancel" and self._process is not None:
            self._process.interrupt()

    def failure(self, why: str) -> AgentFailed:
        if self._process is not None:
            return self._process.failure(why)
        return AgentFailed(f"{self._spec.title} {why.rstrip('.')}.")

    @property
    def drift(self) -> dict[str, int]:
        """What the program said that this version does not know, and how often."""
        return {} if self._starting is None else dict(self._starting.translator.drift.counts)

    @property
    def _opened(self) -> ClaudeProcess:
        if self._process is None:
            raise RpcError(json_rpc.INVALID_REQUEST, "No session is open.")
        return self._process

    async def _initialize(self) -> Any:
        spec = self._spec
        probed = await probe_version(spec, self._argv[0], self._env, self._launch.cwd, self._start)
        if probed.notice:
            self._notices.append(notice("warning", probed.notice))
        answer = connecting.InitializeResponse(
            protocol_version=connecting.PROTOCOL_VERSION,
            agent_capabilities=OFFERS,
            agent_info=Implementation(name=spec.name, title=spec.title, version=probed.version),
            meta={"steering": {"supported": True}},
        )
        return msgspec.to_builtins(answer)

    async def _open(
        self, params: sessions.NewSessionRequest | sessions.ResumeSessionRequest, *, new: str = "", resume: str = ""
    ) -> Any:
        """Start a process for a session and learn what it offers. `RpcError` when it does not know the session."""
        session_id = new or resume
        if resume.startswith("-"):
            raise RpcError(json_rpc.RESOURCE_NOT_FOUND, "There is no such session.")
        config = mcp_config(params.mcp_servers)
        if self._folder is None:
            self._folder = await asyncio.to_thread(PrivateFolder)
        folder = self._folder.path
        file = private_file(config.text, folder) if config is not None and config.has_secret else ""
        mcp = file or (config.text if config is not None else "")
        options = arguments(self._launch, new=new, resume=resume, folders=params.additional_directories, mcp=mcp)
        env = environment(self._env, folder, has_servers=config is not None)
        try:
            transport = await self._start([*self._argv, *options], env, self._launch.cwd)
            self._client.on_process(transport)
            process = self._starting = ClaudeProcess(
                self._spec.title, transport, self._client, session_id, self._launch.cwd, self._process_ended
            )
            offered = await self._initialized(process)
        finally:
            if file:
                with suppress(FileNotFoundError):  # `close` removes the folder
                    os.unlink(file)
        self._process = process
        if process.has_ended:
            self.ended.set()
        process.notices, self._notices = self._notices, []
        return self._settings(offered if isinstance(offered, dict) else {}, session_id)

    async def _initialized(self, process: ClaudeProcess) -> Any:
        """What the program offers, once it runs. A result before any prompt says why it does not."""
        try:
            return await process.control("initialize", seconds=OPEN_S)
        except AgentFailed:
            await process.close()
            if (refused := process.refused) is not None and refused.failure is not None:
                raise RpcError(json_rpc.RESOURCE_NOT_FOUND, refused.failure.message) from None
            raise

    def _settings(self, offered: dict[str, Any], session_id: str) -> Any:
        commands = tuple(
            updates.AvailableCommand(name=one["name"], description=str(one.get("description") or "")[:200])
            for one in _objects(offered.get("commands"), "name")
        )
        self._client.on_session_update(session_id, updates.AvailableCommandsUpdate(available_commands=commands))
        mode = offered.get("current_permission_mode")
        mode = mode if isinstance(mode, str) and mode else MODES[0].id
        known = {one.id for one in MODES}
        modes = MODES if mode in known else (*MODES, sessions.SessionMode(id=mode, name=mode))
        models = tuple(
            sessions.ModelInfo(model_id=one["value"], name=str(one.get("displayName") or one["value"]))
            for one in _objects(offered.get("models"), "value")
        )
        model = self._launch.model or (models[0].model_id if models else "")
        answer = sessions.NewSessionResponse(
            session_id=session_id,
            modes=sessions.SessionModeState(current_mode_id=mode, available_modes=modes),
            models=sessions.SessionModelState(current_model_id=model, available_models=models) if models else None,
        )
        return msgspec.to_builtins(answer)

    def _answered(self, result: ClaudeTurnResult) -> Any:
        """The answer to a prompt. `RpcError` when a login is needed, `AgentFailed` for any other failure."""
        if (failure := result.failure) is not None:
            if failure.needs_login:
                raise RpcError(json_rpc.AUTH_REQUIRED, failure.message)
            raise AgentFailed(f"{self._spec.title} could not answer: {failure.message}", hint=failure.hint)
        return result.answer()

    def _process_ended(self, why: AgentFailed) -> None:
        if self._process is not None:
            self.ended.set()

    async def _close(self) -> None:
        if self._starting is not None:
            await self._starting.close()
        self.ended.set()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)


def _objects(listed: Any, key: str) -> list[dict[str, Any]]:
    """The objects of a list that have a text by that key."""
    found = listed if isinstance(listed, list) else []
    return [one for one in found if isinstance(one, dict) and isinstance(one.get(key), str) and one[key]]
