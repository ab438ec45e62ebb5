"""What `makai run` prints: words for people, one JSON object, or a line of JSON per event.

In: how the run began, its events, its end. Out: stdout, and stderr for what is not the answer. It asks nothing of the
session.

`--output-format stream-json` is, line by line (docs/run-output.md):

    init                    who answers where: session_id, run_id, model, cwd, permission_mode, tools, schema_version
    any event of `SHOWN`    as the session's log has it, without signatures, with its event_id and ts
    result | error          the end: session_id, text, usage, cost_usd, stop_reason, duration_ms, is_error

`json` is that last object alone, with the model's whole last message.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from makai.cli.console import explain, harmless, hint_of, note, say, say_json
from makai.core.content import Text
from makai.core.errors import Aborted, MakaiError
from makai.core.messages import AssistantMessage, StopReason
from makai.core.session_events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantText,
    AssistantTextDelta,
    Compacted,
    Logged,
    Notice,
    PermissionMode,
    PlanUpdated,
    Reasoning,
    ReasoningDelta,
    RunAborted,
    RunResumed,
    ToolCalled,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
    UserInput,
)
from makai.core.usage import Usage
from makai.sessions.markdown_text import one_line

SCHEMA_VERSION: Final = 1
SHOWN: Final = (
    UserInput
    | TurnStarted
    | TurnEnded
    | AssistantTextDelta
    | ReasoningDelta
    | AssistantText
    | Reasoning
    | ToolCalled
    | ApprovalRequested
    | ApprovalDecided
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | PlanUpdated
    | UsageReported
    | Notice
    | Compacted
    | RunAborted
    | RunResumed
)
_PRIVATE: Final = ("signature", "vendor_call_id", "client_msg_id")
"""Proofs that vendors make for themselves: long, opaque, and of no use to a script."""


class RunInit(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="init"):
    """The first line."""

    session_id: str
    run_id: str
    model: str
    cwd: str | None
    permission_mode: PermissionMode
    tools: bool
    """Whether the built-in ones are on."""
    schema_version: int = SCHEMA_VERSION


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ended."""

    session_id: str
    stop_reason: StopReason
    duration_ms: int
    usage: Usage = Usage()
    message: AssistantMessage | None = None
    """The model's last one, if it said anything."""

    @property
    def text(self) -> str:
        return "" if self.message is None else self.message.text()


class TextOutput:
    """Text for people: words as they come, everything else on stderr and only where a person reads it.

    `hold` keeps the words back until the whole answer was checked.
    """

    def __init__(self, *, hold: bool = False) -> None:
        self._hold = hold
        self._at_line_start = True
        self._block: int | None = None
        """The text block whose words are being printed."""

    def status(self, text: str) -> None:
        """What the model's provider is busy with before it answers."""
        if sys.stderr.isatty():
            note(text, dim=True)

    def began(self, began: RunInit) -> None:
        """The run is on its way."""

    def event(self, logged: Logged) -> None:
        """Something happened in the run."""
        match logged.event:
            case TurnStarted():
                self._finish_line()
                self._block = None
            case AssistantTextDelta(content_index=index, delta=delta) if not self._hold:
                self._block = index
                self._print(delta)
            case AssistantText(content_index=index, text=text) if not self._hold and index != self._block:
                self._print(text)  # it came at once, without deltas
            case _ if sys.stderr.isatty():
                self._aside(logged)
            case _:
                pass

    def denied(self, request: ApprovalRequested, reason: str) -> None:
        """Nobody could be asked about a call."""
        self._finish_line()
        note(harmless(f"makai: denied: {one_line(request.title or request.name)}. {reason}", sys.stderr), dim=True)

    def ended(self, outcome: RunOutcome) -> None:
        """The run is done."""
        if self._hold:
            self._print(outcome.text)
        self._finish_line()
        if outcome.stop_reason == "max_tokens":
            note("makai: the answer was cut at the length limit; see --max-tokens", dim=True)
        elif outcome.stop_reason == "refusal":
            provider = outcome.message.provider if outcome.message else "the provider"
            note(f"makai: {provider} stopped the answer: the model refused to go on", dim=True)

    def failed(self, error: MakaiError, outcome: RunOutcome | None = None) -> None:
        """The run failed, or there was none."""
        self._finish_line()
        explain(error)

    def interrupted(self, outcome: RunOutcome) -> None:
        """Somebody pressed Ctrl-C, and knows it."""

    def _aside(self, logged: Logged) -> None:
        """What a person may want to see beside the answer."""
        match logged.event:
            case ReasoningDelta(delta=delta):
                note(harmless(delta, sys.stderr), end="", dim=True)
            case Reasoning():
                note("\n")
            case ToolCalled(name=name, title=title):
                self._finish_line()
                note(f"• {one_line(title or name)}", dim=True)
            case ToolFinished(is_error=True, content=content):
                text = next((part.text for part in content if isinstance(part, Text)), "it failed")
                note(f"  {one_line(text, 120)}", dim=True)
            case Notice(message=message):
                self._finish_line()
                note(one_line(message), dim=True)
            case _:
                pass

    def _print(self, text: str) -> None:
        if text:
            say(harmless(text, sys.stdout), end="")
            self._at_line_start = text.endswith("\n")

    def _finish_line(self) -> None:
        if not self._at_line_start:
            say()
        self._at_line_start = True


