"""The output of `makai run`: text, one JSON object, or one line of JSON per event.

The answer goes to stdout, everything else to stderr. `--output-format stream-json` is, line by line
(docs/run-output.md):

    init                    session_id, run_id, model, cwd, permission_mode, sandbox, tools, schema_version
    any event of `SHOWN`    as in the session's log, without signatures, with its event_id and ts
    result | error          the end: session_id, text, usage, cost_usd, stop_reason, duration_ms, is_error

`json` is that last object alone, with the model's whole last message.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from makai.cli.console import NO_SANDBOX, explain, harmless, hint_of, note, say, say_json
from makai.cli.wait_line import WaitLine
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import Aborted, MakaiError
from makai.core.messages import AssistantMessage, StopReason
from makai.core.usage import Usage
from makai.core.visible_text import one_line

SCHEMA_VERSION: Final = 1
SHOWN: Final = (
    *(ev.UserInput, ev.TurnStarted, ev.TurnEnded, ev.AssistantTextDelta, ev.ReasoningDelta, ev.AssistantText),
    *(ev.Reasoning, ev.ToolCalled, ev.ApprovalRequested, ev.ApprovalDecided, ev.ToolStarted, ev.ToolProgress),
    *(ev.ToolFinished, ev.PlanUpdated, ev.UsageReported, ev.Notice, ev.Compacted, ev.RunAborted, ev.RunResumed),
)
_PRIVATE: Final = ("signature", "vendor_call_id", "client_msg_id")
"""Opaque data of vendors that is of no use to a script."""


_ABOUT_TOOLS: Final = ("mcp_server_waiting", "mcp_server_starting", "mcp_server_joined")
"""Which tools the model had: a script that gets an answer without them needs to see why."""


class RunInit(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="init"):
    session_id: str
    run_id: str
    model: str
    cwd: str | None
    permission_mode: ev.PermissionMode
    sandbox: ev.SandboxLevel
    tools: bool
    """Whether the built-in tools are available."""
    schema_version: int = SCHEMA_VERSION


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    stop_reason: StopReason
    duration_ms: int
    usage: Usage = Usage()
    message: AssistantMessage | None = None
    """The last message of the model, if there is one."""

    @property
    def text(self) -> str:
        return "" if self.message is None else self.message.text()


class TextOutput:
    """Text as it arrives; progress goes to stderr if that is a terminal and the user does not want it quiet. `hold`
    keeps the text back until the whole answer was checked."""

    def __init__(self, *, hold: bool = False, is_quiet: bool = False) -> None:
        self._hold = hold
        self._shows_progress = sys.stderr.isatty() and not is_quiet
        self._at_line_start = True
        self._block: int | None = None
        """The text block that is being printed."""
        self._wait_line = WaitLine()

    def status(self, text: str) -> None:
        """Progress of the provider before it answers, such as loading a local model."""
        if self._shows_progress:
            note(text, dim=True)

    def began(self, began: RunInit) -> None:
        if began.tools and began.sandbox == "full-access":
            note(NO_SANDBOX, fg="yellow")

    def event(self, logged: ev.Logged) -> None:
        self._wait_line.clear()
        match logged.event:
            case ev.Notice(wait_ms=int()) as notice:
                self._finish_line()
                self._wait_line.show(notice)
            case ev.TurnStarted():
                self._finish_line()
                self._block = None
            case ev.AssistantTextDelta(content_index=index, delta=delta) if not self._hold:
                self._block = index
                self._print(delta)
            case ev.AssistantText(content_index=index, text=text) if not self._hold and index != self._block:
                self._print(text)  # it came at once, without deltas
            case ev.Notice(message=message) as notice if is_warning(notice):
                self._finish_line()
                note(f"makai: {one_line(message)}", fg="yellow")
            case _ if self._shows_progress:
                self._aside(logged)
            case _:
                pass

    def denied(self, request: ev.ApprovalRequested, reason: str) -> None:
        """A call was denied because there is no terminal to ask on."""
        self._finish_line()
        note(f"makai: denied: {one_line(request.title or request.name)}. {one_line(reason)}", dim=True)

    def ended(self, outcome: RunOutcome) -> None:
        if self._hold:
            self._print(outcome.text)
        self._finish_line()
        if outcome.stop_reason == "refusal":
            provider = outcome.message.provider if outcome.message else "the provider"
            note(f"makai: {provider} stopped the answer: the model refused to continue", dim=True)

    def failed(self, error: MakaiError, outcome: RunOutcome | None = None) -> None:
        """`outcome` is None when there was no run."""
        self._wait_line.clear()
        self._finish_line()
        explain(error)

    def interrupted(self, outcome: RunOutcome) -> None:
        self._wait_line.clear()

    def _aside(self, logged: ev.Logged) -> None:
        match logged.event:
            case ev.ReasoningDelta(delta=delta):
                note(harmless(delta, sys.stderr), end="", is_whole=False, dim=True)
            case ev.Reasoning():
                note("\n")
            case ev.ToolCalled(name=name, title=title):
                self._finish_line()
                note(f"• {one_line(title or name)}", dim=True)
            case ev.ToolFinished(is_error=True, content=content):
                text = next((part.text for part in content if isinstance(part, Text)), "it failed")
                note(f"  {one_line(text, 120)}", dim=True)
            case ev.Notice(message=message, code=code) if not code.startswith("limit_"):
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
    """One JSON object at the end, also for failures. What a person would have been warned of is in it."""

    def __init__(self, *, hold: bool = False, is_quiet: bool = False) -> None:
        super().__init__(hold=hold, is_quiet=is_quiet)
        self._warnings: list[dict[str, str]] = []

    def event(self, logged: ev.Logged) -> None:
        self._wait_line.clear()
        if isinstance(logged.event, ev.Notice) and logged.event.wait_ms is not None:
            self._wait_line.show(logged.event)
        elif isinstance(logged.event, ev.Notice) and is_warning(logged.event):
            self._warnings.append({"code": logged.event.code, "message": logged.event.message})

    def denied(self, request: ev.ApprovalRequested, reason: str) -> None:
        message = f"denied: {request.title or request.name}. {reason}"
        self._warnings.append({"code": "approval_denied", "message": message})

    def ended(self, outcome: RunOutcome) -> None:
        result = {"type": "result", **_result(outcome, is_error=False), "message": outcome.message}
        say_json(result | self._warned())

    def failed(self, error: MakaiError, outcome: RunOutcome | None = None) -> None:
        self._wait_line.clear()
        say_json(_error_object(error) | ({} if outcome is None else _result(outcome, is_error=True)) | self._warned())

    def _warned(self) -> dict[str, Any]:
        return {"warnings": self._warnings} if self._warnings else {}

    def interrupted(self, outcome: RunOutcome) -> None:
        self.failed(Aborted("the run was interrupted."), outcome)


class StreamJsonOutput(JsonOutput):
    """One line of JSON per event; the last one is `result` or `error`, also when there was no run."""

    def began(self, began: RunInit) -> None:
        super().began(began)
        say_json(began)

    def event(self, logged: ev.Logged) -> None:
        if (line := projected(logged)) is not None:
            say_json(line)

    def denied(self, request: ev.ApprovalRequested, reason: str) -> None:
        pass  # the event `approval_decided` says so

    def ended(self, outcome: RunOutcome) -> None:
        say_json({"type": "result", **_result(outcome, is_error=False)})


def is_warning(notice: ev.Notice) -> bool:
    """Whether it is shown also when the output is not a terminal. The end of a run says which limit it reached."""
    return (notice.level != "info" and not notice.code.startswith("limit_")) or notice.code in _ABOUT_TOOLS


def projected(logged: ev.Logged) -> dict[str, Any] | None:
    """An event as scripts get it; None for events that scripts do not get."""
    if not isinstance(logged.event, SHOWN):
        return None
    event: dict[str, Any] = msgspec.to_builtins(logged.event)
    public = {name: value for name, value in event.items() if name not in _PRIVATE}
    return {**public, "event_id": logged.event_id, "ts": logged.ts}


def _result(outcome: RunOutcome, *, is_error: bool) -> dict[str, Any]:
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


OUTPUTS: Final = {"text": TextOutput, "json": JsonOutput, "stream-json": StreamJsonOutput}
