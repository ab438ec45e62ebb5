"""The rules of a session: decides what a command leads to in the state the session is in.

A `Decision` is numbered events, the state after them and the effects to carry out. There is no I/O, clock or random id
here: the same state and command always decide the same, in every process. The events of one decision are committed
all or none, then published, then the effects are carried out; a decision whose commit failed is dropped.

    send ─► starting ─► running ◄─► awaiting_approval
                │          │               │
                └──────────┴───── abort ───┴─► aborting ─► finished
                           └─► finished | error

A run ends in `run_status`, then `run_finished` or `run_failed`, and nothing of it follows. When it has settled, the
first waiting input starts the next run. The rules for what agents report are in `reports`. What an agent can do is in
the state (`capabilities`); no rule knows a harness by its name.
"""

from __future__ import annotations

from typing import assert_never, get_args

import msgspec

from makai.core import session_events as ev
from makai.core.content import Audio, Image
from makai.core.errors import SessionRefused
from makai.harness.base import ResumeRun, StartCompaction
from makai.sessions import commands as cmd
from makai.sessions.draft import Decision, Draft, OpenTextsOf
from makai.sessions.log.encoding import block_of
from makai.sessions.open_texts import OpenTexts
from makai.sessions.reports import report
from makai.sessions.restore_rules import check_not_restoring, restore_files
from makai.sessions.state import Run, SessionState, same_fields

MAX_WAITING = 100
MAX_ID_LENGTH = 256
MAX_TITLE_LENGTH = 500
MAX_RESUMES = 3
"""A run that ends the server each time it is resumed fails after so many times."""
MAKERS = frozenset({"", "run"})
"""What a session can be made by (`session_created.made_by`)."""
ENGINE_NAMES = frozenset({"rule", "mode", "deadline", "abort", "run_ended"})
"""Reserved: deciders of approvals that are not clients."""


def decide(state: SessionState, command: cmd.Command, open_texts: OpenTextsOf = tuple) -> Decision:
    """What the command leads to. Raises `SessionRefused` when it is refused: then nothing has changed."""
    draft = Draft(state, command.now, open_texts)
    match command:
        case cmd.Report():
            _check_open(state)
            report(draft, command)
        case cmd.Create():
            _create(draft, command)
        case cmd.Send():
            _send(draft, command)
        case cmd.WithdrawInput():
            _withdraw(draft, command)
        case cmd.ApproveCall() | cmd.DenyCall():
            _answer(draft, command)
        case cmd.Abort():
            _abort(draft, command)
        case cmd.SetMode() | cmd.SetModel() | cmd.SetHarness() | cmd.SetTitle() | cmd.SetTerms():
            _set(draft, command)
        case cmd.Compact():
            _compact(draft, command)
        case cmd.Archive(archived=archived):
            _archive(draft, archived)
        case cmd.Close():
            _close(draft, command)
        case cmd.RestoreFiles() | cmd.SettleRestore():
            restore_files(draft, command)
        case cmd.TimePassed():
            _deny_what_ran_out(draft)
        case cmd.Recovered():
            _recover(draft, command)
        case _:
            assert_never(command)
    return draft.decision()


def _check_known(state: SessionState) -> None:
    if state.last_event_id == 0:
        raise SessionRefused("UNKNOWN_SESSION", "There is no such session.")


def _check_open(state: SessionState) -> None:
    _check_known(state)
    if state.closed:
        raise SessionRefused("SESSION_CLOSED", "The session is closed.", hint="Fork it to continue.")


def _create(draft: Draft, command: cmd.Create) -> None:
    if draft.state.last_event_id != 0:
        raise SessionRefused("SESSION_EXISTS", "There is a session of this id already.")
    if command.capabilities.needs_model:
        _check_text(command.model_ref, "model_ref")
    _check_mode(command.mode)
    _check_title(command.title)
    if command.made_by not in MAKERS:
        raise SessionRefused("BAD_ARGUMENT", f"made_by is one of {sorted(MAKERS)}.")
    if (command.forked_from is None) != (command.forked_at is None) or (command.forked_at or 0) < 0:
        raise SessionRefused("BAD_ARGUMENT", "A fork names the session it continues and the event it continues from.")
    draft.log(same_fields(command, ev.SessionCreated))