class JsonOutput(TextOutput):
    """One JSON object at the end, for scripts; failures too."""

    def event(self, logged: Logged) -> None:
        """Nothing is told before the end."""

    def denied(self, request: ApprovalRequested, reason: str) -> None:
        """The model was told, and so is whoever reads the stream."""

    def ended(self, outcome: RunOutcome) -> None:
        say_json({"type": "result", **_told(outcome, is_error=False), "message": outcome.message})

    def failed(self, error: MakaiError, outcome: RunOutcome | None = None) -> None:
        say_json(_error_object(error) | ({} if outcome is None else _told(outcome, is_error=True)))

    def interrupted(self, outcome: RunOutcome) -> None:
        self.failed(Aborted("the run was interrupted."), outcome)


class StreamJsonOutput(JsonOutput):
    """One line of JSON per event. The last one is `result` or `error`, also when there was no run at all."""

    def began(self, began: RunInit) -> None:
        say_json(began)

    def event(self, logged: Logged) -> None:
        if (line := projected(logged)) is not None:
            say_json(line)

    def ended(self, outcome: RunOutcome) -> None:
        say_json({"type": "result", **_told(outcome, is_error=False)})


def projected(logged: Logged) -> dict[str, Any] | None:
    """An event as scripts get it; None for those that concern only the session itself."""
    if not isinstance(logged.event, SHOWN):
        return None
    event: dict[str, Any] = msgspec.to_builtins(logged.event)
    told = {name: value for name, value in event.items() if name not in _PRIVATE}
    return {**told, "event_id": logged.event_id, "ts": logged.ts}


def _told(outcome: RunOutcome, *, is_error: bool) -> dict[str, Any]:
    return {
        "session_id": outcome.session_id,
        "text": outcome.text,
        "usage": outcome.usage,
        "cost_usd": outcome.usage.cost_usd,
        "stop_reason": outcome.stop_reason,
        "duration_ms": outcome.duration_ms,
        "is_error": is_error,
    }


def _error_object(error: MakaiError) -> dict[str, Any]:
    """The members an `error` event has, as far as they are known."""
    fields = {
        "type": "error",
        "reason": "error",
        "error_code": error.code,
        "error_message": error.message,
        "provider_id": getattr(error, "provider_id", None),
        "retry_after_ms": getattr(error, "retry_after_ms", None),
        "hint": hint_of(error) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


OUTPUTS: Final[dict[str, type[TextOutput]]] = {
    "text": TextOutput,
    "json": JsonOutput,
    "stream-json": StreamJsonOutput,
}
