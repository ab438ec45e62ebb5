"""The Agent Client Protocol on a channel: the handshake, what may be asked before and after it, and who answers.

Editors wait for the answer to `initialize`, so this module imports nothing that it does not need; what sessions and
logins need is imported with the first request about one. Requests run as tasks that start in the order in which they
came, so that a `session/cancel` always finds the prompt that was sent before it. The outbox is bounded: what
publishes much waits for `room`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from makai.aio.json_rpc_calls import JsonRpcCalls
from makai.aio.tasks import BackgroundTasks
from makai.core.access import LOCAL, Caller
from makai.core.errors import (
    AuthError,
    ChannelClosed,
    Forbidden,
    InvalidRequest,
    MakaiError,
    SessionRefused,
    TransportError,
)
from makai.server.acp_handshake import OfferedLogin, auth_methods, initialize_result
from makai.server.session_source import default_settings
from makai.transports.channel import Channel, Oversized
from makai.transports.connection import FrameWriter, Outbox
from makai.wire import json_rpc, strict_json
from makai.wire.acp import connecting
from makai.wire.json_rpc_errors import RpcError, decoded_params

if TYPE_CHECKING:
    from makai.server.acp_logins import AcpLogins
    from makai.server.acp_requests import SessionRequests
    from makai.server.backend import Backend
    from makai.server.metrics import Metrics
    from makai.server.session_source import SettingsOf
    from makai.sessions.service import Sessions

log = logging.getLogger(__name__)

OpenSessions: TypeAlias = "Callable[[], Awaitable[Sessions]]"

MAX_NAME_LENGTH: Final = 64
_END_S: Final = 0.5
"""How long each step of ending a connection may take: an editor that closes its end expects the process to exit."""


class _WithParams(msgspec.Struct, frozen=True):
    params: msgspec.Raw


_INITIALIZE: Final = msgspec.json.Decoder(connecting.InitializeRequest)
_WITH_PARAMS: Final = msgspec.json.Decoder(_WithParams)
_REFUSALS: Final = {"UNKNOWN_SESSION": json_rpc.RESOURCE_NOT_FOUND, "BAD_ARGUMENT": json_rpc.INVALID_PARAMS}
"""Refusals of a session with a code of their own; the others are invalid requests."""


class AcpServer:
    """Serves the protocol on any number of channels over one backend."""

    def __init__(
        self,
        sessions: OpenSessions,
        backend: Backend,
        *,
        logins: Callable[[], Sequence[OfferedLogin]] = tuple,
        open_page: Callable[[str], bool] | None = None,
        prepare: Callable[[], None] = lambda: None,
        has_local_model: Callable[[], bool] = lambda: True,
        model: str | None = None,
        max_turns: int | None = None,
        unstable: bool = False,
        settings: SettingsOf = default_settings,
        metrics: Metrics | None = None,
    ) -> None:
        """`logins` are the providers that a client may log in to. `open_page` opens the user's browser and says whether
        it could. `prepare` is called before the first request that may read a secret. `has_local_model` says
        whether the model that needs no login is installed. `settings` are those of new sessions, but for a `model`;
        `max_turns` limits each of their runs."""
        self.sessions = sessions
        self.backend = backend
        self.logins = logins
        self.open_page = open_page
        self.prepare = prepare
        self.has_local_model = has_local_model
        self.model = model
        self.max_turns = max_turns
        self.unstable = unstable
        self.settings = settings
        self._metrics = metrics

    async def serve(self, channel: Channel, caller: Caller = LOCAL, *, is_initialized: bool = False) -> None:
        """`is_initialized`: the first message is an `initialize` that was answered before the channel was made."""
        connection = AcpConnection(self, channel, caller)
        with nullcontext() if self._metrics is None else self._metrics.connected("acp", connection.outbox):
            await connection.run(is_initialized=is_initialized)


class AcpConnection:
    """One client. It is the `RpcHandler` of its peer."""

    def __init__(self, server: AcpServer, channel: Channel, caller: Caller) -> None:
        self.server = server
        self.caller = caller
        self.tasks = BackgroundTasks()
        self._channel = channel
        self._client: connecting.InitializeRequest | None = None
        self.outbox = Outbox()
        self._writer = FrameWriter(channel, self.outbox, self._hang_up, name="acp-writer")
        self.calls = JsonRpcCalls(self._write, self)
        self.room = self._writer.room
        self._requests: SessionRequests | None = None
        self._logins: AcpLogins | None = None

    @property
    def client(self) -> connecting.InitializeRequest:
        """What the client said about itself. Nothing that asks for it is called before the handshake."""
        assert self._client is not None
        return self._client

    @property
    def is_ending(self) -> bool:
        return self.tasks.closing

    @property
    def decider(self) -> str:
        """How the log names who decides here: "acp", with the name of the client's program if it gave one."""
        info = self.client.client_info
        name = "".join(letter for letter in info.name if letter.isprintable())[:MAX_NAME_LENGTH] if info else ""
        return f"acp:{name}" if name else "acp"

    async def run(self, *, is_initialized: bool = False) -> None:
        try:
            if is_initialized and isinstance(line := await self._channel.receive(), bytes):
                self._take_answered(line)
            await self._read()
        finally:
            self.tasks.closing = True  # what is cancelled from here on is not the client's wish
            if self._requests is not None:
                self._requests.close()
            await self.calls.close()
            await self.tasks.close(_END_S)
            await self._writer.close(_END_S)
            await self._channel.close()

    async def _read(self) -> None:
        while (frame := await self._channel.receive()) is not None:
            if isinstance(frame, Oversized):
                message = f"The message exceeds the limit of {frame.limit} bytes."
                self.calls.refuse_line(json_rpc.INVALID_REQUEST, message, frame.start)
            else:
                self.calls.receive(frame)
            await asyncio.sleep(0)  # a request begins before the notification behind it is looked at
            with suppress(ChannelClosed):  # then the channel ends too
                await self.room()

    def _write(self, line: bytes) -> None:
        self.outbox.put(line[:-1])  # the channel ends lines itself
        self._writer.wake()

    def _hang_up(self, error: TransportError) -> None:
        self.tasks.start(self._channel.close(), "acp-hang-up", may_finish=True)

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        try:
            if method == "initialize":
                return self._initialize(params)
            if self._client is None:
                raise RpcError(json_rpc.INVALID_REQUEST, "Call `initialize` first.")
            if method in ("authenticate", "logout"):
                return await self._login_requests().answer(method, params)
            return await self._session_requests().answer(method, params)
        except RpcError:
            raise
        except AuthError as error:
            raise _rpc_error(error, authMethods=self.auth_methods()) from None
        except MakaiError as error:
            raise _rpc_error(error) from None

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        if method == "session/cancel" and self._requests is not None:
            self._requests.cancel(params)

    def auth_methods(self) -> list[dict[str, Any]]:
        if not self.caller.may("admin"):
            return []
        has_terminal = self.client.client_capabilities.auth.terminal
        return auth_methods(self.server.logins(), has_terminal=has_terminal)

    def _initialize(self, params: msgspec.Raw | None) -> dict[str, Any]:
        if self._client is not None:
            raise RpcError(json_rpc.INVALID_REQUEST, "The connection is initialized already.")
        self._client = decoded_params(_INITIALIZE, params)
        may_log_in = self.caller.may("admin")
        return initialize_result(self.auth_methods(), may_log_in=may_log_in, unstable=self.server.unstable)

    def _take_answered(self, line: bytes) -> None:
        """Take an `initialize` that `acp_handshake.early_answer` has answered already, so it can be read."""
        self._client = decoded_params(_INITIALIZE, strict_json.decode_with(_WITH_PARAMS, line).params)

    def _session_requests(self) -> SessionRequests:
        if self._requests is None:
            from makai.server.acp_requests import SessionRequests

            self.server.prepare()
            self._requests = SessionRequests(self)
        return self._requests

    def _login_requests(self) -> AcpLogins:
        if self._logins is None:
            from makai.server.acp_logins import AcpLogins

            self.server.prepare()
            self._logins = AcpLogins(self)
        return self._logins


def _rpc_error(error: MakaiError, **data: Any) -> RpcError:
    """The error to answer with, on one line. `data.code` is makai's own code."""
    match error:
        case SessionRefused():
            code = _REFUSALS.get(error.code, json_rpc.INVALID_REQUEST)
        case AuthError():
            code = json_rpc.AUTH_REQUIRED
        case InvalidRequest():
            code = json_rpc.INVALID_PARAMS
        case Forbidden():
            code = json_rpc.INVALID_REQUEST
        case _:
            code = json_rpc.INTERNAL_ERROR
    return RpcError(code, " ".join(str(error).split()), {"code": error.code, **data})
