"""The log of a session as the events of the harness contract. Sans-IO.

The law of the stream holds whatever the log says: one `init` first, whole texts, one `result` or `error` last, and then
nothing (DM-PROV-003). What the log says before the agent has named its session waits for that.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from makai.core import session_events as ev
from makai.core.content import words_of
from makai.core.messages import StopReason
from makai.core.usage import Usage
from makai.harness.contract.events import (
    AgentErrorEvent,
    AssistantTextEvent,
    CostData,
    Event,
    InitEvent,
    ResultEvent,
    SystemEvent,
    ToolCategory,
    ToolProgressEvent,
    ToolResultEvent,
    ToolUseEvent,
    is_terminal,
)

STOPPED: Final = "stopped"
"""`error_subtype` of a session that was stopped."""
_SUBTYPES: Final[dict[StopReason, str]] = {
    "max_turns": "error_max_turns",
    "max_tokens": "error_max_tokens",
    "refusal": "refusal",
    "aborted": STOPPED,
    "error": "error_during_execution",
}
"""Reasons for which a run ends without success."""
_LIMITS: Final = "limit_"
"""How the codes of notices begin that say which limit ended a run."""
_CATEGORIES: Final[dict[str, ToolCategory]] = {
    "read": "filesystem",
    "edit": "filesystem",
    "delete": "filesystem",
    "move": "filesystem",
    "search": "filesystem",
    "execute": "shell",
    "fetch": "network",
}
_NAMED: Final[tuple[tuple[str, ToolCategory], ...]] = (("af_code_", "code-intel"), ("linear", "linear"))


class HarnessEvents:
    """The events of one session of a harness, from the first input to the settlement of the last one."""

    def __init__(self, session_id: str, *, named_by_agent: bool) -> None:
        """`session_id` is makai's own id. `named_by_agent`: the agent reports another, which `init` carries."""
        self._session_id = session_id
        self._named_by_agent = named_by_agent
        self._has_begun = False
        self.is_over = False
        """Set after the terminal event: nothing follows."""
        self._early: list[Event] = []
        """Events from before the agent has named its session."""
        self._waiting: set[str] = set()
        """Inputs that no run has read yet."""
        self._has_input = False
        self._calls: dict[str, tuple[str, int]] = {}
        """Open calls: the name of the tool, and when it started (Unix milliseconds)."""
        self._text = ""
        self._turns = 0
        self._usage = Usage()
        self._limit: ev.Notice | None = None

    def take(self, logged: ev.Logged) -> list[Event]:
        """The events that one fact of the log means, in order."""
        if self.is_over:
            return []
        match logged.event:
            case ev.AgentSession(agent_session_id=agent_session_id) if self._named_by_agent:
                return self._begin(agent_session_id)
            case ev.RunStarted():
                return [] if self._named_by_agent else self._begin(self._session_id)
            case ev.RunFinished() as end:
                self._usage += end.usage
                # A prompt that was answered is one turn at least, also of an agent that does not count them.
                self._turns += end.turns or int(self._named_by_agent and end.stop_reason != "aborted")
                if self._waiting and end.stop_reason != "aborted":
                    return []  # the next run answers them
                return self._end(self._result(end.stop_reason))
            case ev.RunFailed() as end:
                self._usage += end.usage
                message = f"{end.message} {end.hint}" if end.hint else end.message
                cost = None if self._usage == Usage() else cost_of(self._usage, self._turns)
                return self._end(AgentErrorEvent(message=message, code=end.code, cost=cost))
            case event:
                return self._say(self._events(event, logged.ts))

    def close(self, why: str, code: str = "stream_ended") -> list[Event]:
        """The end of a log that does not say how its run ended."""
        return [] if self.is_over else self._end(AgentErrorEvent(message=why, code=code))

    def say(self, event: SystemEvent) -> list[Event]:
        """A notice about the session that its log does not have."""
        return [] if self.is_over else self._say([event])

    def _say(self, events: list[Event]) -> list[Event]:
        if self._has_begun:
            return events
        self._early += events
        return []

    def _begin(self, session_id: str) -> list[Event]:
        if self._has_begun:
            return []
        self._has_begun = True
        early, self._early = self._early, []
        return [InitEvent(session_id=session_id), *early]

    def _end(self, terminal: ResultEvent | AgentErrorEvent) -> list[Event]:
        assert is_terminal(terminal)
        events = [*self._begin(self._session_id), terminal]
        self.is_over = True
        return events

    def _result(self, reason: StopReason) -> ResultEvent:
        cost = cost_of(self._usage, self._turns)
        limit = self._limit
        if limit is None and reason not in _SUBTYPES:
            return ResultEvent(success=True, message=self._text, cost=cost)
        subtype = _SUBTYPES.get(reason, "")
        if limit is not None:
            subtype = f"error_max_{limit.code.removeprefix(_LIMITS)}"
        why = limit.message if limit is not None else f"The session ended with {reason}."
        return ResultEvent(success=False, message=self._text, errors=(why,), error_subtype=subtype, cost=cost)

    def _events(self, event: ev.SessionEvent, ts: int) -> list[Event]:
        match event:
            case ev.AssistantText(text=text, parent_call_id=parent) if text:
                self._text = self._text if parent else text
                return [AssistantTextEvent(text=text, raw=_nested(parent))]
            case ev.Reasoning(text=text, parent_call_id=parent) if text:
                return [SystemEvent(subtype="reasoning", message=text, raw=_nested(parent))]
            case ev.ToolCalled():
                self._calls[event.call_id] = (event.name, ts)
                return [_tool_use(event)]
            case ev.ToolStarted(call_id=call_id) if call_id in self._calls:
                self._calls[call_id] = (self._calls[call_id][0], ts)
            case ev.ToolProgress(call_id=call_id, text=text):
                return self._progress(call_id, ts, {"text": text})
            case ev.ToolUpdated(call_id=call_id, status="in_progress"):
                return self._progress(call_id, ts, None)
            case ev.ToolFinished(call_id=call_id, content=content, is_error=is_error):
                name, _ = self._calls.pop(call_id, ("", 0))
                said = words_of(content)
                return [ToolResultEvent(tool_name=name, tool_use_id=call_id, content=said, is_error=is_error)]
            case ev.TurnStarted(parent_call_id=""):
                self._turns += 1
            case ev.InputAccepted(input_id=input_id):
                self._waiting.add(input_id)
            case ev.InputWithdrawn(input_id=input_id):
                self._waiting.discard(input_id)
            case ev.UserInput(input_id=input_id, content=content):
                self._waiting.discard(input_id)
                if self._has_input:
                    return [SystemEvent(subtype="user_message", message=words_of(content))]
                self._has_input = True
            case _:
                return self._notices(event)
        return []

    def _notices(self, event: ev.SessionEvent) -> list[Event]:
        match event:
            case ev.Notice(code=code):
                self._limit = event if code.startswith(_LIMITS) else self._limit
                return [SystemEvent(subtype=code, message=event.waiting_text())]
            case ev.ApprovalDecided(call_id=call_id, decision=decision, by=by, reason=reason) if decision != "approve":
                raw = {"toolUseId": call_id, "by": by}
                return [SystemEvent(subtype="approval_denied", message=reason, raw=raw)]
            case ev.Compacted(summary=summary):
                return [SystemEvent(subtype="compaction", message=summary)]
            case ev.PlanUpdated(entries=entries):
                return [SystemEvent(subtype="plan", raw={"entries": msgspec.to_builtins(entries)})]
            case ev.RunResumed():
                return [SystemEvent(subtype="resumed", message="The session continues after a restart.")]
            case _:
                return []  # deltas, and settings that the caller made itself

    def _progress(self, call_id: str, ts: int, raw: Any) -> list[Event]:
        if call_id not in self._calls:
            return []
        name, since = self._calls[call_id]
        return [ToolProgressEvent(tool_name=name, elapsed_seconds=max(ts - since, 0) / 1000, raw=raw)]


def cost_of(usage: Usage, turns: int) -> CostData:
    """What was used, in the contract's words: input that was written to a cache counts as input."""
    return CostData(
        input_tokens=usage.input + usage.cache_write,
        output_tokens=usage.output,
        cached_input_tokens=usage.cache_read,
        total_cost_usd=usage.cost_usd or 0.0,
        num_turns=turns,
    )


def _tool_use(call: ev.ToolCalled) -> ToolUseEvent:
    try:
        given = msgspec.json.decode(call.arguments_json, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        given = {"arguments": call.arguments_json}
    named = (category for part, category in _NAMED if part in call.name.lower())
    category = next(named, _CATEGORIES.get(call.kind))
    raw = _nested(call.parent_call_id)
    return ToolUseEvent(tool_name=call.name, tool_use_id=call.call_id, input=given, tool_category=category, raw=raw)


def _nested(parent_call_id: str) -> dict[str, str] | None:
    """How an event of a sub-agent names the call in which the sub-agent runs."""
    return {"parentToolUseId": parent_call_id} if parent_call_id else None
