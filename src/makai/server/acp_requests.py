"""What a client of the Agent Client Protocol asks about sessions: begins, finds, opens, changes and ends them.

Every request reaches sessions through `Sessions`, so it makes no difference which process owns them and which protocol
created them. `acp_session` is what a session is to this connection once it is open here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from makai.catalog.model_ref import ref_of
from makai.catalog.model_settings import model_for
from makai.catalog.models import ModelLifecycle, ModelsRequest
from makai.core import session_events as ev
from makai.core.access import LOCAL
from makai.core.errors import AuthRequired, InvalidRequest, MakaiError, ParseError, StorageUnavailable
from makai.core.model import ModelCapability
from makai.core.settings import Settings
from makai.harness.registry import NATIVE, harness_id_of
from makai.protocols.acp.settings import MODEL, ModelChoice, command_for_mode, command_for_model, command_for_option
from makai.server.acp_client_calls import described_servers, offered_by
from makai.server.acp_session import AcpSession
from makai.server.scopes import scoped
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.log.base import SessionFilter, SessionSummary
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState
from makai.wire import json_rpc
from makai.wire.acp import sessions as wire
from makai.wire.acp.common import Empty, Wire
from makai.wire.acp.methods import AGENT_REQUESTS, UNSTABLE_AGENT_REQUESTS
from makai.wire.acp.updates import SessionUpdate
from makai.wire.json_rpc_errors import RpcError, decoded_params

if TYPE_CHECKING:
    from makai.server.acp_connection import AcpConnection

log = logging.getLogger(__name__)

PAGE: Final = 50
_MAX_PER_MS: Final = 100
"""Sessions that were used in the same millisecond are on one page, at most so many more than its size."""
MODELS_S: Final = 1.0
"""How long the answer to a request waits for lists of models from vendors; later ones are sent as an update."""
MODELS_AGE_S: Final = 60.0
Show: TypeAlias = Callable[[AcpSession, SessionState], Awaitable[Sequence[SessionUpdate]]]
"""Sends what a client is shown before the answer, and returns what follows right after it."""
_NEEDS_LOGIN: Final = ("login_required", "expired", "failed")


@cache
def _decoder(kind: type[Wire]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


class SessionRequests:
    """The requests of one connection about sessions."""

    def __init__(self, connection: AcpConnection) -> None:
        server, caller = connection.server, connection.caller
        self._connection = connection
        self._server = server
        is_local = caller is LOCAL
        self._open_sessions = server.sessions if is_local else scoped(server.sessions, caller, server.settings)
        self._open: dict[str, AcpSession] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held while a session is opened, closed or deleted: the requests behind it about that session wait."""
        self._models: tuple[ModelChoice, ...] = ()
        self._listing: asyncio.Task[None] | None = None
        self._listed_at = 0.0
        self._types = AGENT_REQUESTS | (UNSTABLE_AGENT_REQUESTS if server.unstable else {})
        self._handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_option,
            "session/prompt": self._prompt,
            "_session/steering": self._steer,
        }

    async def answer(self, method: str, params: msgspec.Raw | None) -> Any:
        """The result of a request. It runs without a break until the request has its place: the order of requests
        holds."""
        handler, kind = self._handlers.get(method), self._types.get(method)
        if handler is None or kind is None:
            raise RpcError(json_rpc.METHOD_NOT_FOUND, f"There is no method {method[:100]!r}.")
        return await handler(decoded_params(_decoder(kind), params))

    def cancel(self, params: msgspec.Raw | None) -> None:
        """`session/cancel`. A notification has no answer, so one that makes no sense has no effect."""
        with suppress(RpcError):
            session_id = decoded_params(_decoder(wire.SessionRequest), params).session_id
            self._connection.tasks.start(self._cancel(session_id), "acp-cancel")

    async def _cancel(self, session_id: str) -> None:
        with suppress(RpcError):
            (await self._session(session_id)).cancel()

    def close(self) -> None:
        for session in self._open.values():
            session.close()

    async def _sessions(self) -> Sessions:
        """`StorageUnavailable` when MAKAI_HOME cannot be used: the parameters of the request are not at fault."""
        try:
            return await self._open_sessions()
        except InvalidRequest as error:
            raise StorageUnavailable(error.message, hint=error.hint) from None

    def _lock(self, session_id: str) -> asyncio.Lock:
        """Requests take it in the order in which they came. It exists as long as one of them holds or awaits it."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    # Opening sessions

    async def _new(self, wanted: wire.NewSessionRequest) -> wire.NewSessionResponse:
        _check_absolute(wanted.cwd, *wanted.additional_directories)
        servers = [_mcp_server(raw) for raw in wanted.mcp_servers]
        sessions = await self._sessions()  # first: settings are read from the same folder
        settings = await self._server.settings(wanted.cwd, self._connection.caller)
        harness = harness_id_of(settings.agent_for(None, self._server.model))
        model_ref, has_tools = self._default_model(settings) if harness == NATIVE else (self._server.model or "", True)
        added = wanted.additional_directories
        terms = ev.SessionTerms(builtin_tools=has_tools, sandbox=settings.sandbox, reasoning_effort=settings.effort)
        create = req.CreateSession(
            model_ref=model_ref,
            harness=harness,
            mode=settings.mode,
            cwd=wanted.cwd,
            roots=(wanted.cwd, *added) if added else (),
            terms=self._with_client(terms, servers),
        )
        return await self._begun(sessions, await sessions.dispatch(create), servers)

    async def _fork(self, wanted: wire.ForkSessionRequest) -> wire.NewSessionResponse:
        sessions = await self._sessions()
        state, servers = await self._found(sessions, wanted)
        fork = req.ForkSession(origin=wanted.session_id, terms=self._with_client(state.terms, servers))
        return await self._begun(sessions, await sessions.dispatch(fork), servers)

    async def _begun(
        self, sessions: Sessions, session_id: str, servers: Sequence[wire.McpServer]
    ) -> wire.NewSessionResponse:
        settings = await self._opened(sessions, session_id, servers, _nothing_to_show)
        return wire.NewSessionResponse(
            session_id=session_id,
            modes=settings.modes,
            models=settings.models,
            config_options=settings.config_options,
        )

    async def _load(self, wanted: wire.LoadSessionRequest) -> wire.SessionSettings:
        async with self._lock(wanted.session_id):
            return await self._reopened(wanted, AcpSession.replay)

    async def _resume(self, wanted: wire.ResumeSessionRequest) -> wire.SessionSettings:
        async with self._lock(wanted.session_id):
            return await self._reopened(wanted, AcpSession.catch_up)

    async def _reopened(
        self, wanted: wire.LoadSessionRequest | wire.ResumeSessionRequest, show: Show
    ) -> wire.SessionSettings:
        """Open a session of the log with what this client brings along: its MCP servers, its files and terminals."""
        former = self._open.get(wanted.session_id)
        if former is not None and former.is_busy:
            raise RpcError(json_rpc.INVALID_REQUEST, "A prompt is running in this session.", {"code": "BUSY"})
        sessions = await self._sessions()
        state, servers = await self._found(sessions, wanted)
        terms = self._with_client(state.terms, servers)
        if terms != state.terms and not state.closed and self._connection.caller.may("prompt"):
            await sessions.dispatch(req.RunCommand(wanted.session_id, cmd.SetTerms(now=0, terms=terms)))
        if former is not None:
            former.close()
        return await self._opened(sessions, wanted.session_id, servers, show)

    async def _opened(
        self, sessions: Sessions, session_id: str, servers: Sequence[wire.McpServer], show: Show
    ) -> wire.SessionSettings:
        await self._refresh_models()
        session = AcpSession(session_id, self._connection, sessions, lambda: self._models)
        try:
            if self._connection.caller.may("prompt"):  # others only watch
                await session.offer_client(described_servers(servers)[1])
            state = await session.state()
            settings = session.settings(state)
            announced = await show(session, state)
        except BaseException:
            session.close()
            raise
        self._open[session_id] = session
        session.start(state, announced)
        return settings

    async def _found(
        self, sessions: Sessions, wanted: wire.LoadSessionRequest | wire.ResumeSessionRequest
    ) -> tuple[SessionState, list[wire.McpServer]]:
        _check_absolute(wanted.cwd, *wanted.additional_directories)
        servers = [_mcp_server(raw) for raw in wanted.mcp_servers]
        state = await sessions.dispatch(req.GetState(wanted.session_id))
        folders = [wanted.cwd, *wanted.additional_directories]
        resolved = [await asyncio.to_thread(os.path.realpath, folder) for folder in folders]
        if state.cwd is not None and resolved[0] != state.cwd:
            raise RpcError(json_rpc.INVALID_PARAMS, f"`cwd`: this session works in {state.cwd}.")
        if unknown := [folder for folder in resolved[1:] if folder not in state.roots]:
            message = f"`additionalDirectories`: {unknown[0]} is not a folder of this session, and none can be added."
            raise RpcError(json_rpc.INVALID_PARAMS, message)
        return state, servers

    def _with_client(self, terms: ev.SessionTerms, servers: Sequence[wire.McpServer]) -> ev.SessionTerms:
        """The terms with what this client brings along. Values of variables and headers are not part of them."""
        names = [server.name for server in servers]
        if len(set(names)) < len(names):
            raise RpcError(json_rpc.INVALID_PARAMS, "`mcpServers`: two servers have the same name.")
        here = offered_by(self._connection.client.client_capabilities)
        client = ev.ClientCapabilities(  # others may be connected too, and what is missing in the end is not used
            read_files=here.read_files or terms.client.read_files,
            write_files=here.write_files or terms.client.write_files,
            terminals=here.terminals or terms.client.terminals,
        )
        return msgspec.structs.replace(terms, client=client, mcp_servers=described_servers(servers)[0])

    def _default_model(self, settings: Settings) -> tuple[str, bool]:
        """The model of a new session and whether it uses tools; `AuthRequired` without its login (ACP-AUTH-003)."""
        backend = self._server.backend
        model = model_for(backend, settings, self._server.model)
        if model.provider == "local" and not self._server.has_local_model():
            raise AuthRequired(
                "You are not logged in to any provider, and no local model is installed.",
                provider_id=model.provider,
                hint="Log in, or run `makai models pull smollm2`.",
            )
        statuses = {provider.id: provider.auth_status for provider in backend.auth().list_providers()}
        if statuses.get(model.provider) in _NEEDS_LOGIN:
            raise AuthRequired(f"You are not logged in to {model.provider}.", provider_id=model.provider)
        return ref_of(model), ModelCapability.TOOLS in model.capabilities

    # Listing and ending sessions

    async def _list(self, wanted: wire.ListSessionsRequest) -> wire.ListSessionsResponse:
        before = None
        if wanted.cursor is not None:
            if not (wanted.cursor.isascii() and wanted.cursor.isdecimal() and len(wanted.cursor) <= 15):
                raise RpcError(json_rpc.INVALID_PARAMS, "`cursor` is none that was given here.")
            before = int(wanted.cursor)
        cwd = None
        if wanted.cwd is not None:
            _check_absolute(wanted.cwd)
            cwd = await asyncio.to_thread(os.path.realpath, wanted.cwd)
        found = await (await self._sessions()).dispatch(
            req.ListSessions(
                SessionFilter(limit=PAGE + _MAX_PER_MS, updated_before_ms=before, cwd=cwd, archived="without")
            )
        )
        end = min(PAGE, len(found))
        while 0 < end < len(found) and found[end].updated_ms == found[end - 1].updated_ms:
            end += 1
        return wire.ListSessionsResponse(
            # An editor opens a session in its folder: one without a folder is not an editor's.
            sessions=tuple(_info(summary, summary.cwd) for summary in found[:end] if summary.cwd),
            next_cursor=str(found[end - 1].updated_ms) if end < len(found) else None,
        )

    async def _close(self, wanted: wire.SessionRequest) -> Empty:
        async with self._lock(wanted.session_id):
            is_open = await self._stopped(wanted.session_id)
            if not is_open and await (await self._sessions()).dispatch(req.GetSession(wanted.session_id)) is None:
                raise _unknown(wanted.session_id)
        return Empty()

    async def _delete(self, wanted: wire.SessionRequest) -> Empty:
        async with self._lock(wanted.session_id):
            await self._stopped(wanted.session_id)
            await (await self._sessions()).dispatch(req.DeleteSession(wanted.session_id))
        return Empty()

    async def _stopped(self, session_id: str) -> bool:
        """Let go of a session. Returns whether it was open here."""
        if (session := self._open.get(session_id)) is None:
            return False
        await session.stop()
        self._open.pop(session_id, None)
        return True

    # Requests about an open session

    async def _session(self, session_id: str) -> AcpSession:
        async with self._lock(session_id):
            session = self._open.get(session_id)
        if session is None or session.is_closed:
            raise _unknown(session_id)
        return session

    async def _set_mode(self, wanted: wire.SetModeRequest) -> Empty:
        session = await self._session(wanted.session_id)
        await session.change(lambda state, models: command_for_mode(wanted.mode_id, state))
        return Empty()

    async def _set_model(self, wanted: wire.SetModelRequest) -> Empty:
        session = await self._session(wanted.session_id)
        model_id = await self._without_alias(session, wanted.model_id)
        await session.change(lambda state, models: command_for_model(model_id, models, state))
        return Empty()

    async def _set_option(self, wanted: wire.SetConfigOptionRequest) -> wire.SetConfigOptionResponse:
        session = await self._session(wanted.session_id)
        value = wanted.value
        if wanted.config_id == MODEL and isinstance(value, str):
            value = await self._without_alias(session, value)
        await session.change(lambda state, models: command_for_option(wanted.config_id, value, state, models))
        return wire.SetConfigOptionResponse(config_options=await session.config_options())

    async def _without_alias(self, session: AcpSession, name: str) -> str:
        """The ref that an alias of the session's folder stands for; any other name stays as it is."""
        state = await session.state()
        settings = await self._server.settings(state.cwd, self._connection.caller)
        is_alias = state.capabilities.needs_model and name in settings.aliases
        return ref_of(model_for(self._server.backend, settings, name)) if is_alias else name

    async def _prompt(self, wanted: wire.PromptRequest) -> wire.PromptResponse:
        return await (await self._session(wanted.session_id)).prompt(wanted.prompt)

    async def _steer(self, wanted: wire.SteeringRequest) -> wire.SteeringResponse:
        return await (await self._session(wanted.session_id)).steer(wanted.prompt)

    # Models

    async def _refresh_models(self) -> None:
        """List the models that can be used now, and wait a moment for the lists of vendors."""
        now = asyncio.get_running_loop().time()
        if self._listing is None or (self._listing.done() and now - self._listed_at > MODELS_AGE_S):
            self._listed_at = now
            self._listing = self._connection.tasks.start(self._list_models(), "acp-models")
        if not self._listing.done():
            await asyncio.wait({self._listing}, timeout=MODELS_S)

    async def _list_models(self) -> None:
        try:
            listed = (await self._server.backend.models(ModelsRequest(include_login_required=False))).models
        except MakaiError as error:
            log.warning("models cannot be listed: %s", error)
            return
        models = tuple(
            ModelChoice(
                model_ref=each.model_ref,
                name=each.display_name or each.model_id,
                description=each.provider_id,
                can_think=ModelCapability.REASONING in each.capabilities,
            )
            for each in listed
            if each.lifecycle is not ModelLifecycle.DEPRECATED and ModelCapability.CHAT in each.capabilities
        )
        if models != self._models:
            self._models = models
            for session in tuple(self._open.values()):
                with suppress(MakaiError):
                    await session.models_changed()


async def _nothing_to_show(session: AcpSession, state: SessionState) -> Sequence[SessionUpdate]:
    return ()


def _check_absolute(cwd: str, *added: str) -> None:
    for name, folder in (("cwd", cwd), *(("additionalDirectories", each) for each in added)):
        if not os.path.isabs(folder):
            raise RpcError(json_rpc.INVALID_PARAMS, f"`{name}` must be an absolute path, not {folder[:200]!r}.")


def _mcp_server(raw: msgspec.Raw) -> wire.McpServer:
    try:
        return wire.mcp_server(raw)
    except ParseError as error:
        raise RpcError(json_rpc.INVALID_PARAMS, f"`mcpServers`: {error.message}") from None


def _info(summary: SessionSummary, cwd: str) -> wire.ListedSession:
    updated = datetime.fromtimestamp(summary.updated_ms / 1000, UTC)
    return wire.ListedSession(
        session_id=summary.session_id,
        cwd=cwd,
        title=summary.title or None,
        updated_at=updated.isoformat(timespec="milliseconds"),
    )


def _unknown(session_id: str) -> RpcError:
    return RpcError(json_rpc.RESOURCE_NOT_FOUND, f"The session {session_id[:200]!r} is not open here.")
