"""Session events -> what the agent protocol says about them, as (envelope type, payload) pairs:

    agent_start (turn_start message_start … message_end turn_end (tool_execution_start tool_execution_end)*)* agent_end

or, when the run fails or is stopped, one `error` in the place of `agent_end`. The last event of a run is followed by
its settlement, `agent_result` or `agent_error`. Facts that V1 has no event for (plans, notices, titles, progress) are
left out; so are compactions, for they are runs without words. An agent without turns gets some here: one ends with the
first tool that starts in it, or with the run.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from makai.catalog.model_ref import ModelRef, parse_model_ref
from makai.core import session_events as ev
from makai.core.content import AssistantPart, Text, Thinking, ToolCall
from makai.core.errors import ModelRefError
from makai.core.messages import StopReason
from makai.core.usage import Usage
from makai.protocols.makai import agent_payloads as wire
from makai.protocols.makai.envelope import log_id_of
from makai.protocols.makai.projection import wire_code
from makai.sessions.state import SessionState

Told: TypeAlias = list[tuple[str, Any]]
"""Envelope types and payloads, in order."""

NEEDS_LOGIN: Final = frozenset({"auth_required", "auth_expired", "auth_refresh_failed"})
MAX_WARNINGS: Final = 50
_BROKEN: Final = frozenset({"error", "aborted"})
_NO_MODEL: Final = ModelRef("", "", "")
_DECISIONS: Final[dict[ev.Decision, Any]] = {"approve": "approve", "deny_continue": "deny", "deny_abort": "abort"}


class _Run:
    def __init__(self, run_id: str, model_ref: str, has_turns: bool) -> None:
        self.run_id = run_id
        self.model_ref = model_ref
        self.answer: dict[int, AssistantPart] = {}
        """The blocks of the newest message."""
        self.calls: dict[str, str] = {}
        """Open calls: id -> the tool's name."""
        self.started: set[str] = set()
        self.stop_reason = ""
        self.warnings: list[str] = []
        self.has_turns = has_turns
        self.is_message_open = False


class AgentProjection:
    def __init__(self, session_id: str, *, has_turns: bool = True) -> None:
        """`has_turns`: the agent itself says where its turns begin and end."""
        self._session_id = session_id
        self._has_turns = has_turns
        self._run: _Run | None = None

    def is_started(self, call_id: str) -> bool:
        """Whether the client was told that this tool is being executed."""
        return self._run is not None and call_id in self._run.started

    def project(self, logged: ev.Logged) -> Told:
        event = logged.event
        if isinstance(event, ev.RunStarted):
            self._run = None
            if event.purpose == "input":
                self._run = _Run(logged.run_id or "", event.model_ref, self._has_turns)
                return self._events(logged, self._run, wire.RunStart(self._session_id))
            return []
        run = self._run
        if run is None or run.run_id != logged.run_id or ev.is_of_sub_agent(event):
            return []
        match event:
            case ev.ApprovalRequested():
                return [("permission_request", permission_request(event, run.run_id))]
            case ev.ApprovalDecided(call_id=call_id, by=by, reason=reason):
                decision = _DECISIONS[event.decision]
                settled = wire.PermissionSettled(tool_call_id=call_id, decision=decision, by=by, reason=reason)
                return [("permission_settled", settled)]
            case ev.RunFinished() | ev.RunFailed():
                self._run = None
                return self._ended(logged, run, event)
            case _:
                return self._events(logged, run, *_turn_around(run, event), *_of_run(run, event))

    def _events(self, logged: ev.Logged, run: _Run, *events: wire.AgentEvent) -> Told:
        ids = [None] * (len(events) - 1) + [logged.event_id]
        return [
            ("agent_event", wire.AgentEventMessage(event=event, run_id=run.run_id, event_id=event_id))
            for event, event_id in zip(events, ids, strict=False)
        ]

    def _ended(self, logged: ev.Logged, run: _Run, event: ev.RunFinished | ev.RunFailed) -> Told:
        """MK-AGENT-006 and MK-AGENT-011: exactly one terminal event, then exactly one settlement."""
        if isinstance(event, ev.RunFailed):
            code, message, hint = wire_code(event.code), event.message, event.hint
            provider_id, retry_after_ms = event.provider_id, event.retry_after_ms
        elif event.stop_reason == "aborted":
            code, message, hint = "aborted", run.stop_reason or "the run was stopped", None
            provider_id = retry_after_ms = None
        else:
            end = wire.RunEnd(stop_reason=event.stop_reason, usage=_summary(event.usage))
            ended = [*_ended_message(run, event.stop_reason), end]
            return [*self._events(logged, run, *ended), ("agent_result", _result(run, event))]
        error = wire.AgentError(
            code=code,
            message=message,
            provider_id=provider_id or (_model_of(run.model_ref).provider_id if code in NEEDS_LOGIN else None) or None,
            retry_after_ms=retry_after_ms,
            hint=hint,
            usage=event.usage,
            run_id=run.run_id,
            warnings=tuple(run.warnings),
        )
        return [*self._events(logged, run, wire.RunError(message=message, code=code)), ("agent_error", error)]


