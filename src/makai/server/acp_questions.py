"""Approvals of a session as `session/request_permission` of one client.

Any client of a session may answer a question, and the first answer counts. A question that was decided elsewhere is
withdrawn from this client by `$/cancel_request`, and an answer that it gives all the same has no effect. How long a
question waits is the session's to say: there is no deadline here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from makai.core import session_events as ev
from makai.core.errors import ChannelClosed, MakaiError, TransportError
from makai.protocols.acp.permissions import decision_for, permission_request
from makai.sessions.requests import RunCommand
from makai.sessions.service import Sessions
from makai.wire.acp.client_calls import RequestPermissionResponse
from makai.wire.json_rpc_errors import RpcError, decoded_result

if TYPE_CHECKING:
    from makai.server.acp_connection import AcpConnection

log = logging.getLogger(__name__)

_ASK: Final = "session/request_permission"
_ANSWER: Final = msgspec.json.Decoder(RequestPermissionResponse)


class SessionQuestions:
    def __init__(self, session_id: str, connection: AcpConnection, sessions: Sessions) -> None:
        self._session_id = session_id
        self._connection = connection
        self._sessions = sessions
        self._open: dict[str, asyncio.Task[None]] = {}
        """Questions without an answer, by the id of their call."""

    def ask(self, requested: ev.ApprovalRequested, call: ev.ToolCalled | None, run_id: str) -> None:
        """Ask the client, unless its token does not allow it to answer."""
        if self._connection.caller.may("approve"):
            work = self._ask(requested, call, run_id)
            self._open[requested.call_id] = self._connection.tasks.start(work, f"acp-ask-{requested.call_id}")

    def withdraw(self, call_id: str) -> None:
        """Cancel the request about a call, if it has no answer yet."""
        if (question := self._open.pop(call_id, None)) is not None:
            question.cancel()

    def close(self) -> None:
        for question in self._open.values():
            question.cancel()

    async def _ask(self, requested: ev.ApprovalRequested, call: ev.ToolCalled | None, run_id: str) -> None:
        answer: RequestPermissionResponse | None = None
        try:
            question = permission_request(self._session_id, requested, call)
            raw = await self._connection.calls.request(_ASK, question)
            answer = decoded_result(_ANSWER, raw, _ASK)
        except ChannelClosed:
            return  # another client may answer
        except (RpcError, TransportError) as error:
            log.warning("a question has no usable answer, which counts as a rejection: %s", error)
        self._open.pop(requested.call_id, None)  # from here on the decision is not cancelled by its own event
        decision = decision_for(answer, requested, by=self._connection.decider, run_id=run_id)
        try:
            await self._sessions.dispatch(RunCommand(self._session_id, decision))
        except MakaiError as error:
            log.info("an answer to a question had no effect: %s", error)
