"""Further input that a client of the Agent Client Protocol gives to the active run (`_session/steering`).

A run may end before it has read such input, which then starts a run of its own. No prompt waits for that run, so the
client's `session/cancel` has to find it here; input that waits when the client cancels is taken back.
"""

from __future__ import annotations

from contextlib import suppress

from makai.core import session_events as ev
from makai.core.content import SessionPart
from makai.core.errors import SessionRefused
from makai.sessions import commands as cmd
from makai.sessions.requests import GetState, RunCommand
from makai.sessions.service import Sessions
from makai.wire.acp.sessions import SteeringResponse


class SteeringInput:
    """The further input of one client to one session."""

    def __init__(self, session_id: str, sessions: Sessions) -> None:
        self._session_id = session_id
        self._sessions = sessions
        self._sent: set[str] = set()
        """Ids of input that may wait."""
        self.run_id: str | None = None
        """The active run, if it has read such input."""

    async def send(self, input_id: str, content: str | tuple[SessionPart, ...]) -> SteeringResponse:
        state = await self._sessions.dispatch(GetState(self._session_id))
        if state.active_run is not None and not state.capabilities.steer:
            return SteeringResponse(outcome="failed")
        self._sent.add(input_id)
        send = cmd.Send(now=0, input_id=input_id, content=content, client_msg_id=input_id, delivery="steer")
        receipt = await self._sessions.dispatch(RunCommand(self._session_id, send))
        if state.active_run is not None:
            return SteeringResponse(outcome="injected")
        self.run_id = receipt.run_id
        return SteeringResponse(outcome="startedNewTurn")

    def note(self, logged: ev.Logged) -> None:
        """Take in an event of the session."""
        match logged.event:
            case ev.UserInput(input_id=input_id) if input_id in self._sent:
                self._sent.discard(input_id)
                self.run_id = logged.run_id
            case ev.RunFinished() | ev.RunFailed() if logged.run_id == self.run_id:
                self.run_id = None
            case _:
                pass

    async def abort(self, run_id: str | None, by: str) -> None:
        """Stop a run, and take back what it has not read. A run that has just ended is no error: the log says so."""
        for input_id in sorted(self._sent):
            with suppress(SessionRefused):  # it was read
                await self._dispatch(cmd.WithdrawInput(now=0, input_id=input_id))
        try:
            await self._dispatch(cmd.Abort(now=0, run_id=run_id, by=by))
        except SessionRefused as error:
            if error.code not in ("NOT_RUNNING", "STALE_RUN_ID"):
                raise

    async def _dispatch(self, command: cmd.UserCommand) -> None:
        await self._sessions.dispatch(RunCommand(self._session_id, command))