def permission_request(asked: ev.ApprovalRequested, run_id: str) -> wire.PermissionRequest:
    return wire.PermissionRequest(
        tool_call_id=asked.call_id,
        tool_name=asked.name,
        arguments=_arguments(asked.arguments_json),
        digest=asked.digest,
        run_id=run_id,
        title=asked.title,
        diffs=msgspec.convert(asked.diffs, tuple[wire.FileChange, ...], from_attributes=True),
        deadline_ms=asked.deadline_ms,
        grant=asked.grant,
        grants=asked.grants,
        confinement=asked.confinement,
    )


def _turn_around(run: _Run, event: object) -> list[wire.AgentEvent]:
    """The turn of an agent that has none of its own, where this event begins or ends it."""
    if run.has_turns:
        return []
    if isinstance(event, ev.ToolStarted | ev.ToolFinished):
        return _ended_message(run, "tool_use")
    if isinstance(event, ev.Delta | ev.AssistantText | ev.Reasoning | ev.ToolCalled) and not run.is_message_open:
        run.is_message_open = True
        run.answer = {}
        return [wire.TurnStart(), _message_start(run.model_ref)]
    return []


def _ended_message(run: _Run, reason: StopReason) -> list[wire.AgentEvent]:
    if not run.is_message_open:
        return []
    run.is_message_open = False
    return [wire.MessageEnd(usage=_summary(Usage()), stop_reason=reason), wire.TurnEnd(reason)]


def _of_run(run: _Run, event: object) -> list[wire.AgentEvent]:
    match event:
        case ev.AssistantTextDelta(delta=delta):
            return [wire.TextPiece(delta)]
        case ev.ReasoningDelta(delta=delta):
            return [wire.ThinkingPiece(delta)]
        case ev.AssistantText():
            run.answer[event.content_index] = Text(text=event.text, text_signature=event.signature)
        case ev.Reasoning(broken_off=False):
            run.answer[event.content_index] = Thinking(
                thinking=event.text, thinking_signature=event.signature, redacted=event.redacted
            )
        case ev.TurnStarted():
            run.answer = {}
            run.model_ref = event.model_ref or run.model_ref
            return [wire.TurnStart(), _message_start(run.model_ref)]
        case ev.TurnEnded(stop_reason=reason):
            # A message that broke off has no end of its own: `error` would be terminal.
            whole = [] if reason in _BROKEN else [wire.MessageEnd(usage=_summary(event.usage), stop_reason=reason)]
            return [*whole, wire.TurnEnd(reason)]
        case ev.RunAborted(reason=reason):
            run.stop_reason = reason
        case ev.Notice(level="warning" | "error", message=message) if len(run.warnings) < MAX_WARNINGS:
            run.warnings.append(message)
        case ev.ToolCalled() | ev.ToolStarted() | ev.ToolFinished():
            return _of_call(run, event)
    return []


