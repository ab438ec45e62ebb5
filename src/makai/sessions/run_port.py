"""Where a run that goes on meets the session it belongs to.

In: what the engine wants of the run (effects). Out: the same for the run's own task: words to read, decisions about its
calls, its cancellation. One per run; it must not know how the run is carried out.
"""

from __future__ import annotations

import asyncio

from makai.core.errors import MakaiError
from makai.core.session_events import ApprovalDecided, UserMessage
from makai.sessions.commands import ResolveApproval, Steer


class RunPort:
    """One run while it goes on."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.is_aborted = False
        """Someone stopped the run; a task that is cancelled without it lost its process, and is resumed elsewhere."""
        self.failure: MakaiError | None = None
        """A fact of the run could not be kept: nothing that comes after it is, but for the end of the run."""
        self._stopped = asyncio.Event()
        self._steered: list[UserMessage] = []
        self._questions: dict[str, asyncio.Future[ApprovalDecided]] = {}

    def abort(self) -> None:
        """The work is to stop."""
        self.is_aborted = True
        self._stopped.set()

    def fail(self, error: MakaiError) -> None:
        """The work is to stop, also when it waits for the answer to a question that was not kept."""
        if self.failure is None:
            self.failure = error
        self._stopped.set()

    async def until_stopped(self, work: asyncio.Task[None]) -> None:
        """Wait for the end of the work, or for a reason to end it."""
        stop = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    def steer(self, effect: Steer) -> None:
        """Words for the next turn."""
        self._steered.append(UserMessage(input_id=effect.input_id, content=effect.content))

    def take_steering(self) -> tuple[UserMessage, ...]:
        """What was said since the last time."""
        taken = tuple(self._steered)
        self._steered.clear()
        return taken

    def question(self, call_id: str) -> asyncio.Future[ApprovalDecided]:
        """The decision about a call, when it comes. Made before the question is asked, so none can be missed."""
        answer = self._questions.get(call_id)
        if answer is None:
            answer = self._questions[call_id] = asyncio.get_running_loop().create_future()
        return answer

    def forget(self, call_id: str) -> None:
        """Nobody waits for the decision any more."""
        self._questions.pop(call_id, None)

    def resolve(self, effect: ResolveApproval) -> None:
        """A decision was logged; a run that has just been resumed may not have asked for it yet."""
        answer = self.question(effect.call_id)
        if not answer.done():
            answer.set_result(
                ApprovalDecided(
                    call_id=effect.call_id,
                    decision=effect.decision,
                    scope=effect.scope,
                    grant=effect.grant,
                    reason=effect.reason,
                )
            )
