"""The rules for what harnesses report about their run. Late reports are dropped: their run is over, and its readers
know it. Reports that break a rule are refused: the harness has a bug, and the log must not have it too. No report
decides what a person has to decide. Rules about turns apply to harnesses that have turns
(`HarnessCapabilities.has_turns`), and to the agent of the session, not to its sub-agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.sessions.commands import CallStatus, Report, RunTool
from makai.sessions.draft import Draft
from makai.sessions.state import Run, UnfinishedCall, same_fields

_OF_THE_SESSION = frozenset({ev.Notice, ev.UsageReported, ev.TitleChanged, ev.AgentSession})
"""What may be reported without a run."""
_WHILE_ABORTING = frozenset({ev.ToolFinished, ev.TurnEnded, ev.RunFinished, ev.RunFailed})
""""No assistant_text or function_call_output … after the aborting status, except outputs closing tool calls that were
still open" (MC-RUN-009)."""
_SETTLEMENTS = frozenset({ev.RunFinished, ev.RunFailed})


def report(draft: Draft, command: Report) -> None:
    """Take a fact into the log, with everything that follows from it."""
    kind = type(command.event)
    if command.run_id is None:
        if kind not in _OF_THE_SESSION:
            raise SessionRefused("INVALID_COMMAND", f"{kind.__name__} belongs to a run.")
        draft.log(command.event)
        return
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise SessionRefused("INVALID_COMMAND", f"{kind.__name__} is not for agents to report.")
    run = draft.state.run
    if run is None or run.settled or run.run_id != command.run_id:
        return
    if run.status == "aborting":
        if kind not in _WHILE_ABORTING:
            return
    elif run.status == "starting" and kind not in _SETTLEMENTS:
        draft.log(ev.RunStatusChanged(status="running"), run.run_id)
    handler(draft, run, command.event)


def _is_in_turn(draft: Draft, run: Run, event: ev.NestedFact) -> bool:
    """Whether the rules of turns apply to the fact: it is the agent's own, and the agent has turns."""
    if not event.parent_call_id:
        return draft.state.capabilities.has_turns
    if event.parent_call_id not in run.calls:
        raise _out_of_order(f"call {event.parent_call_id!r} of the sub-agent is not open")
    return False


def _turn_started(draft: Draft, run: Run, event: ev.TurnStarted) -> None:
    if run.purpose == "compaction":
        raise _out_of_order("a compaction says nothing but its summary")
    if not _is_in_turn(draft, run, event):
        draft.log(event, run.run_id)
        return
    if run.turn_open:
        raise _out_of_order(f"turn {run.turn} has not ended")
    if event.turn <= run.turn:
        raise _out_of_order(f"turn {event.turn} comes after turn {run.turn}")
    if run.calls:
        # Model APIs want a result for every call before they are asked again.
        raise _out_of_order(f"call {next(iter(run.calls))!r} has no result")
    draft.log(ev.TurnStarted(turn=event.turn, model_ref=event.model_ref or run.model_ref), run.run_id)


def _turn_ended(draft: Draft, run: Run, event: ev.TurnEnded) -> None:
    is_open = run.turn_open and event.turn == run.turn and not event.parent_call_id
    if is_open or (run.status != "aborting" and not _is_in_turn(draft, run, event)):
        is_last = event.is_final or event.stop_reason == "aborted"  # a limit of the run ended the answer
        if is_last and run.status != "aborting" and not event.parent_call_id:
            draft.log_open_texts(run.run_id)
        draft.log(event, run.run_id)
    elif run.status != "aborting":
        raise _out_of_order(f"turn {event.turn} is not open")


def _said(
    draft: Draft, run: Run, event: ev.AssistantTextDelta | ev.ReasoningDelta | ev.AssistantText | ev.Reasoning
) -> None:
    if _is_in_turn(draft, run, event) and not run.turn_open:
        raise _out_of_order("no turn is open")
    draft.log(event, run.run_id)


def _steered(draft: Draft, run: Run, event: ev.UserInput) -> None:
    waiting = next((other for other in draft.state.waiting if other.delivery == "steer"), None)
    if not any(other.input_id == event.input_id for other in draft.state.waiting):
        raise SessionRefused("INPUT_NOT_WAITING", f"Input {event.input_id!r} was taken back, or read already.")
    if waiting is None or waiting.input_id != event.input_id:
        raise SessionRefused("BAD_ARGUMENT", f"Input {event.input_id!r} is not the next to be read.")
    if (run.turn_open and draft.state.capabilities.has_turns) or run.purpose == "compaction":
        raise _out_of_order("input is read between two turns")
    # What the user said counts, not what a harness made of it.
    draft.log(same_fields(waiting, ev.UserInput), run.run_id)


def _called(draft: Draft, run: Run, event: ev.ToolCalled) -> None:
    if _is_in_turn(draft, run, event) and not run.turn_open:
        raise _out_of_order("no turn is open")
    if not event.call_id or event.call_id in draft.state.call_ids:
        raise SessionRefused("BAD_ARGUMENT", f"The session had a call {event.call_id!r} before.")
    draft.log(event, run.run_id)


