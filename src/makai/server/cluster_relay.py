"""Requests to a node that lives and cannot be reached: they take the way through the store. The owner looks for them
once a second, takes each once, and leaves the answer there. Frames are encrypted with a key that is derived from the
cluster key, because a request may carry variables of its caller."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from makai.aio.tasks import BackgroundTasks
from makai.auth.cluster_key import derived_key
from makai.core.errors import ChannelClosed, InvalidRequest, MakaiError, ParseError, TransportError
from makai.core.secret import Secret
from makai.protocols.attach import frames
from makai.protocols.attach import messages as wire
from makai.sessions.log.nodes import ClusterLog, ClusterPart
from makai.sessions.requests import AnswerT, Request
from makai.sessions.service import Sessions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger(__name__)

MAX_BYTES: Final = 4 * 1024 * 1024
"""Of a request or an answer."""
MAX_TAKEN: Final = 32
"""Requests that are taken in one round."""
VALID_S: Final = 30.0
"""A request that was not taken for so long is never taken."""
_POLL_S: Final = 0.25
_NONCE_BYTES: Final = 12
_END_S: Final = 5.0


class RequestRelay:
    """This node's end of the way through the store."""

    def __init__(self, store: ClusterLog, key: Secret | None) -> None:
        """Without a key nothing is sent or answered."""
        self._store = store
        self._key = None if key is None else Secret(derived_key(key, "relayed requests").hex())
        self._tasks = BackgroundTasks()

    def to(self, node_id: str) -> RelayedSessions:
        return RelayedSessions(self, node_id)

    async def answer_waiting(self, part: ClusterPart, sessions: Sessions) -> None:
        """Begin to answer the requests to this node that wait in a part of the store."""
        if self._key is not None:
            for request_id, data in await part.take_relayed(MAX_TAKEN):
                answering = self._answer(part, sessions, request_id, data)
                self._tasks.start(answering, "makai-relayed-request", may_finish=True)

    async def close(self) -> None:
        await self._tasks.close(_END_S)

    async def _answer(self, part: ClusterPart, sessions: Sessions, request_id: str, data: bytes) -> None:
        try:
            message = frames.from_attached(self.opened(request_id, data))
            if not isinstance(message, wire.RequestMessage):
                raise ParseError("not a request")
            request = frames.request_of(message)
            frame = frames.encoded_answer(1, request, await sessions.dispatch(request))
            if len(frame) > MAX_BYTES:
                raise InvalidRequest(f"An answer of {len(frame)} bytes cannot be sent through the store.")
        except MakaiError as error:
            frame = frames.encoded(wire.Failure(number=1, problem=wire.problem_of(error)))
        await part.answer_relayed(request_id, self.sealed(f"answer {request_id}", frame))

    async def exchange(self, node_id: str, frame: bytes) -> bytes:
        """The answer to a request. `ChannelClosed` when it was not carried out, `TransportError` when it may have
        been."""
        if self._key is None:
            raise ChannelClosed("The node that has the session cannot be reached: this process has no cluster key.")
        if len(frame) > MAX_BYTES:
            raise InvalidRequest(
                f"A request of {len(frame)} bytes cannot be sent through the store, and the node that has the session "
                "cannot be reached.",
                hint="Make sure that the nodes can connect to each other.",
            )
        request_id, part = str(uuid4()), self._store.part_of(node_id)
        await part.put_relayed(request_id, node_id, self.sealed(request_id, frame), VALID_S)
        ends_at = asyncio.get_running_loop().time() + VALID_S
        try:
            while asyncio.get_running_loop().time() < ends_at:
                await asyncio.sleep(_POLL_S)
                if (answer := await part.relayed_answer(request_id)) is not None:
                    return self.opened(f"answer {request_id}", answer)
                if await part.find_node(node_id) is None:
                    break  # it died, and the session gets another owner
        finally:
            withdrawn = await part.withdraw_relayed(request_id)
        if withdrawn:
            raise ChannelClosed("The node that has the session did not take the request.")
        raise TransportError("The node that has the session did not answer.")

    def sealed(self, about: str, frame: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher().encrypt(nonce, frame, about.encode())

    def opened(self, about: str, data: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher().decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], about.encode())
        except InvalidTag:
            raise InvalidRequest(
                "The node that has the session has another cluster key.", hint="Give all nodes the same cluster key."
            ) from None

    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        assert self._key is not None
        return AESGCM(bytes.fromhex(self._key.reveal()))


class RelayedSessions:
    """The sessions of a node that cannot be reached. Only requests go through; followers read the store."""

    def __init__(self, relay: RequestRelay, node_id: str) -> None:
        self._relay = relay
        self._node_id = node_id

    async def dispatch(self, request: Request[AnswerT]) -> AnswerT:
        said = frames.from_owner(await self._relay.exchange(self._node_id, frames.encoded_request(1, request)))
        match said:
            case wire.AttachAnswer() | wire.Records():
                return frames.answer_of(request, said)
            case wire.Failure(problem=problem):
                raise wire.exception_of(problem)
            case _:
                raise ParseError("a node answered a relayed request with something else")