def _set(draft: Draft, command: cmd.Setting) -> None:
    """Change a setting; one that has this value already is no event."""
    state = draft.state
    _check_open(state)
    match command:
        case cmd.SetMode(mode=mode, agent_mode=agent_mode, token=token):
            _check_mode(mode)
            if agent_mode and agent_mode not in {offered.id for offered in (state.agent.modes if state.agent else ())}:
                raise SessionRefused("BAD_ARGUMENT", f"The agent offers no mode {agent_mode!r}.")
            if mode != state.mode and not state.capabilities.change_mode:
                raise SessionRefused("INVALID_COMMAND", "The agent of this session does not obey permission modes.")
            if mode != state.mode or agent_mode not in ("", state.agent_mode):
                draft.log(ev.ModeChanged(mode=mode, agent_mode=agent_mode, token=token))
        case cmd.SetModel(model_ref=model_ref):
            _check_text(model_ref, "model_ref")
            if not state.capabilities.change_model:
                raise SessionRefused("INVALID_COMMAND", "The agent of this session chooses its model itself.")
            models = {offered.id for offered in (state.agent.models if state.agent else ())}
            if not state.capabilities.needs_model and models and model_ref not in models:
                raise SessionRefused("BAD_ARGUMENT", f"The agent offers no model {model_ref!r}.")
            if model_ref != state.model_ref:
                draft.log(ev.ModelChanged(model_ref=model_ref))
        case cmd.SetHarness():
            _set_harness(draft, command)
        case cmd.SetTitle(title=title):
            _check_title(title)
            if title != state.title:
                draft.log(ev.TitleChanged(title=title))
        case cmd.SetTerms(terms=terms):
            if terms != state.terms:
                draft.log(ev.TermsChanged(terms=terms))
        case _:
            assert_never(command)


def _set_harness(draft: Draft, command: cmd.SetHarness) -> None:
    """Hand the session to another agent, between two runs."""
    state = draft.state
    if command.harness == state.harness:
        raise SessionRefused("INVALID_COMMAND", "This agent runs the session already.")
    if state.active_run is not None:
        raise SessionRefused("BUSY", "A run is active.", hint="Wait for it, or abort it first.")
    if command.capabilities.needs_model:
        _check_text(command.model_ref, "model_ref")
    draft.log(same_fields(command, ev.HarnessChanged))
    dropped = f" Not taken over: {'; '.join(command.dropped)}." if command.dropped else ""
    message = f"{command.harness.removeprefix('acp:')} runs this session from here on.{dropped}"
    draft.log(ev.Notice(level="info", code="agent_changed", message=message))
    if command.terms is not None and command.terms != state.terms:
        draft.log(ev.TermsChanged(terms=command.terms))


def _archive(draft: Draft, archived: bool) -> None:
    _check_known(draft.state)
    if archived != draft.state.archived:
        draft.log(ev.SessionArchived(archived=archived))


def _close(draft: Draft, command: cmd.Close) -> None:
    _check_open(draft.state)
    if draft.state.active_run is not None:
        raise SessionRefused("BUSY", "A run is active.", hint="Abort it first.")
    draft.log(ev.SessionClosed(reason=command.reason))


