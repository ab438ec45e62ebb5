"""What surrounds the agent loop: whoever keeps its facts and asks people, and whoever answers as a model.

In: nothing. Out: the two contracts of the loop. A session is behind one of them, and the loop must not know it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.session_events import ApprovalDecided, FileDiff, SessionEvent, ToolCalled, UserInput
from makai.core.stream_events import StreamEvent
from makai.tools.base import CallDescription


class AgentHost(Protocol):
    """The surroundings of one run. What it raises ends the run and comes out of the loop unchanged."""

    async def emit(self, event: SessionEvent) -> None:
        """Keep a fact; returns when it is durable (log before publish).

        The order of calls is the order of facts, and the fact is taken before the first suspension: cancelling the
        wait does not take it back. For everything but `tool_started` and `user_message` the host may return before
        the fact is durable; it should for deltas.
        """

    def steering(self) -> Sequence[UserInput]:
        """What users said since the last time, to be read before the next turn. The loop emits what it takes."""

    def call_id(self, vendor_call_id: str) -> str:
        """An id for a call that its model named so, unique in the session and never given out before."""

    def position(self) -> int:
        """The number of the last fact that was kept; later facts get higher ones."""

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""


Decide: TypeAlias = Callable[[ToolCalled, CallDescription, tuple[FileDiff, ...]], Awaitable[ApprovalDecided]]
"""Asks rules, mode and people about a call, and logs question and decision. A cancelled wait withdraws its question."""


class Models(Protocol):
    """Who answers. `providers.runtime.ModelRuntime` is one."""

    def resolve(self, model: str | Model | None) -> Model:
        """The model of that name."""

    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask it, by the law of `providers.base.Provider`."""
