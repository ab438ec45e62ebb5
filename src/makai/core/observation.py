"""What a process reports to the tools of its operator: metrics and traces.

The layers below the server report here and know nothing of those tools: the composition root passes an `Observer` in,
and the default ignores everything. Methods are called in the event loop, on the path of commits and answers. They must
be cheap and must not wait; `Observers` keeps their failures from the callers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from makai.core.session_events import Logged
from makai.core.usage import Usage

log = logging.getLogger(__name__)


class SessionLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions that this process owns are doing now."""

    live: int = 0
    """In memory, including idle ones."""
    active_runs: int = 0
    approvals_waiting: int = 0
    queued_inputs: int = 0
    pending_facts: int = 0
    """Reported by runs and not yet committed."""
    followers: int = 0


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of this process to a store that several nodes share."""

    is_reachable: bool
    holds_lease: bool
    takeovers: int = 0
    """Sessions of ended nodes that this node took over since it started."""


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """A model request of a client that has no session, once it is over."""

    provider: str
    model: str
    began_ms: int
    ended_ms: int
    usage: Usage = Usage()
    stop_reason: str = ""
    error_code: str = ""
    trace_parent: str = ""


class Observer:
    """Ignores everything. An implementation overrides what it needs."""

    def committed(self, session_id: str, events: Sequence[Logged], seconds: float) -> None:
        """Events of a session are durable, once per commit. `seconds` is how long the append took. What a fork copies
        from its origin is not reported: it happened there."""

    def commit_failed(self, session_id: str, code: str) -> None:
        """An append was refused or could not be made durable; `code` is that of the error."""

    def session_loaded(self, session_id: str, events: int) -> None:
        """A session was read from the log into memory; `events` is how many follow its checkpoint."""

    def sessions_opened(self, load: Callable[[], SessionLoad]) -> None:
        """This process owns sessions now; `load` reads their figures whenever they are wanted."""

    def model_asked(self, provider: str) -> None:
        """A request goes to a provider. `model_ended` follows, exactly once."""

    def model_retried(self, provider: str) -> None:
        """The request failed before an answer began, and is sent again after a wait."""

    def model_ended(self, provider: str, outcome: str, seconds: float) -> None:
        """`outcome` is "ok", "aborted" or the code of the error."""

    def streamed(self, report: StreamReport) -> None:
        """A client without a session got the answer of a model, or the reason why there is none."""

    def store_joined(self, health: Callable[[], StoreHealth | None]) -> None:
        """This process is a node of a cluster now; `health` reads its figures without waiting."""

    def lease_lost(self) -> None:
        """This node could not renew its lease in time."""


NO_OBSERVER: Final = Observer()


class Observers(Observer):
    """Passes every report on to several observers. One that fails is logged and left out of that report."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def committed(self, session_id: str, events: Sequence[Logged], seconds: float) -> None:
        self._tell(lambda observer: observer.committed(session_id, events, seconds))

    def commit_failed(self, session_id: str, code: str) -> None:
        self._tell(lambda observer: observer.commit_failed(session_id, code))

    def session_loaded(self, session_id: str, events: int) -> None:
        self._tell(lambda observer: observer.session_loaded(session_id, events))

    def sessions_opened(self, load: Callable[[], SessionLoad]) -> None:
        self._tell(lambda observer: observer.sessions_opened(load))

    def model_asked(self, provider: str) -> None:
        self._tell(lambda observer: observer.model_asked(provider))

    def model_retried(self, provider: str) -> None:
        self._tell(lambda observer: observer.model_retried(provider))

    def model_ended(self, provider: str, outcome: str, seconds: float) -> None:
        self._tell(lambda observer: observer.model_ended(provider, outcome, seconds))

    def streamed(self, report: StreamReport) -> None:
        self._tell(lambda observer: observer.streamed(report))

    def store_joined(self, health: Callable[[], StoreHealth | None]) -> None:
        self._tell(lambda observer: observer.store_joined(health))

    def lease_lost(self) -> None:
        self._tell(lambda observer: observer.lease_lost())

    def _tell(self, report: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                report(observer)
            except Exception:
                log.exception("an observer failed")
