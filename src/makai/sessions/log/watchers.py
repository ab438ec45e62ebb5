"""Callbacks of readers that wait for a session to change."""

from __future__ import annotations

from collections.abc import Callable


class Watchers:
    """For one event loop."""

    def __init__(self) -> None:
        self._by_session: dict[str, dict[object, Callable[[], None]]] = {}
        self._of_all: dict[object, Callable[[str], None]] = {}

    def add(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Register a callback; the result removes it, once or more often."""
        key = object()
        self._by_session.setdefault(session_id, {})[key] = wake

        def remove() -> None:
            others = self._by_session.get(session_id, {})
            if others.pop(key, None) is not None and not others:
                del self._by_session[session_id]

        return remove

    def add_to_all(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """The same for every session; the callback gets its id."""
        key = object()
        self._of_all[key] = changed

        def remove() -> None:
            self._of_all.pop(key, None)

        return remove

    def wake(self, session_id: str) -> None:
        for changed in tuple(self._of_all.values()):
            changed(session_id)
        for wake in tuple(self._by_session.get(session_id, {}).values()):
            wake()

    def wake_all(self) -> None:
        for session_id in tuple(self._by_session):
            self.wake(session_id)
