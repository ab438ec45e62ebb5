"""A session as one caller sees it: its events in order, and the end of the caller's own run. A run has exactly one
terminal event, the last one; it waits for the run's settlement, which says more about the end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple, get_args

import msgspec

from makai.aio.pipes import wake
from makai.client import types as sdk
from makai.client.callbacks import Callbacks
from makai.client.connection import Failure, MakaiConnection
from makai.client.failures import ClientFailure, broken_protocol, error_event, transport_failure
from makai.client.session_link import SessionLink, failure_in
from makai.core.errors import MakaiAuthError, MakaiStreamError
from makai.protocols.makai.agent_payloads import AgentStopped, PermissionSettled, ToolExecute
from makai.protocols.makai.client import Reply

_EVENT_OVERHEAD: Final = 256
"""What a waiting event costs beside its text."""
_KNOWN: Final = frozenset(kind.__struct_config__.tag for kind in get_args(sdk.AgentStreamEvent))


class _Event(msgspec.Struct, frozen=True):
    event: msgspec.Raw
    run_id: str
    event_id: int | None = None


class _Kind(msgspec.Struct, frozen=True):
    type: str


class _RunOf(msgspec.Struct, frozen=True):
    run_id: str | None = None


class Heard(NamedTuple):
    """An event, and the cursor it leaves the caller at."""

    event: sdk.AgentStreamEvent
    event_id: int | None


_event_message = msgspec.json.Decoder(_Event).decode
_event = msgspec.json.Decoder(sdk.AgentStreamEvent).decode
_kind = msgspec.json.Decoder(_Kind).decode
_result = msgspec.json.Decoder(sdk.AgentRunResponse).decode
_run_of = msgspec.json.Decoder(_RunOf).decode
_tool_execute = msgspec.json.Decoder(ToolExecute).decode
_permission_request = msgspec.json.Decoder(sdk.PermissionRequest).decode
_permission_settled = msgspec.json.Decoder(PermissionSettled).decode
_stopped = msgspec.json.Decoder(AgentStopped).decode


class AgentView:
    """What one caller hears. For one reader at a time."""

    def __init__(self, connection: MakaiConnection, link: SessionLink, callbacks: Callbacks, session_id: str) -> None:
        self.session_id = session_id
        self._connection = connection
        self._link = link
        self._callbacks = callbacks
        self._events: deque[tuple[Heard, int]] = deque()
        self._held = 0
        self._terminal: Heard | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ClientFailure | None = None
        self._over = False

    async def next(self) -> Heard | None:
        """The next event, or None after the last one. Raises what is no event: a needed login, a lost connection."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._over:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        heard, size = self._events.popleft()
        self._held -= size
        return heard

    @property
    def waiting(self) -> bool:
        return bool(self._events)

    def leave(self) -> None:
        """Stop listening; the session continues. May be repeated."""
        self._finish(abort=False)

    def take(self, reply: Reply) -> None:
        if self._over:
            return
        try:
            self._take(reply)
        except (msgspec.DecodeError, ValueError) as error:
            self._give_up(broken_protocol(f"a malformed {reply.type}: {error}"))

    def released(self, reply: Reply) -> None:
        if not self._over:
            if reply.in_reply_to is None:
                self._failure = _gone(reply)
            self._finish(abort=False)

    def fail(self, failure: Failure) -> None:
        if not self._over:
            self._failure = error = failure()
            if error.kind == "transport_error":
                error.hint = f"The session {self.session_id} continues: client.agent.attach follows it."
            self._finish(abort=False)

    def _take(self, reply: Reply) -> None:
        link, spawn = self._link, self._connection.callbacks.start
        match reply.type:
            case "agent_event":
                self._take_event(_event_message(reply.payload))
            case "agent_result" | "agent_error":
                self._callbacks.run_is_over(_run_of(reply.payload).run_id or "")
                self._settle(reply)
            case "tool_execute":
                self._callbacks.execute(_tool_execute(reply.payload), link.post, spawn)
            case "permission_request":
                self._callbacks.ask(_permission_request(reply.payload), link.post, spawn)
            case "permission_settled":
                self._callbacks.is_decided(_permission_settled(reply.payload).tool_call_id)

    def _take_event(self, message: _Event) -> None:
        if _kind(message.event).type not in _KNOWN:
            return  # of a later version
        event: sdk.AgentStreamEvent = _event(message.event)
        if isinstance(event, sdk.ToolExecutionEndEvent):
            self._callbacks.call_is_over(event.tool_call_id)
        heard = Heard(event, message.event_id)
        if not self._is_for_us(event, message.run_id):
            return
        if isinstance(event, sdk.AgentEndEvent | sdk.ErrorEvent):
            self._terminal = heard
        else:
            self._put(heard, len(message.event))

    def _is_for_us(self, event: sdk.AgentStreamEvent, run_id: str) -> bool:
        return True

    def _settle(self, reply: Reply) -> None:
        """A run has ended: its terminal event can be told."""
        if reply.type == "agent_error":
            event_id = self._terminal.event_id if self._terminal is not None else None
            self._put(Heard(error_event(failure_in(reply)), event_id), 0)
        elif self._terminal is not None:
            self._put(self._terminal, 0)
        self._terminal = None

    def _put(self, heard: Heard, size: int) -> None:
        size += _EVENT_OVERHEAD
        self._events.append((heard, size))
        self._held += size
        if self._held > self._connection.unread_bytes:
            self._give_up(transport_failure("the events were not read while they arrived", code="overloaded"))
        else:
            self._wake()

    def _give_up(self, failure: MakaiStreamError) -> None:
        self._failure = failure
        self.leave()

    def _finish(self, *, abort: bool) -> None:
        """Nothing more is heard; what is here can still be read."""
        if not self._over:
            self._over = True
            self._callbacks.run_is_over()
            self._link.leave(self, abort=abort)
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        wake(waiter)


