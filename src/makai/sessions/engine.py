"""The rules of a session: what a command leads to, in the state the session is in.

In: `SessionState` and a `Command`. Out: a `Decision`, which is numbered events, the state after them and the effects
to carry out, or `SessionRefused`. No I/O, no clock, no random id: the same state and command always decide the same.

The events of one decision belong together: they are committed all or none, then published, then the effects are
carried out. A decision whose commit failed is simply forgotten; its state was never anyone's.

    send ─► starting ─► running ◄─► awaiting_approval        (document 002)
                │          │               │
                └──────────┴───── abort ───┴─► aborting ─► finished
                           └─► finished | error

A run ends in `run_status`, then `run_finished` or `run_failed`, and never says anything again. When it has settled,
the first waiting input starts the next run. The rules for what agents report are in `reports`.
"""

from __future__ import annotations

from typing import assert_never, get_args

import msgspec

from makai.core.errors import SessionRefused
from makai.core.session_events import (
    ApprovalDecided,
    AssistantTextDelta,
    GrantScope,
    InputAccepted,
    Logged,
    ModeChanged,
    ModelChanged,
    PermissionMode,
    ReasoningDelta,
    RunFailed,
    RunFinished,
    RunResumed,
    SessionClosed,
    SessionCreated,
    TermsChanged,
    TitleChanged,
    TurnEnded,
)
from makai.harness.base import ResumeRun, StartCompaction
from makai.sessions.commands import (
    Abort,
    AnyEffect,
    Approve,
    CancelRun,
    Close,
    Command,
    Compact,
    Create,
    Deny,
    Recovered,
    Report,
    Send,
    SetMode,
    SetModel,
    SetTerms,
    SetTitle,
    Steer,
    TimePassed,
)
from makai.sessions.draft import Decision, Draft
from makai.sessions.reports import report
from makai.sessions.state import Run, SessionState, evolve, fold

__all__ = ["Batch", "Decision", "decide", "evolve", "fold"]

MAX_WAITING = 100
MAX_ID_LENGTH = 256
MAX_TITLE_LENGTH = 500
MAX_RESUMES = 3
"""A run that ends the server each time it is resumed is not resumed for ever."""
ENGINE_NAMES = frozenset({"rule", "mode", "deadline", "abort", "run_ended"})
"""Who else than a client decides approvals; no client may call itself that."""


def decide(state: SessionState, command: Command) -> Decision:
    """What the command leads to. Raises `SessionRefused` when it is refused: then nothing has changed."""
    draft = Draft(state, command.now)
    match command:
        case Report():
            _check_open(state)
            report(draft, command)
        case Create():
            _create(draft, command)
        case Send():
            _send(draft, command)
        case Approve() | Deny():
            _answer(draft, command)
        case Abort():
            _abort(draft, command)
        case SetMode() | SetModel() | SetTitle() | SetTerms():
            _set(draft, command)
        case Compact():
            _compact(draft, command)
        case Close():
            _close(draft, command)
        case TimePassed():
            _deny_what_ran_out(draft)
        case Recovered():
            _recover(draft, command)
        case _:
            assert_never(command)
    return draft.decision()


def _check_open(state: SessionState) -> None:
    if state.last_event_id == 0:
        raise SessionRefused("UNKNOWN_SESSION", "There is no such session.")
    if state.closed:
        raise SessionRefused("SESSION_CLOSED", "The session is closed.", hint="Fork it to go on.")


# ---------------------------------------------------------------- the session


def _create(draft: Draft, command: Create) -> None:
    if draft.state.last_event_id != 0:
        raise SessionRefused("SESSION_EXISTS", "There is a session of this id already.")
    _check_text(command.model_ref, "model_ref")
    _check_mode(command.mode)
    _check_title(command.title)
    if (command.forked_from is None) != (command.forked_at is None) or (command.forked_at or 0) < 0:
        raise SessionRefused("BAD_ARGUMENT", "A fork names the session it continues and the event it continues from.")
    draft.log(
        SessionCreated(
            model_ref=command.model_ref,
            mode=command.mode,
            harness=command.harness,
            cwd=command.cwd,
            roots=command.roots,
            title=command.title,
            forked_from=command.forked_from,
            forked_at=command.forked_at,
            terms=command.terms,
        )
    )


def _set(draft: Draft, command: SetMode | SetModel | SetTitle | SetTerms) -> None:
    """Settings; what is set already is no event."""
    _check_open(draft.state)
    match command:
        case SetMode(mode=mode):
            _check_mode(mode)
            if mode != draft.state.mode:
                draft.log(ModeChanged(mode=mode))
        case SetModel(model_ref=model_ref):
            _check_text(model_ref, "model_ref")
            if model_ref != draft.state.model_ref:
                draft.log(ModelChanged(model_ref=model_ref))
        case SetTitle(title=title):
            _check_title(title)
            if title != draft.state.title:
                draft.log(TitleChanged(title=title))
        case SetTerms(terms=terms):
            if terms != draft.state.terms:
                draft.log(TermsChanged(terms=terms))
        case _:
            assert_never(command)