def _send(draft: Draft, command: cmd.Send) -> None:
    state = draft.state
    if command.client_msg_id is not None and command.client_msg_id in state.client_msg_ids:
        return  # also while the session is busy, and after it was closed
    _check_open(state)
    check_not_restoring(state)
    _check_input(state, command)
    if state.active_run is None:
        _archive(draft, False)
        if command.continues:
            draft.answer_history(command)
        else:
            draft.start_run(command.input_id, command.content, command.client_msg_id, command.terms, command.history)
        return
    if command.delivery is None or command.history or command.continues:
        raise SessionRefused("BUSY", "A run is active.", hint="Wait for it, abort it, or queue the message.")
    if len(state.waiting) >= MAX_WAITING:
        raise SessionRefused("BUSY", f"{MAX_WAITING} messages are waiting already.")
    if any(waiting.input_id == command.input_id for waiting in state.waiting):
        raise SessionRefused("BAD_ARGUMENT", f"An input of id {command.input_id!r} is waiting already.")
    _archive(draft, False)
    draft.log(same_fields(command, ev.InputAccepted))
    run = state.active_run
    if command.delivery == "steer" and state.capabilities.steer and run.status != "aborting" and run.purpose == "input":
        draft.effect(cmd.Steer(run_id=run.run_id, input_id=command.input_id, content=command.content))


def _withdraw(draft: Draft, command: cmd.WithdrawInput) -> None:
    state = draft.state
    _check_open(state)
    waiting = next((other for other in state.waiting if other.input_id == command.input_id), None)
    if waiting is None:
        raise SessionRefused(
            "INPUT_NOT_WAITING",
            "No such message is waiting: the agent has started on it, it was taken back already, or there is none.",
        )
    if waiting.delivery == "steer" and state.capabilities.steer and not state.capabilities.has_turns:
        # An agent without turns is given such input at once, and says only later that it has read it.
        raise SessionRefused("INPUT_NOT_WAITING", "The agent was given this message already.", hint="Stop the run.")
    draft.log(same_fields(command, ev.InputWithdrawn))


def _compact(draft: Draft, command: cmd.Compact) -> None:
    _check_open(draft.state)
    check_not_restoring(draft.state)
    _check_text(command.input_id, "input_id")
    if not draft.state.capabilities.compact:
        raise SessionRefused("INVALID_COMMAND", "The agent of this session compacts its conversation itself.")
    if draft.state.active_run is not None:
        raise SessionRefused("BUSY", "A run is active.", hint="It compacts by itself when it has to.")
    if draft.state.run_counter == 0 and draft.state.forked_from is None:
        raise SessionRefused("INVALID_COMMAND", "There is nothing to compact.")
    run_id = draft.log_run_start(command.input_id, "compaction")
    draft.effect(StartCompaction(run_id=run_id, instructions=command.instructions, model_ref=draft.state.model_ref))


def _abort(draft: Draft, command: cmd.Abort) -> None:
    _check_open(draft.state)
    run = draft.state.active_run
    if run is None:
        raise SessionRefused("NOT_RUNNING", "No run is active.")
    if command.run_id is not None and command.run_id != run.run_id:
        raise SessionRefused("STALE_RUN_ID", f"Run {command.run_id!r} is not the active one.")
    if run.status == "aborting":
        return  # the first abort counts
    draft.log_abort(run.run_id, command.by, command.reason, command.token)
    for call in run.pending():
        draft.decide_call(run.run_id, ev.ApprovalDecided(call_id=call.call_id, decision="deny_abort", by="abort"))
    draft.effect(cmd.CancelRun(run_id=run.run_id))


def _recover(draft: Draft, command: cmd.Recovered) -> None:
    """No run of the log is active after a restart. Closed sessions have nothing to recover."""
    run = draft.state.active_run
    if run is None:
        draft.start_waiting()
    elif run.status == "aborting":
        draft.settle(run, ev.RunFinished(stop_reason="aborted"))
    elif (
        command.can_resume
        and run.purpose == "input"
        and run.resumes < MAX_RESUMES
        # A log that was cut by a repair may hold a run whose last status is there and whose settlement is not.
        and run.status not in ("finished", "error")
    ):
        _resume(draft, run)
    else:
        draft.settle(run, ev.RunFailed(code="interrupted", message="The server ended during this run."))


