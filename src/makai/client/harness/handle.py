"""One session of a harness: a session of makai, read as the events of the contract.

Two readers follow the log, each by a cursor of its own: the caller, who may be slow, and a supervisor that answers the
agent's questions at once and frees its process when the session has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final
from uuid import uuid4

import msgspec

from makai.aio.cancellation import RunOnce, consume_exception
from makai.client.harness.plan import SpawnPlan
from makai.core import session_events as ev
from makai.core.errors import (
    InvalidRequest,
    MakaiError,
    NotSupported,
    SessionNotFound,
    SessionRefused,
    SpawnFailed,
    Unsupported,
)
from makai.core.secret import Secret
from makai.harness.base import ToolAnswer, ToolRequest
from makai.harness.contract.events import Event, InitEvent
from makai.harness.contract.interfaces import STOP_GRACE_S
from makai.harness.editor_calls import MCP_VALUES, McpValues
from makai.protocols.harness_events import HarnessEvents
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.log.encoding import decoded
from makai.sessions.service import Follower, Sessions, ToolRegistration

CLIENT_NAME: Final = "harness"
"""How the log names the decider of questions."""
SETTLE_S: Final = 3.0
"""How long a session may take to settle after its process was told to end; then its events end without its word."""
RELEASE_S: Final = 10.0
"""How long the process of a session may take to end."""


class SessionHandle:
    """`contract.Handle`. Make one by `begin`."""

    def __init__(
        self,
        sessions: Sessions,
        session_id: str,
        plan: SpawnPlan,
        *,
        after: int,
        can_inject: bool,
        on_ended: Callable[[SessionHandle], Awaitable[None]],
    ) -> None:
        """`after` is the last event of the log that belongs to something earlier."""
        self.makai_session_id = session_id
        self._sessions = sessions
        self._plan = plan
        self._after = after
        self._can_inject = can_inject
        self._on_ended = on_ended
        self._own_id = ""
        self._environ = {name: Secret(value) for name, value in plan.environ.items()}
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._started.add_done_callback(consume_exception)
        self._over = asyncio.Event()
        """The session has settled, whether or not its events were read."""
        self._given_up = asyncio.Event()
        """The session did not settle in time: its events end without its word."""
        self._is_read = False
        self.is_read_to_end = False
        self._registration: ToolRegistration | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._stop_once = RunOnce(self._stop, "stop a session of a harness")

    @property
    def session_id(self) -> str:
        return self._own_id

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def begin(self) -> None:
        """Send the prompt and return when the agent has begun. Raises `SpawnFailed` or `SessionNotFound`, or is
        cancelled; then nothing of the session is left."""
        try:
            if self._plan.mcp_values:
                executing = self._sessions.register_executor(self.makai_session_id, self._mcp_values)
                self._registration = await executing
            supervising = self._supervise()
            self._supervisor = asyncio.create_task(supervising, name=f"makai-harness-{self.makai_session_id}")
            await self._send(self._plan.prompt, None, self._plan.run)
            await asyncio.shield(self._started)
        except BaseException as error:
            await self._stop_once(0.0)
            if isinstance(error, MakaiError) and not isinstance(error, SpawnFailed | SessionNotFound):
                raise SpawnFailed(error.message, hint=error.hint) from error
            raise

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._is_read:
            raise InvalidRequest("The events of a session can be read once.")
        self._is_read = True
        return self._read()

    async def inject(self, text: str) -> None:
        if not self._can_inject:
            raise Unsupported("This harness takes no further messages while it runs (message_injection).")
        if self.is_over:
            raise InvalidRequest("The session has ended.", hint="Resume it.")
        await self._send(text, "steer", ev.RunTerms())
        if self.is_over:
            await self._abort()
            raise InvalidRequest("The session ended before it could read the message.", hint="Resume it.")

    async def stop(self, *, grace_s: float = STOP_GRACE_S) -> None:
        await self._stop_once(grace_s)

    async def _send(self, text: str, delivery: ev.Delivery | None, terms: ev.RunTerms) -> None:
        command = cmd.Send(now=0, input_id=str(uuid4()), content=text, delivery=delivery, terms=terms)
        await self._sessions.dispatch(req.RunCommand(self.makai_session_id, command, self._environ))

    async def _read(self) -> AsyncGenerator[Event, None]:
        projection = self._projection()
        for notice in self._plan.notices:
            projection.say(notice)
        async with aclosing(self._facts(projection)) as facts:
            async for logged in facts:
                for event in projection.take(logged):
                    yield self._noted(event)
        for event in projection.close("The session was stopped and did not end in time.", "stop_timeout"):
            yield self._noted(event)
        self.is_read_to_end = True
        await self._over.wait()
        await self._on_ended(self)

    def _noted(self, event: Event) -> Event:
        if isinstance(event, InitEvent):
            self._own_id = event.session_id
        return event

    def _projection(self) -> HarnessEvents:
        return HarnessEvents(self.makai_session_id, named_by_agent=self._plan.create.harness != "native")

    async def _facts(self, projection: HarnessEvents) -> AsyncGenerator[ev.Logged, None]:
        """The facts of the log until the projection is over or the session was given up."""
        follower = self._sessions.follow(self.makai_session_id, self._after, deltas=False)
        giving_up = asyncio.create_task(self._given_up.wait())
        try:
            while not projection.is_over:
                for logged in await _next_facts(follower, giving_up):
                    yield logged
                if giving_up.done():
                    return
        except MakaiError:
            return  # the session was deleted, or its owner is gone
        finally:
            giving_up.cancel()
            follower.close()

    async def _supervise(self) -> None:
        """Answer questions until the session has settled, then free its agent."""
        projection, calls = self._projection(), dict[str, ev.ToolCalled]()
        async with aclosing(self._facts(projection)) as facts:
            async for logged in facts:
                projection.take(logged)
                self._note_start(logged.event)
                match logged.event:
                    case ev.ToolCalled(call_id=call_id) as call:
                        calls[call_id] = call
                    case ev.ToolFinished(call_id=call_id):
                        calls.pop(call_id, None)
                    case ev.ApprovalRequested() as asked:
                        await self._answer(asked, calls.get(asked.call_id))
        self._over.set()
        if not self._started.done():
            self._started.set_exception(SpawnFailed("The session ended before it began."))
        with suppress(MakaiError):
            await self._abort()  # a message that came too late may have begun another run
            await self._sessions.dispatch(req.ReleaseAgent(self.makai_session_id))

    def _note_start(self, event: ev.SessionEvent) -> None:
        if self._started.done():
            return
        match event:
            case ev.AgentSession() | ev.TurnStarted() | ev.AssistantText() | ev.RunFinished():
                self._started.set_result(None)
            case ev.RunFailed(code=SessionNotFound.code, message=message, hint=hint):
                self._started.set_exception(SessionNotFound(message, hint=hint))
            case ev.RunFailed(message=message, hint=hint):
                self._started.set_exception(SpawnFailed(message, hint=hint))

    async def _answer(self, asked: ev.ApprovalRequested, call: ev.ToolCalled | None) -> None:
        decided = await self._plan.policy.decide(asked, call)
        command: cmd.ApproveCall | cmd.DenyCall
        if decided.approve:
            command = cmd.ApproveCall(now=0, call_id=asked.call_id, by=CLIENT_NAME, digest=asked.digest)
        else:
            command = cmd.DenyCall(now=0, call_id=asked.call_id, by=CLIENT_NAME, reason=decided.reason)
        with suppress(SessionRefused):  # another client of the session was faster, or the call was withdrawn
            await self._sessions.dispatch(req.RunCommand(self.makai_session_id, command))

    async def _mcp_values(self, request: ToolRequest) -> ToolAnswer:
        if request.name != MCP_VALUES.name:
            raise NotSupported(f"This client does not offer {request.name[:100]}.")
        details = msgspec.json.encode(McpValues(servers=self._plan.mcp_values)).decode()
        return ToolAnswer(content=(), details_json=details)

    async def _abort(self) -> None:
        with suppress(SessionRefused):
            command = cmd.Abort(now=0, by=CLIENT_NAME, reason="The session was stopped.")
            await self._sessions.dispatch(req.RunCommand(self.makai_session_id, command))

    async def _settled_within(self, seconds: float) -> None:
        if self._supervisor is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._over.wait()

    async def _stop(self, grace_s: float) -> None:
        """Ask the agent to stop, kill it after `grace_s`, and have the events end in any case (DM-PROV-011)."""
        ending = {self._supervisor} if self._supervisor is not None else set()
        with suppress(MakaiError):
            if not self.is_over:
                await self._abort()
                await self._settled_within(grace_s)
        if not self.is_over:
            killing = self._sessions.dispatch(req.ReleaseAgent(self.makai_session_id))
            ending.add(asyncio.create_task(_ignoring_errors(killing), name="end a process of a harness"))
            await self._settled_within(SETTLE_S)
        if not self.is_over:
            self._given_up.set()
        if ending:
            await asyncio.wait(ending, timeout=RELEASE_S)
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)
        self._over.set()
        if self._registration is not None:
            self._registration.unregister()
        await self._on_ended(self)


async def _ignoring_errors(work: Awaitable[None]) -> None:
    with suppress(MakaiError):
        await work


async def _next_facts(follower: Follower, giving_up: asyncio.Task[bool]) -> list[ev.Logged]:
    """The next facts; none when the follower was closed or the session given up."""
    reading = asyncio.create_task(follower.next())
    try:
        await asyncio.wait({reading, giving_up}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            return []
        records = reading.result()
        if not records:
            raise InvalidRequest("The session is closed.")
        return [logged for logged in decoded(records) if isinstance(logged, ev.Logged)]
    finally:
        reading.cancel()
