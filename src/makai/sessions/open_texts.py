"""The text and thinking blocks that the agent of the active run has begun and not completed.

The engine's state has no deltas, so the session keeps their words here, from the commits of the active run. When the
run is aborted, the engine logs them as whole blocks before the abort (MC-RUN-009 allows none after it), in the same
commit: every reader, with or without deltas, then has the same words. The same happens when an answer fails and the
model is not asked again. Thinking that broke off has no signature and is not sent to a model again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from makai.core import session_events as ev
from makai.core.sanitize import MAX_TEXT_LENGTH

MAX_LENGTH: Final = MAX_TEXT_LENGTH
"""Characters in all open blocks together. Of an answer with more than this the log has only the deltas."""
MAX_BLOCKS: Final = 100
_Block: TypeAlias = tuple[type[ev.AssistantText | ev.Reasoning], int]


class OpenTexts:
    def __init__(self) -> None:
        self._blocks: dict[_Block, list[str]] = {}
        self._length = 0
        self._is_too_long = False

    def take(self, events: Iterable[ev.Logged]) -> None:
        for logged in events:
            event = logged.event
            if type(event) not in _OF_TEXTS or (isinstance(event, ev.NestedFact) and event.parent_call_id):
                continue
            if isinstance(event, ev.Delta):
                self._add(event)
            elif isinstance(event, ev.AssistantText | ev.Reasoning):
                block = type(event), event.content_index
                self._length -= sum(map(len, self._blocks.pop(block, ())))
            else:
                self._blocks.clear()
                self._length, self._is_too_long = 0, False

    def _add(self, event: ev.Delta) -> None:
        if event.delta and not self._is_too_long:
            kind = ev.AssistantText if isinstance(event, ev.AssistantTextDelta) else ev.Reasoning
            self._blocks.setdefault((kind, event.content_index), []).append(event.delta)
            self._length += len(event.delta)
            if self._length > MAX_LENGTH or len(self._blocks) > MAX_BLOCKS:
                self._is_too_long = True
                self._blocks.clear()

    def broken_off(self, later: Iterable[ev.Logged] = ()) -> tuple[ev.AssistantText | ev.Reasoning, ...]:
        """What is open after `later`, which is not committed yet, as whole blocks in the order in which they began."""
        texts = OpenTexts()
        texts._blocks = {block: list(words) for block, words in self._blocks.items()}
        texts._length, texts._is_too_long = self._length, self._is_too_long
        texts.take(later)
        return tuple(
            kind(content_index=index, text="".join(words), broken_off=True)
            for (kind, index), words in texts._blocks.items()
        )


_SPOKEN: Final = frozenset({ev.AssistantTextDelta, ev.AssistantText, ev.ReasoningDelta, ev.Reasoning})
_OF_TEXTS: Final = _SPOKEN | {ev.RunStarted, ev.TurnStarted, ev.TurnEnded, ev.RunFinished, ev.RunFailed}