def _resume(draft: Draft, run: Run) -> None:
    """End calls whose tool had started: what it did is unknown. Pending approvals stay pending, unless they were the
    agent process's own: it asks again."""
    if run.turn_open:
        # Calls are whole when they are logged, so an answer that was cut off after one still is an answer.
        draft.log(ev.TurnEnded(turn=run.turn, stop_reason="tool_use" if run.turn_has_calls else "error"), run.run_id)
    for call in run.calls.values():
        if draft.state.capabilities.own_approvals:
            draft.drop_call(run.run_id, call, "the server ended")
        elif call.status == "started":
            draft.finish_call(run.run_id, call, "The server ended while this tool ran; what it did is unknown.")
        elif run.turn_failed:
            draft.drop_call(run.run_id, call, "the model's answer broke off")
    draft.log(ev.RunResumed(), run.run_id)
    draft.effect(ResumeRun(run_id=run.run_id, model_ref=run.model_ref))
    draft.steer_waiting(run.run_id)


def _answer(draft: Draft, command: cmd.ApproveCall | cmd.DenyCall) -> None:
    _check_open(draft.state)
    if not command.by or command.by in ENGINE_NAMES or command.scope not in get_args(ev.GrantScope):
        raise SessionRefused("BAD_ARGUMENT", "A decision names its decider and its scope: once, session or always.")
    run = draft.state.active_run
    call = run.calls.get(command.call_id) if run else None
    if run is None or call is None or call.request is None or call.status != "pending":
        if command.call_id in draft.state.call_ids:
            raise SessionRefused("APPROVAL_CONFLICT", f"Call {command.call_id!r} does not wait for a decision.")
        raise SessionRefused("UNKNOWN_CALL_ID", f"There is no call {command.call_id!r}.")
    option = _chosen(call.request.options, command)
    if command.scope != "once" and not call.request.grant and option is None:
        raise SessionRefused("BAD_ARGUMENT", "This call can only be decided once: no rule would cover it.")
    if isinstance(command, cmd.ApproveCall) and command.digest not in (None, call.request.digest):
        raise SessionRefused("APPROVAL_CONFLICT", "The call's arguments are not those that were approved.")
    draft.decide_call(
        run.run_id,
        ev.ApprovalDecided(
            call_id=command.call_id,
            decision="approve" if isinstance(command, cmd.ApproveCall) else "deny_continue",
            by=command.by,
            reason=command.reason,
            scope=command.scope,
            grant=_chosen_grant(call.request, command) if command.scope != "once" else "",
            option_id="" if option is None else option.id,
            token=command.token,
        ),
    )


def _chosen_grant(asked: ev.ApprovalRequested, command: cmd.ApproveCall | cmd.DenyCall) -> str:
    """The rule that a decision sets. A client chooses among the offered ones, and cannot bring one of its own."""
    rule = command.grant or asked.grant
    offered = {each.rule: each for each in asked.grants}
    if rule != asked.grant and rule not in offered:
        raise SessionRefused("BAD_ARGUMENT", f"The rule {rule[:200]!r} was not offered for this call.")
    if command.scope == "always" and rule in offered and offered[rule].session_only:
        raise SessionRefused("BAD_ARGUMENT", f"The rule {rule[:200]!r} can be set for this session only.")
    return rule


def _chosen(
    options: tuple[ev.ApprovalOption, ...], command: cmd.ApproveCall | cmd.DenyCall
) -> ev.ApprovalOption | None:
    """The option of an external agent that the decision stands for; None when it offered none, or none to deny."""
    verb = "allow" if isinstance(command, cmd.ApproveCall) else "reject"
    fitting = [option for option in options if option.kind.startswith(verb)]
    if command.option_id:
        fitting = [option for option in fitting if option.id == command.option_id]
    else:
        wanted = f"{verb}_{'once' if command.scope == 'once' else 'always'}"
        fitting.sort(key=lambda option: option.kind != wanted)
    if not fitting and (command.option_id or (options and verb == "allow")):
        raise SessionRefused("BAD_ARGUMENT", f"The agent offers no such option: {[option.id for option in options]}.")
    return fitting[0] if fitting else None


