"""What a run says about itself in its text: the WORK_RESULT marker, the URL of a pull request, a summary.

A harness sends whole messages, but some cut them into pieces, so a marker may begin in one event and end in another
(DM-RES-002). Scanners keep a short tail instead of the whole text.
"""

from __future__ import annotations

import re
from typing import Final, cast

from makai.harness.contract.events import AssistantTextEvent, Event, ResultEvent, ToolResultEvent
from makai.harness.contract.result import WorkResult

MAX_SUMMARY_CHARS: Final = 500
_CUT: Final = "\0"
"""Stands where one event ends and the next begins; a marker may have it anywhere."""


def _cuttable(word: str) -> str:
    return f"{_CUT}?".join(word)


_VERDICTS: Final = "|".join(map(_cuttable, ("passed", "failed", "unknown")))
_MARKER: Final = re.compile(
    # Not a list of what could be written, such as "WORK_RESULT: passed|failed".
    rf"(?<!\w){_cuttable('WORK_RESULT')}[\s{_CUT}:=*_`\"']{{1,16}}({_VERDICTS})(?!{_CUT}?[|/])(?!\w)",
    re.IGNORECASE,
)
_PULL_REQUEST: Final = re.compile(
    r"https://[\w.-]+(?::\d+)?/[\w./-]{1,200}?/(?:pull|pull-requests|-/merge_requests)/\d+\b"
)
_TAIL_CHARS: Final = 64


class MarkerScanner:
    """Reads the events of one run. The last marker counts, and the first pull request."""

    def __init__(self) -> None:
        self.pull_request_url = ""
        self._tail = ""
        self._verdict: WorkResult | None = None
        self._message = ""
        self._last_text = ""

    def feed(self, event: Event) -> None:
        match event:
            case AssistantTextEvent(text=text):
                self._last_text = text.strip() or self._last_text
                self._tail, verdict = _scanned(self._tail, text)
                self._verdict = verdict or self._verdict
                self._find_pull_request(text)
            case ToolResultEvent(content=text):
                self._find_pull_request(text)
            case ResultEvent(message=text):
                self._message = text
                self._find_pull_request(text)
            case _:
                pass

    @property
    def work_result(self) -> WorkResult | None:
        """The verdict of the text. A harness that sends no text may have it in the message of its result."""
        return self._verdict or _scanned("", self._message)[1]

    @property
    def summary(self) -> str:
        """The last thing the agent said, cut to `MAX_SUMMARY_CHARS`."""
        text = " ".join((self._message or self._last_text).split())
        return text if len(text) <= MAX_SUMMARY_CHARS else text[: MAX_SUMMARY_CHARS - 1] + "…"

    def _find_pull_request(self, text: str) -> None:
        if not self.pull_request_url and (found := _PULL_REQUEST.search(text)):
            self.pull_request_url = found[0]


def _scanned(tail: str, text: str) -> tuple[str, WorkResult | None]:
    """The tail to keep, and the last verdict that ends in `text`."""
    whole = tail + _CUT + text.replace(_CUT, " ") if tail else text.replace(_CUT, " ")
    found = [match[1] for match in _MARKER.finditer(whole)]
    verdict = cast(WorkResult, found[-1].replace(_CUT, "").lower()) if found else None
    return whole[-_TAIL_CHARS:], verdict