def _asked(draft: Draft, run: Run, event: ev.ApprovalRequested) -> None:
    call = _open_call(draft, run, event.call_id, "called")
    if (event.name, event.arguments_json) != (call.name, call.arguments_json) or not event.digest:
        raise SessionRefused("BAD_ARGUMENT", "An approval is about exactly what the model called.")
    draft.log(event, run.run_id)
    if run.status != "awaiting_approval":
        # After the request, so that the status shows the call among those that are pending (MC-APPR-001).
        draft.log(ev.RunStatusChanged(status="awaiting_approval"), run.run_id)


def _decided(draft: Draft, run: Run, event: ev.ApprovalDecided) -> None:
    """A rule or a mode decided, or a harness withdrew its question. Only people approve what people were asked."""
    call = _open_call(draft, run, event.call_id, "called", "pending")
    if event.decision == "deny_abort" or event.scope != "once" or event.grant:
        raise SessionRefused("BAD_ARGUMENT", "An agent approves or denies single calls, and grants nothing.")
    if call.status == "called":
        draft.log(event, run.run_id)
    elif event.decision == "deny_continue":
        draft.decide_call(run.run_id, event)
    else:
        raise SessionRefused("APPROVAL_CONFLICT", f"Call {event.call_id!r} waits for a person.")


def _started(draft: Draft, run: Run, event: ev.ToolStarted) -> None:
    call = _open_call(draft, run, event.call_id, "called", "approved")
    draft.log(event, run.run_id)
    draft.effect(RunTool(run_id=run.run_id, call_id=call.call_id))


def _updated(draft: Draft, run: Run, event: ev.ToolUpdated) -> None:
    if event.call_id in run.calls:
        draft.log(event, run.run_id)


def _progressed(draft: Draft, run: Run, event: ev.ToolProgress) -> None:
    call = run.calls.get(event.call_id)
    if call is not None and call.status == "started":
        draft.log(event, run.run_id)


def _finished(draft: Draft, run: Run, event: ev.ToolFinished) -> None:
    if run.status == "aborting" and event.call_id not in run.calls:
        return
    _open_call(draft, run, event.call_id, "called", "approved", "denied", "started")
    _drop_nested(draft, run, event.call_id)
    draft.log(event, run.run_id)


def _drop_nested(draft: Draft, run: Run, parent_call_id: str) -> None:
    """A sub-agent ended with the call it ran in: none of its own calls may stay open."""
    for call in run.calls.values():
        if call.parent_call_id == parent_call_id:
            _drop_nested(draft, run, call.call_id)
            draft.drop_call(run.run_id, call, "its agent ended")


def _open_call(draft: Draft, run: Run, call_id: str, *allowed: CallStatus) -> UnfinishedCall:
    call = run.calls.get(call_id)
    if call is None and call_id not in draft.state.call_ids:
        raise SessionRefused("UNKNOWN_CALL_ID", f"There is no call {call_id!r}.")
    if call is None or call.status not in allowed:
        raise _out_of_order(f"call {call_id!r} is {call.status if call else 'finished'}")
    return call


def _compacted(draft: Draft, run: Run, event: ev.Compacted) -> None:
    end = run.turn_began - 1 if run.turn_open else draft.state.last_event_id
    if not event.summary.strip() or not draft.state.compacted_through < event.through <= end:
        raise SessionRefused("BAD_ARGUMENT", "A summary says something about more events than the one before it.")
    draft.log(event, run.run_id)


def _noted(draft: Draft, run: Run, event: ev.SessionEvent) -> None:
    draft.log(event, run.run_id)


def _settled(draft: Draft, run: Run, event: ev.RunFinished | ev.RunFailed) -> None:
    if isinstance(event, ev.RunFinished) and run.status != "aborting":
        if event.stop_reason == "error":
            raise SessionRefused("BAD_ARGUMENT", "A run that ends in an error is reported as failed.")
        if run.turn_open and event.stop_reason != "aborted" and draft.state.capabilities.has_turns:
            raise _out_of_order(f"turn {run.turn} has not ended")
    draft.settle(run, event)


def _out_of_order(what: str) -> SessionRefused:
    return SessionRefused("INVALID_COMMAND", f"Out of order: {what}.")


_HANDLERS: dict[type, Callable[[Draft, Run, Any], None]] = {
    ev.TurnStarted: _turn_started,
    ev.TurnEnded: _turn_ended,
    **dict.fromkeys((ev.AssistantTextDelta, ev.ReasoningDelta, ev.AssistantText, ev.Reasoning), _said),
    ev.UserInput: _steered,
    ev.ToolCalled: _called,
    ev.ApprovalRequested: _asked,
    ev.ApprovalDecided: _decided,
    ev.ToolStarted: _started,
    ev.ToolProgress: _progressed,
    ev.ToolUpdated: _updated,
    ev.ToolFinished: _finished,
    ev.Compacted: _compacted,
    **dict.fromkeys((ev.PlanUpdated, ev.UsageReported, ev.Notice, ev.TitleChanged, ev.AgentSession), _noted),
    **dict.fromkeys(_SETTLEMENTS, _settled),
}