def _deny_what_ran_out(draft: Draft) -> None:
    run = draft.state.active_run
    for call in run.pending() if run else ():
        deadline = call.request.deadline_ms if call.request else None
        if run is not None and deadline is not None and deadline <= draft.ts:
            denied = ev.ApprovalDecided(
                call_id=call.call_id, decision="deny_continue", by="deadline", reason="No decision came in time."
            )
            draft.decide_call(run.run_id, denied)


def _check_text(text: str, name: str) -> None:
    if not text.strip():
        raise SessionRefused("BAD_ARGUMENT", f"{name} is empty.")


def _check_mode(mode: str) -> None:
    if mode not in ev.MODES:
        raise SessionRefused("BAD_ARGUMENT", f"There is no mode {mode!r}.")


def _check_title(title: str) -> None:
    if len(title) > MAX_TITLE_LENGTH:
        raise SessionRefused("BAD_ARGUMENT", f"A title has at most {MAX_TITLE_LENGTH} characters.")


def _check_input(state: SessionState, command: cmd.Send) -> None:
    _check_text(command.input_id, "input_id")
    content = command.content
    if (command.history or command.continues) and not state.capabilities.needs_model:
        raise SessionRefused("INVALID_COMMAND", "The agent of this session keeps its conversation itself.")
    if command.continues:
        if content:
            raise SessionRefused("BAD_ARGUMENT", "A run that continues the conversation as it is has no input.")
    elif not (content.strip() if isinstance(content, str) else content):
        raise SessionRefused("BAD_ARGUMENT", "The message is empty.")
    for kind, is_taken in ((Image, state.capabilities.images), (Audio, state.capabilities.audio)):
        if not is_taken and not isinstance(content, str) and any(isinstance(part, kind) for part in content):
            raise SessionRefused("BAD_ARGUMENT", f"The agent of this session takes no {kind.__name__.lower()}.")
    if command.delivery not in (None, "queue", "steer"):
        raise SessionRefused("BAD_ARGUMENT", f"There is no delivery {command.delivery!r}.")
    if command.client_msg_id is not None and not 0 < len(command.client_msg_id) <= MAX_ID_LENGTH:
        raise SessionRefused("BAD_ARGUMENT", f"A client_msg_id has 1 to {MAX_ID_LENGTH} characters.")


class Batch:
    """Commands that are committed together. Consecutive deltas of one block become one event. They are joined here,
    before they are numbered, because the state and the log have to agree about numbers."""

    def __init__(self, state: SessionState, committed: OpenTexts | None = None) -> None:
        self._committed = OpenTexts() if committed is None else committed
        self.state = state
        """After everything in this batch. It is the session's state once the batch is committed, not before."""
        self.events: list[ev.Logged] = []
        self._block: tuple[object, ...] | None = None
        """The block of the last event, when that is a delta."""

    def take(self, command: cmd.Command) -> tuple[cmd.AnyEffect, ...]:
        """Decide one more command; its effects are due after the commit. Raises `SessionRefused` without a change."""
        block = None
        if isinstance(command, cmd.Report) and isinstance(command.event, ev.Delta):
            block, last = block_of(command.run_id, command.event), self.events[-1] if self.events else None
            if block == self._block and last is not None and isinstance(last.event, ev.Delta):
                # It continues one that was accepted: no decision is needed.
                whole = msgspec.structs.replace(last.event, delta=last.event.delta + command.event.delta)
                self.events[-1] = msgspec.structs.replace(last, event=whole)
                return ()
        decision = decide(self.state, command, lambda: self._committed.broken_off(self.events))
        if decision.events:
            self.events += decision.events
            self._block = block
        self.state = decision.state
        return decision.effects