def _close(draft: Draft, command: Close) -> None:
    _check_open(draft.state)
    if draft.state.active_run is not None:
        raise SessionRefused("BUSY", "A run is active.", hint="Abort it first.")
    draft.log(SessionClosed(reason=command.reason))


# ---------------------------------------------------------------- runs


def _send(draft: Draft, command: Send) -> None:
    state = draft.state
    if command.client_msg_id is not None and command.client_msg_id in state.client_msg_ids:
        return  # "deduplicated per session, for good" (DESIGN §6): before BUSY, and even when the session is closed
    _check_open(state)
    _check_words(command)
    if state.active_run is None:
        draft.start_run(command.input_id, command.content, command.client_msg_id, command.terms)
        return
    if command.delivery is None:
        raise SessionRefused("BUSY", "A run is active.", hint="Wait for it, abort it, or queue the message.")
    if len(state.waiting) >= MAX_WAITING:
        raise SessionRefused("BUSY", f"{MAX_WAITING} messages are waiting already.")
    if any(waiting.input_id == command.input_id for waiting in state.waiting):
        raise SessionRefused("BAD_ARGUMENT", f"An input of id {command.input_id!r} is waiting already.")
    draft.log(
        InputAccepted(
            input_id=command.input_id,
            content=command.content,
            client_msg_id=command.client_msg_id,
            delivery=command.delivery,
            terms=command.terms,
        )
    )
    if command.delivery == "steer" and _can_be_steered(state.active_run):
        draft.effect(Steer(run_id=state.active_run.run_id, input_id=command.input_id, content=command.content))


def _can_be_steered(run: Run) -> bool:
    return run.status != "aborting" and run.purpose == "input"


def _compact(draft: Draft, command: Compact) -> None:
    _check_open(draft.state)
    _check_text(command.input_id, "input_id")
    if draft.state.active_run is not None:
        raise SessionRefused("BUSY", "A run is active.", hint="It compacts by itself when it has to.")
    if draft.state.run_counter == 0 and draft.state.forked_from is None:
        raise SessionRefused("INVALID_COMMAND", "There is nothing to compact.")
    run_id = draft.log_run_start(command.input_id, "compaction")
    draft.effect(StartCompaction(run_id=run_id, instructions=command.instructions, model_ref=draft.state.model_ref))


def _abort(draft: Draft, command: Abort) -> None:
    _check_open(draft.state)
    run = draft.state.active_run
    if run is None:
        raise SessionRefused("NOT_RUNNING", "No run is active.")
    if command.run_id is not None and command.run_id != run.run_id:
        raise SessionRefused("STALE_RUN_ID", f"Run {command.run_id!r} is not the active one.")
    if run.status == "aborting":
        return  # it is on its way; the first abort is the one that counts
    draft.log_abort(run.run_id, command.by, command.reason)
    for call in run.pending():
        draft.decide_call(run.run_id, ApprovalDecided(call_id=call.call_id, decision="deny_abort", by="abort"))
    draft.effect(CancelRun(run_id=run.run_id))


def _recover(draft: Draft, command: Recovered) -> None:
    """After a crash nothing is running any more, whatever the log says. Closed sessions have nothing to recover."""
    run = draft.state.active_run
    if run is None:
        draft.start_waiting()
    elif run.status == "aborting":
        draft.settle(run, RunFinished(stop_reason="aborted"))
    elif not command.can_resume or not _is_resumable(run):
        draft.settle(run, RunFailed(code="interrupted", message="The server ended during this run."))
    else:
        _resume(draft, run)


def _is_resumable(run: Run) -> bool:
    # A log that was cut by a repair may hold a run whose last status is there and whose settlement is not.
    return run.purpose == "input" and run.resumes < MAX_RESUMES and run.status not in ("finished", "error")


def _resume(draft: Draft, run: Run) -> None:
    """Started tools are over, for what they did is unknown; pending approvals stay pending."""
    if run.turn_open:
        # Calls are whole when they are logged, so an answer that was cut off after one still is an answer.
        draft.log(TurnEnded(turn=run.turn, stop_reason="tool_use" if run.turn_has_calls else "error"), run.run_id)
    for call in run.calls.values():
        if call.status == "started":
            draft.finish_call(run.run_id, call, "The server ended while this tool ran; what it did is unknown.")
    draft.log(RunResumed(), run.run_id)
    draft.effect(ResumeRun(run_id=run.run_id, model_ref=run.model_ref))
    draft.steer_waiting(run.run_id)


# ---------------------------------------------------------------- approvals