def _of_call(run: _Run, event: ev.ToolCalled | ev.ToolStarted | ev.ToolFinished) -> list[wire.AgentEvent]:
    call_id = event.call_id
    if isinstance(event, ev.ToolCalled):
        run.calls[call_id] = event.name
        arguments = _parseable(event)
        run.answer[event.content_index] = ToolCall(
            tool_call_id=call_id,
            name=event.name,
            arguments_json=arguments,
            thought_signature=event.signature,
            arguments_error=event.arguments_error,
        )
        return [wire.CalledTool(name=event.name, arguments_json=arguments, tool_call_id=call_id)]
    start = wire.ExecutionStart(tool_call_id=call_id, tool_name=run.calls.get(call_id, ""))
    if isinstance(event, ev.ToolStarted):
        run.started.add(call_id)
        return [start]
    end = wire.ExecutionEnd(tool_call_id=call_id, is_error=event.is_error)
    # MK-TOOL-004, "one pair per call": also for a call that was refused before its tool was started.
    began = [] if call_id in run.started else [start]
    run.started.discard(call_id)
    run.calls.pop(call_id, None)
    return [*began, end]


def _result(run: _Run, event: ev.RunFinished) -> wire.AgentResult:
    model = _model_of(run.model_ref)
    return wire.AgentResult(
        message=wire.AssistantAnswer(content=tuple(run.answer[index] for index in sorted(run.answer))),
        usage=event.usage,
        provider_id=model.provider_id,
        api=model.api,
        model_id=model.model_id,
        stop_reason=event.stop_reason,
        run_id=run.run_id,
        warnings=tuple(run.warnings),
    )


def _message_start(model_ref: str) -> wire.MessageStart:
    model = _model_of(model_ref)
    return wire.MessageStart(
        provider_id=model.provider_id or None, api=model.api or None, model_id=model.model_id or None
    )


def _model_of(model_ref: str) -> ModelRef:
    try:
        return parse_model_ref(model_ref)
    except ModelRefError:
        return _NO_MODEL


def _summary(usage: Usage) -> wire.UsageSummary:
    return msgspec.convert(usage, wire.UsageSummary, from_attributes=True)


def _parseable(call: ev.ToolCalled) -> str:
    """MK-TOOL-005 wants JSON here. Arguments that are none stand as a JSON string: mended ones would be invented."""
    if call.arguments_error is None:
        return call.arguments_json
    try:
        msgspec.json.decode(call.arguments_json)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return msgspec.json.encode(call.arguments_json).decode()
    return call.arguments_json


def _arguments(arguments_json: str) -> dict[str, Any]:
    """Only calls whose arguments were understood get as far as a question."""
    try:
        return msgspec.json.decode(arguments_json, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}


def session_info(session_id: str, state: SessionState) -> wire.SessionInfo:
    """How a session is."""
    run = state.active_run
    log_id = log_id_of(session_id)
    return wire.SessionInfo(
        session_id=session_id,
        status=_standing(state),
        model_ref=state.model_ref,
        mode=state.mode,
        sandbox=state.terms.sandbox,
        event_id=state.last_event_id,
        created_at=state.created_at,
        updated_at=state.last_ts,
        usage=state.usage if run is None else state.usage + run.usage,
        pending_permissions=tuple(call.call_id for call in run.pending()) if run is not None else (),
        title=state.title,
        cwd=state.cwd,
        run_id=run.run_id if run is not None else None,
        log_id=log_id if log_id != session_id else None,
    )


def _standing(state: SessionState) -> wire.SessionStanding:
    run = state.active_run
    if run is None:
        return "closed" if state.closed else "idle"
    if run.status == "aborting":
        return "stopping"
    if run.pending():
        return "waiting_for_permission"
    return "waiting_for_tool" if any(call.status == "started" for call in run.calls.values()) else "running"
