"""`codex app-server` as an agent of ACP: the process, the handshake, threads and turns.

Requests of ACP become requests of the app-server; its notifications pass `translator`, its questions `approvals`. A
prompt is answered when its turn has ended, and fails when the process ends before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from makai.aio.json_rpc_calls import answered_request
from makai.core.errors import AgentFailed
from makai.core.version import __version__
from makai.harness.acp.connection import AgentConnection, AgentTransport
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.peer import AgentClient, AgentLaunch, StartTransport
from makai.harness.acp.updates_to_facts import TURNS
from makai.harness.acp.version_probe import ProbedVersion, probe_version
from makai.harness.codex import messages
from makai.harness.codex.approvals import OPTIONS, CodexQuestion, CodexRefusal, question_of
from makai.harness.codex.launching import codex_environment, direct_program, thread_settings, turn_settings
from makai.harness.codex.translator import (
    CodexTurnEnd,
    Output,
    QuestionOver,
    Translator,
    error_name,
    failure_text,
    needs_login,
)
from makai.wire import json_rpc
from makai.wire.acp import client_calls, connecting, sessions, updates
from makai.wire.acp.common import (
    AudioBlock,
    ContentBlock,
    EmbeddedResource,
    Empty,
    ImageBlock,
    Implementation,
    ResourceLinkBlock,
    TextBlock,
)
from makai.wire.json_rpc_errors import RpcError

log = logging.getLogger(__name__)
T = TypeVar("T")

CALL_S: Final = 60.0
INTERRUPT_S: Final = 5.0
_HINTS: Final = {
    "usageLimitExceeded": "Wait until the limit is reset, or choose another model.",
    "contextWindowExceeded": "Begin a new session.",
    "modelNotFound": "Choose another model.",
}
_CAPABILITIES: Final = connecting.AgentCapabilities(
    prompt_capabilities=connecting.PromptCapabilities(image=True, embedded_context=True),
    mcp_capabilities=connecting.McpCapabilities(http=True),
    session_capabilities=connecting.SessionCapabilities(resume=Empty(), additional_directories=Empty()),
)


async def start_codex(
    spec: AgentSpec,
    launch: AgentLaunch,
    argv: Sequence[str],
    env: dict[str, str],
    client: AgentClient,
    start: StartTransport,
) -> CodexPeer:
    """Start the app-server. `NotSupported` for a version that is too old."""
    program, env = direct_program(argv[0]), codex_environment(env)
    version = await probe_version(spec, program, env, launch.cwd, start)
    transport = await start([program, *argv[1:]], env, launch.cwd)
    client.on_process(transport)
    return CodexPeer(spec.title, launch, version, transport, client)


class CodexPeer:
    """`peer.AgentPeer` for one app-server with one thread."""

    def __init__(
        self, title: str, launch: AgentLaunch, version: ProbedVersion, transport: AgentTransport, client: AgentClient
    ) -> None:
        self._title = title
        self._launch = launch
        self._version = version
        self._client = client
        self._model = launch.model
        self._translator = Translator()
        self._notices = [version.notice] if version.notice else []
        """What a person should know, until there is a run to log it."""
        self._turn: asyncio.Future[CodexTurnEnd] | None = None
        self._has_told_drift = False
        self._cancelled = asyncio.Event()
        self._asking: dict[json_rpc.RequestId, asyncio.Task[Any]] = {}
        self._connection = AgentConnection(
            title, transport, self, client.room, protocol="the protocol of `codex app-server`", lenient=True,
            on_end=self._no_more,
        )  # fmt: skip
        self.ended = self._connection.ended
        self.failure = self._connection.failure
        self.close = self._connection.close

    @property
    def drift(self) -> dict[str, int]:
        """How often the server said something that this version does not know, by name."""
        return dict(self._translator.drift.counts)

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        match method:
            case "initialize":
                answer: Any = await self._initialize(seconds)
            case "session/new":
                answer = await self._open("thread/start", {}, params, seconds)
            case "session/resume" | "session/load":
                known = {"threadId": params.session_id, "excludeTurns": True}
                answer = await self._open("thread/resume", known, params, seconds)
            case "session/prompt":
                answer = await self._prompt(params)
            case "session/set_model":
                self._model = params.model_id
                answer = Empty()
            case "_session/steering":
                answer = await self._steer(params, seconds)
            case _:
                raise RpcError(json_rpc.METHOD_NOT_FOUND, f"{self._title} has no {method[:100]}.")
        return msgspec.to_builtins(answer)

    def notify(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            self._cancelled.set()

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        found = question_of(method, params, self._translator.open_items)
        if isinstance(found, CodexRefusal):
            self._update(updates.NoticeUpdate(severity="warning", title=found.notice))
            return found.result
        request_id, task = answered_request.get(), asyncio.current_task()
        assert task is not None
        self._asking[request_id] = task
        try:
            return await self._ask(found)
        finally:
            del self._asking[request_id]

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        self._apply(self._translator.on_notification(method, params))

    def _apply(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case CodexTurnEnd():
                    self._tell_drift()
                    self._withdraw(tuple(self._asking))
                    if self._turn is not None and not self._turn.done():
                        self._turn.set_result(output)
                case QuestionOver(request_id):
                    self._withdraw((request_id,))
                case _:
                    self._update(output)

    def _update(self, update: updates.SessionUpdate) -> None:
        self._client.on_session_update(self._translator.thread_id, update)

    def _tell_drift(self) -> None:
        """Say once that the server says more than makai understands."""
        if self._translator.drift.counts and not self._has_told_drift:
            self._has_told_drift = True
            what = f"{self._title} said things that this makai does not know: {self._translator.drift.summary()}"
            self._update(updates.NoticeUpdate(severity="info", title=what))

    def _withdraw(self, request_ids: Sequence[json_rpc.RequestId]) -> None:
        for request_id in request_ids:
            if (task := self._asking.get(request_id)) is not None:
                task.cancel()

    def _no_more(self, why: AgentFailed) -> None:
        """The process ended, and with it the turn."""
        self._apply([output for output in self._translator.end("cancelled") if not isinstance(output, CodexTurnEnd)])
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(why)

    async def _initialize(self, seconds: float | None) -> connecting.InitializeResponse:
        hello = {
            "clientInfo": {"name": "makai", "title": "makai", "version": __version__},
            "capabilities": {"experimentalApi": True, "requestAttestation": False},
        }
        await self._connection.request("initialize", hello, seconds=seconds)
        self._connection.notify("initialized", None)
        return connecting.InitializeResponse(
            protocol_version=connecting.PROTOCOL_VERSION,
            agent_capabilities=_CAPABILITIES,
            agent_info=Implementation(name="codex", title=self._title, version=self._version.version),
            meta={"steering": {"supported": True}},
        )

    async def _open(
        self,
        method: str,
        known: dict[str, Any],
        params: sessions.NewSessionRequest | sessions.ResumeSessionRequest | sessions.LoadSessionRequest,
        seconds: float | None,
    ) -> sessions.NewSessionResponse:
        await self._check_login()
        settings = thread_settings(self._launch, params.mcp_servers, params.additional_directories)
        opened = await self._call(messages.ThreadOpened, method, settings | known, seconds)
        self._translator.thread_id = opened.thread.id
        return sessions.NewSessionResponse(session_id=opened.thread.id, models=await self._models(opened.model))

    async def _check_login(self) -> None:
        try:
            found = await self._call(messages.AccountRead, "account/read", {}, CALL_S)
        except RpcError:
            return  # a version without accounts says so when it is asked for an answer
        if found.requires_openai_auth and found.account is None:
            raise await self._without_login("it is not logged in.")

    async def _models(self, current: str) -> sessions.SessionModelState | None:
        try:
            found = await self._call(messages.ModelList, "model/list", {}, CALL_S)
        except RpcError as error:
            log.debug("%s lists no models: %s", self._title, error.message)
            return None
        offered = tuple(
            sessions.ModelInfo(model_id=model.id, name=model.display_name or model.id, description=model.description)
            for model in found.data
            if not model.hidden
        )
        return sessions.SessionModelState(current_model_id=current, available_models=offered)

    async def _prompt(self, params: sessions.PromptRequest) -> sessions.PromptResponse:
        notices, self._notices = self._notices, []
        for notice in notices:
            self._update(updates.NoticeUpdate(severity="warning", title=notice))
        self._cancelled.clear()
        self._translator.begin()
        turn = self._turn = asyncio.get_running_loop().create_future()
        thread_id = self._translator.thread_id
        settings = {"threadId": thread_id, "input": _inputs(params.prompt), **turn_settings(self._launch, self._model)}
        try:
            started = await self._call(messages.TurnOpened, "turn/start", settings, CALL_S)
            if self._translator.is_active and self._translator.turn_id is None:
                self._translator.turn_id = started.turn.id
            ended = await self._ended(turn)
        finally:
            self._turn = None
            self._translator.end()
            turn.cancel()
        if (failure := ended.failure) is not None:
            if needs_login(failure):
                raise await self._without_login(failure_text(failure))
            hint = _HINTS.get(error_name(failure))
            raise AgentFailed(f"{self._title} failed: {failure_text(failure)}", hint=hint)
        return sessions.PromptResponse(
            stop_reason=ended.stop_reason, usage=ended.usage, meta={TURNS: ended.model_calls}
        )

    async def _ended(self, turn: asyncio.Future[CodexTurnEnd]) -> CodexTurnEnd:
        """The end of the turn, which is interrupted when the prompt is cancelled."""
        cancelled = asyncio.create_task(self._cancelled.wait(), name=f"cancel of {self._title}")
        try:
            waited: tuple[asyncio.Future[Any], ...] = (turn, cancelled)
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                translator = self._translator
                named = {"threadId": translator.thread_id, "turnId": translator.turn_id}
                try:
                    await self._connection.request("turn/interrupt", named, seconds=INTERRUPT_S)
                except RpcError as error:
                    log.debug("%s did not interrupt its turn: %s", self._title, error.message)
            return await turn
        finally:
            cancelled.cancel()

    async def _without_login(self, why: str) -> RpcError:
        """Codex reads its login when it starts, so that the next run needs another process."""
        await self.close()
        return RpcError(json_rpc.AUTH_REQUIRED, why)

    async def _steer(self, params: sessions.SteeringRequest, seconds: float | None) -> sessions.SteeringResponse:
        translator = self._translator
        if translator.turn_id is None:
            return sessions.SteeringResponse(outcome="failed")
        named = {"threadId": translator.thread_id, "expectedTurnId": translator.turn_id}
        try:
            given = {**named, "input": _inputs(params.prompt)}
            await self._connection.request("turn/steer", given, seconds=seconds)
        except RpcError as error:
            log.debug("%s was not steered: %s", self._title, error.message)
            return sessions.SteeringResponse(outcome="failed")
        return sessions.SteeringResponse(outcome="injected")

    async def _ask(self, question: CodexQuestion) -> Any:
        translator, call = self._translator, question.call
        translator.asks_about(call.tool_call_id)
        request = client_calls.RequestPermissionRequest(
            session_id=translator.thread_id,
            tool_call=msgspec.structs.replace(call, meta=translator.parent_meta(question.thread_id)),
            options=OPTIONS,
        )
        outcome = (await self._client.on_permission(request)).outcome
        chosen = outcome.option_id if isinstance(outcome, client_calls.SelectedOutcome) else "cancelled"
        if question.is_own_call:
            status = "completed" if chosen in ("once", "session") else "failed"
            self._update(updates.ToolCallUpdate(tool_call_id=call.tool_call_id, status=status))
        return question.answers.get(chosen, question.answers["cancelled"])

    async def _call(self, kind: type[T], method: str, params: Any, seconds: float | None) -> T:
        answer = await self._connection.request(method, params, seconds=seconds)
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise self.failure(f"answered {method} with something else: {error}") from None


def _inputs(blocks: Sequence[ContentBlock]) -> list[dict[str, Any]]:
    return [_input(block) for block in blocks]


def _input(block: ContentBlock) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return _text(text)
        case ImageBlock(data=data, mime_type=mime_type):
            return {"type": "image", "url": f"data:{mime_type};base64,{data}"}
        case AudioBlock(data=data, mime_type=mime_type):
            return {"type": "audio", "url": f"data:{mime_type};base64,{data}"}
        case ResourceLinkBlock(uri=uri, name=name):
            return _text(f"[{name}]({uri})")
        case EmbeddedResource(resource=resource):
            held = resource.text if resource.text is not None else "(not text)"
            return _text(f'<resource uri="{resource.uri}">\n{held}\n</resource>')


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "text_elements": []}