def _answer(draft: Draft, command: Approve | Deny) -> None:
    _check_open(draft.state)
    if not command.by or command.by in ENGINE_NAMES or command.scope not in get_args(GrantScope):
        raise SessionRefused("BAD_ARGUMENT", "A decision names its decider and its scope: once, session or always.")
    run = draft.state.active_run
    call = run.calls.get(command.call_id) if run else None
    if run is None or call is None or call.request is None or call.status != "pending":
        if command.call_id in draft.state.call_ids:
            raise SessionRefused("APPROVAL_CONFLICT", f"Call {command.call_id!r} does not wait for a decision.")
        raise SessionRefused("UNKNOWN_CALL_ID", f"There is no call {command.call_id!r}.")
    if command.scope != "once" and not call.request.grant:
        raise SessionRefused("BAD_ARGUMENT", "This call can only be decided once: no rule would cover it.")
    if isinstance(command, Approve) and command.digest not in (None, call.request.digest):
        raise SessionRefused("APPROVAL_CONFLICT", "The call's arguments are not those that were approved.")
    draft.decide_call(
        run.run_id,
        ApprovalDecided(
            call_id=command.call_id,
            decision="approve" if isinstance(command, Approve) else "deny_continue",
            by=command.by,
            reason=command.reason,
            scope=command.scope,
            grant=call.request.grant if command.scope != "once" else "",
        ),
    )


def _deny_what_ran_out(draft: Draft) -> None:
    run = draft.state.active_run
    for call in run.pending() if run else ():
        deadline = call.request.deadline_ms if call.request else None
        if run is not None and deadline is not None and deadline <= draft.ts:
            denied = ApprovalDecided(
                call_id=call.call_id, decision="deny_continue", by="deadline", reason="Nobody decided in time."
            )
            draft.decide_call(run.run_id, denied)


# ---------------------------------------------------------------- arguments


def _check_text(text: str, name: str) -> None:
    if not text.strip():
        raise SessionRefused("BAD_ARGUMENT", f"{name} is empty.")


def _check_mode(mode: str) -> None:
    if mode not in get_args(PermissionMode):
        raise SessionRefused("BAD_ARGUMENT", f"There is no mode {mode!r}.")


def _check_title(title: str) -> None:
    if len(title) > MAX_TITLE_LENGTH:
        raise SessionRefused("BAD_ARGUMENT", f"A title has at most {MAX_TITLE_LENGTH} characters.")


def _check_words(command: Send) -> None:
    _check_text(command.input_id, "input_id")
    content = command.content
    if not (content.strip() if isinstance(content, str) else content):
        raise SessionRefused("BAD_ARGUMENT", "The message is empty.")
    if command.delivery not in (None, "queue", "steer"):
        raise SessionRefused("BAD_ARGUMENT", f"There is no delivery {command.delivery!r}.")
    if command.client_msg_id is not None and not 0 < len(command.client_msg_id) <= MAX_ID_LENGTH:
        raise SessionRefused("BAD_ARGUMENT", f"A client_msg_id has 1 to {MAX_ID_LENGTH} characters.")


# ---------------------------------------------------------------- many commands, one commit


class Batch:
    """Commands that are committed together.

    Deltas of one block that follow each other become one event. They are joined here, before they are numbered,
    because the state and the log have to agree about numbers.
    """

    def __init__(self, state: SessionState) -> None:
        self.state = state
        """After everything in this batch. It is the session's state once the batch is committed, not before."""
        self._events: list[Logged] = []
        self._words: list[str] = []
        """What the last event of the batch says, when it is a delta."""

    def take(self, command: Command) -> tuple[AnyEffect, ...]:
        """Decide one more command; its effects are due after the commit. Raises `SessionRefused` without a change."""
        if type(command) is Report and self._words and (delta := self._continuation(command)) is not None:
            self._words.append(delta)
            return ()
        decision = decide(self.state, command)
        if decision.events:
            self._join()
            self._events.extend(decision.events)
            last = decision.events[-1].event
            if isinstance(last, AssistantTextDelta | ReasoningDelta):
                self._words = [last.delta]
        self.state = decision.state
        return decision.effects

    def events(self) -> tuple[Logged, ...]:
        """Everything to commit, in order."""
        self._join()
        return tuple(self._events)

    def _continuation(self, command: Report) -> str | None:
        """The words, when they go on where the last event stopped: it was accepted, so no decision is needed."""
        last, event = self._events[-1], command.event
        if (
            isinstance(event, AssistantTextDelta | ReasoningDelta)
            and isinstance(last.event, AssistantTextDelta | ReasoningDelta)
            and type(last.event) is type(event)
            and last.event.content_index == event.content_index
            and last.run_id == command.run_id
        ):
            return event.delta
        return None

    def _join(self) -> None:
        if len(self._words) > 1:
            last = self._events[-1]
            whole = msgspec.structs.replace(last.event, delta="".join(self._words))
            self._events[-1] = msgspec.structs.replace(last, event=whole)
        self._words = []
