"""Decides when a key answers an approval and when it is just typing. Pure.

An approval may appear while the user types. So keys count only after it was visible for longer than a reaction takes,
and never for a user who was typing: then Tab moves to the approval and back. And a key counts only when no other one
follows at once: "also look at …" begins with an "a" and is no permission.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

READY_AFTER_S: Final = 0.4
ALONE_S: Final = 0.25
"""How long a key must stay alone to be an answer; typing is faster."""
TYPING_S: Final = 1.0
"""A user who typed this recently is still typing."""


class ApprovalFocus:
    def __init__(self) -> None:
        self.call_id: str | None = None
        self.focused = False
        self.reason_for: str | None = None
        """The call that the user is denying with a reason."""
        self._was_moved = False
        self._pressed: str | None = None
        self._is_answered = False
        self._since = 0.0
        self._typed_at = -TYPING_S

    def update(self, pending: Iterable[str], now: float, *, line_is_empty: bool) -> bool:
        """Take the pending approvals; True when another one is in front."""
        call_ids = list(pending)
        if self.reason_for not in call_ids:
            self.reason_for = None
        first = call_ids[0] if call_ids else None
        is_quiet = line_is_empty and now - self._typed_at >= TYPING_S
        if first == self.call_id:
            if is_quiet and not self.focused and not self._was_moved:
                self._since, self.focused = now, True
            return False
        self.call_id = first
        self._pressed, self._is_answered = None, False
        self._since, self.focused, self._was_moved = now, is_quiet, False
        return first is not None

    def typed(self, now: float) -> None:
        self._typed_at = now
        if self.call_id is not None and self.focused and not self.is_ready(now):
            self.focused = False

    def sent(self, now: float) -> None:
        """The line was sent: the approval is in front as if it had just appeared."""
        self._typed_at = now - TYPING_S
        self._since, self.focused, self._was_moved = now, True, False

    def pressed(self, key: str, answers: str, now: float) -> str:
        """Take a key while keys count. Returns text that was typing after all; otherwise `settled` follows."""
        if self._pressed is None and key in answers:
            self._pressed = key
            return ""
        if not key.isprintable() or len(key) != 1:
            return ""
        typed = (self._pressed or "") + key
        self._pressed = None
        self.focused = False
        self._typed_at = now
        return typed

    def settled(self) -> str | None:
        """The key that stayed alone, once."""
        key, self._pressed = self._pressed, None
        return key

    def answered(self) -> None:
        self._is_answered = True

    def toggle(self) -> None:
        self.focused = not self.focused
        self._was_moved = True

    def is_ready(self, now: float) -> bool:
        return now - self._since >= READY_AFTER_S

    def takes_keys(self, now: float) -> bool:
        is_open = self.call_id is not None and not self._is_answered and self.reason_for is None
        return is_open and self.focused and self.is_ready(now)