class RunView(AgentView):
    """The run that a message of the caller's started. It is over when the run is."""

    response: sdk.AgentRunResponse | None = None
    error: ClientFailure | None = None
    """Why the run did not succeed; its terminal event says the same."""
    run_id: str | None = None
    _message_id: str | None = None

    def said(self, message_id: str) -> None:
        """The session has taken the caller's words under this id. What comes next is their run."""
        self._message_id = message_id

    def abort(self) -> None:
        """The caller wants no more: stop the run. May be repeated."""
        self._finish(abort=True)

    def _is_for_us(self, event: sdk.AgentStreamEvent, run_id: str) -> bool:
        """Runs of other clients may still be heard of before our words are taken."""
        if self.run_id is None and self._message_id is not None and isinstance(event, sdk.AgentStartEvent):
            self.run_id = run_id
        return run_id == self.run_id

    def _settle(self, reply: Reply) -> None:
        if self._message_id is None or reply.in_reply_to != self._message_id:
            return
        if reply.type == "agent_error":
            self.error = failure_in(reply)
            if isinstance(self.error, MakaiAuthError):
                # A needed login is the caller's turn to act: raised, with the provider's id.
                self._failure = self.error
                self._finish(abort=False)
                return
        else:
            self.response = _response(_result(reply.payload), self.session_id)
        super()._settle(reply)
        self._finish(abort=False)


def _response(result: sdk.AgentRunResponse, session_id: str) -> sdk.AgentRunResponse:
    """The result with the id of its session, its message with who made it."""
    message = msgspec.structs.replace(
        result.message,
        provider=result.provider_id,
        api=result.api,
        model=result.model_id,
        stop_reason=result.stop_reason,
    )
    return msgspec.structs.replace(result, message=message, session_id=session_id)


def _gone(reply: Reply) -> MakaiStreamError:
    try:
        reason = _stopped(reply.payload).reason
    except (msgspec.DecodeError, ValueError):
        reason = None
    return MakaiStreamError(reason or "the session is gone", kind="unknown", code="session_closed")
