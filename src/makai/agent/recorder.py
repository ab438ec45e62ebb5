"""Keeps account of what a run has opened and not yet closed.

In: the facts of a run, on their way to the host. Out: the same facts, and, when a run ends in the middle of something,
those that close it. So no turn stays open and no call without a result, however a run ends.
"""

from __future__ import annotations

from makai.agent.host import AgentHost
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.messages import StopReason
from makai.core.usage import Usage


class Recorder:
    """Emits facts. A fact counts from the moment it is handed to the host, as `AgentHost.emit` promises."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self._open_turn: int | None = None
        self._open_calls: dict[str, bool] = {}
        """Call id -> whether the tool has started."""

    async def emit(self, event: ev.SessionEvent) -> None:
        """Hand one fact to the host."""
        if type(event) in _TRACKED:
            self._note(event)
        await self._host.emit(event)

    def reopen(self, call: ev.ToolCalled) -> None:
        """A call that an earlier part of the run logged."""
        self._open_calls[call.call_id] = False

    async def close(self, turn_reason: StopReason, why: str, usage: Usage | None = None) -> None:
        """End the open turn, then every open call; `why` completes "Not run: " and "Interrupted: "."""
        if self._open_turn is not None:
            await self.emit(ev.TurnEnded(turn=self._open_turn, stop_reason=turn_reason, usage=usage or Usage()))
        for call_id, started in tuple(self._open_calls.items()):
            said = f"Interrupted: {why}; what the tool did so far is unknown." if started else f"Not run: {why}."
            await self.emit(
                ev.ToolFinished(call_id=call_id, content=(Text(text=said),), is_error=True, interrupted=started)
            )

    def _note(self, event: ev.SessionEvent) -> None:
        match event:
            case ev.TurnStarted(turn=turn):
                self._open_turn = turn
            case ev.TurnEnded():
                self._open_turn = None
            case ev.ToolCalled(call_id=call_id):
                self._open_calls[call_id] = False
            case ev.ToolStarted(call_id=call_id):
                self._open_calls[call_id] = True
            case ev.ToolFinished(call_id=call_id):
                self._open_calls.pop(call_id, None)
            case _:
                raise AssertionError(f"{type(event).__name__} is not tracked")


_TRACKED = frozenset({ev.TurnStarted, ev.TurnEnded, ev.ToolCalled, ev.ToolStarted, ev.ToolFinished})
