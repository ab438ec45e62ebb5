"""Random commands, good and bad, with lost commits and restarts; what must hold is checked on the log alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.profiles import examples
from support.session_trials import MODEL_REF, arguments, asked, finished

from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.harness.base import ResumeRun, StartCompaction, StartRun
from makai.sessions import commands as cmd
from makai.sessions.engine import Batch, decide
from makai.sessions.history import history
from makai.sessions.state import SessionState, fold, packed, unpacked

call_ids = st.sampled_from(["c1", "c1#2", "c1#3", "c1#4", "c2", "c3"])
msg_ids = st.none() | st.sampled_from(["m1", "m2", "m3"])
deliveries: st.SearchStrategy[ev.Delivery | None] = st.sampled_from([None, "queue", "queue", "steer"])

anything: st.SearchStrategy[ev.SessionEvent] = st.one_of(
    st.builds(ev.TurnStarted, turn=st.integers(1, 6)),
    st.builds(ev.TurnEnded, turn=st.integers(1, 6), stop_reason=st.sampled_from(["end_turn", "error"])),
    st.builds(ev.AssistantText, content_index=st.just(0), text=st.just("words")),
    call_ids.map(lambda call_id: ev.ToolCalled(call_id=call_id, name="shell", arguments_json=arguments(call_id))),
    st.builds(asked, call_ids, deadline_ms=st.none() | st.integers(100_000, 120_000), grant=st.just("shell")),
    st.builds(
        ev.ApprovalDecided,
        call_id=call_ids,
        decision=st.sampled_from(["approve", "deny_continue", "deny_abort"]),
        by=st.just("rule"),
    ),
    st.builds(ev.ToolStarted, call_id=call_ids),
    st.builds(ev.ToolProgress, call_id=call_ids, text=st.just(".")),
    st.builds(finished, call_ids),
    st.builds(ev.Compacted, summary=st.just("so far"), through=st.integers(0, 300)),
    st.builds(ev.RunFinished, stop_reason=st.sampled_from(["end_turn", "max_turns", "aborted", "error"])),
    st.just(ev.RunFailed(code="provider_error", message="no")),
    st.just(ev.Notice(level="info", code="x", message="x")),
)


class Sessions(RuleBasedStateMachine):
    """One session, its log, its effects, and a clock that goes where it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[ev.Logged] = []
        self.effects: list[cmd.AnyEffect] = []
        self.state = SessionState()
        self.batch = Batch(self.state)
        self.inputs = 0
        self.now = 100_000
        self.do(cmd.Create(now=self.now, model_ref=MODEL_REF))
        self.send(None, None)

    # ------------------------------------------------------------ how commands get there

    def do(self, command: cmd.Command) -> None:
        before = self.state
        try:
            decision = decide(self.state, command)
        except SessionRefused:
            assert self.state == before
            return
        assert decision == decide(self.state, command), "the same state and command decide the same"
        self.log.extend(decision.events)
        self.effects.extend(decision.effects)
        self.state = decision.state

    def report(self, event: ev.SessionEvent) -> None:
        run = self.state.run
        self.do(cmd.Report(now=self.now, event=event, run_id=run.run_id if run else "none"))

    @rule(step=st.integers(-5_000, 20_000))
    def clock(self, step: int) -> None:
        self.now = max(0, self.now + step)
        self.do(cmd.TimePassed(now=self.now))

    # ------------------------------------------------------------ people

    @rule(msg_id=msg_ids, delivery=deliveries)
    def send(self, msg_id: str | None, delivery: ev.Delivery | None) -> None:
        self.inputs += 1
        self.do(
            cmd.Send(
                now=self.now,
                input_id=f"i{self.inputs}",
                content=f"words {self.inputs}",
                client_msg_id=msg_id,
                delivery=delivery,
            )
        )

    @rule(msg_id=msg_ids)
    def send_that_is_not_committed(self, msg_id: str | None) -> None:
        lost = cmd.Send(now=self.now, input_id="lost", content="lost", client_msg_id=msg_id, delivery="queue")
        try:
            decide(self.state, lost)
        except SessionRefused:
            return

    @rule(stale=st.booleans())
    def retry(self, stale: bool) -> None:
        run_id = "stale" if stale or self.state.run is None else self.state.run.run_id
        self.do(cmd.RetryRun(now=self.now, run_id=run_id, input_id=f"retry-{len(self.log)}"))

    @precondition(lambda self: self.state.waiting)
    @rule(place=st.integers(0, 5))
    def withdraw_what_waits(self, place: int) -> None:
        waiting = self.state.waiting
        self.withdraw(waiting[place % len(waiting)].input_id)

    @rule(number=st.integers(1, 12))
    def withdraw_anything(self, number: int) -> None:
        self.withdraw(f"i{number}")

    def withdraw(self, input_id: str) -> None:
        self.do(cmd.WithdrawInput(now=self.now, input_id=input_id))
        assert input_id not in {waiting.input_id for waiting in self.state.waiting}

    @precondition(lambda self: self.state.active_run is not None and self.state.active_run.pending())
    @rule(yes=st.booleans(), place=st.integers(0, 5))
    def answer_what_is_pending(self, yes: bool, place: int) -> None:
        pending = self.state.run.pending() if self.state.run else ()
        self.answer(pending[place % len(pending)].call_id, yes, "once")

    @rule(call_id=call_ids, yes=st.booleans(), scope=st.sampled_from(["once", "once", "session"]))
    def answer(self, call_id: str, yes: bool, scope: Any) -> None:
        kind = cmd.ApproveCall if yes else cmd.DenyCall
        self.do(kind(now=self.now, call_id=call_id, by="web", scope=scope))

    @rule(stale=st.booleans())
    def abort(self, stale: bool) -> None:
        self.do(cmd.Abort(now=self.now, run_id="stale" if stale else None))

    @rule(
        command=st.sampled_from(
            [
                cmd.SetMode(now=0, mode="plan"),
                cmd.SetModel(now=0, model_ref="acme/acme-chat@two"),
                cmd.SetTitle(now=0, title="t"),
                cmd.Archive(now=0, archived=True),
                cmd.Create(now=0, model_ref=MODEL_REF),
                cmd.Report(now=0, event=ev.Notice(level="info", code="x", message="x")),
                cmd.Compact(now=0, input_id=""),
            ]
        )
    )
    def settings_and_nonsense(self, command: cmd.Command) -> None:
        self.do(command)

    @rule()
    def compact(self) -> None:
        self.inputs += 1
        self.do(cmd.Compact(now=self.now, input_id=f"i{self.inputs}"))

    @precondition(lambda self: len(self.log) > 60)
    @rule()
    def close(self) -> None:
        self.do(cmd.Close(now=self.now))

    # ------------------------------------------------------------ the server

    @rule(can_resume=st.booleans(), from_bytes=st.booleans())
    def restart(self, can_resume: bool, from_bytes: bool) -> None:
        self.state = unpacked(packed(self.state)) if from_bytes else fold(self.log)
        before = self.state.active_run
        self.do(cmd.Recovered(now=self.now, can_resume=can_resume))
        if before is None:
            return
        started = {call.call_id for call in before.calls.values() if call.status == "started"}
        results = [logged.event for logged in self.log if isinstance(logged.event, ev.ToolFinished)]
        assert started <= {result.call_id for result in results if result.interrupted}
        after = self.state.active_run
        if after is not None and after.run_id == before.run_id:
            assert can_resume
            assert after.pending() == before.pending()

    @rule(count=st.integers(1, 4), then_abort=st.booleans())
    def words_in_a_batch(self, count: int, then_abort: bool) -> None:
        batch = Batch(self.state)
        delta = ev.AssistantTextDelta(content_index=0, delta="x")
        run_id = self.state.run.run_id if self.state.run else "none"
        commands: list[cmd.Command] = [cmd.Report(now=self.now, event=delta, run_id=run_id)] * count
        for command in [*commands, *([cmd.Abort(now=self.now)] if then_abort else []), *commands]:
            try:
                self.effects.extend(batch.take(command))
            except SessionRefused:
                continue
        self.log.extend(batch.events)
        self.state = batch.state

    # ------------------------------------------------------------ agents, well-behaved and not

    @precondition(lambda self: self.state.active_run is not None)
    @rule(choices=st.lists(st.integers(0, 50), min_size=1, max_size=8))
    def works(self, choices: list[int]) -> None:
        """An agent does what agents do."""
        for choice in choices:
            sensible = self.sensible()
            if sensible:
                self.report(sensible[choice % len(sensible)])

    @precondition(lambda self: self.state.active_run is not None)
    @rule(choices=st.lists(st.integers(0, 50), min_size=4, max_size=8))
    def works_on(self, choices: list[int]) -> None:
        self.works(choices)

    def sensible(self) -> list[ev.SessionEvent]:
        """What an agent might report next; it is too hasty at times."""
        run = self.state.active_run
        if run is None:
            return []
        if run.turn_open:
            fresh = self.state.fresh_call_id("c1")
            return [
                ev.ToolCalled(call_id=fresh, name="shell", arguments_json=arguments(fresh)),
                ev.TurnEnded(turn=run.turn, stop_reason="tool_use" if run.calls else "end_turn"),
                ev.AssistantTextDelta(content_index=0, delta="x"),
                ev.AssistantText(content_index=0, text="words"),
            ]
        steps: list[ev.SessionEvent] = []
        for call in run.calls.values():
            if call.status == "called":
                deadline = self.now + 10_000 if len(steps) % 2 else None
                steps += [
                    asked(call.call_id, deadline_ms=deadline, grant="shell"),
                    ev.ToolStarted(call_id=call.call_id),
                ]
            elif call.status in ("approved", "pending"):
                steps.append(ev.ToolStarted(call_id=call.call_id))
            else:
                steps.append(finished(call.call_id))
        if run.purpose == "compaction":
            return [ev.RunFinished(stop_reason="end_turn"), ev.Compacted(summary="so far", through=run.last_event_id)]
        steps.append(ev.TurnStarted(turn=run.turn + 1))
        if not run.calls:
            steps += [ev.TurnStarted(turn=run.turn + 1)] * 2
            steps += [ev.UserInput(input_id=waiting.input_id, content="forged") for waiting in self.state.waiting]
            steps += [ev.RunFinished(stop_reason="end_turn"), ev.Compacted(summary="so far", through=run.last_event_id)]
        return steps

    @rule(event=anything)
    def says_anything(self, event: ev.SessionEvent) -> None:
        self.report(event)

    @rule()
    def reads_words_again(self) -> None:
        for logged in self.log[-20:]:
            if isinstance(logged.event, ev.UserInput | ev.InputAccepted):
                self.report(ev.UserInput(input_id=logged.event.input_id, content="forged"))

    @rule()
    def an_old_run_speaks(self) -> None:
        runs = [logged.run_id for logged in self.log if isinstance(logged.event, ev.RunStarted)]
        for run_id in runs[:-1]:
            for event in (ev.AssistantText(content_index=0, text="late"), ev.RunFinished(stop_reason="end_turn")):
                before = len(self.log)
                self.do(cmd.Report(now=self.now, event=event, run_id=run_id))
                assert len(self.log) == before

    # ------------------------------------------------------------ what must hold

    @invariant()
    def the_log_is_the_state(self) -> None:
        assert fold(self.log) == self.state

    @invariant()
    def numbers_have_no_gaps_and_time_does_not_decrease(self) -> None:
        assert [logged.event_id for logged in self.log] == list(range(1, len(self.log) + 1))
        times = [logged.ts for logged in self.log]
        assert times == sorted(times)

    @invariant()
    def runs_begin_and_end_once_and_never_overlap(self) -> None:
        active: str | None = None
        over: set[str] = set()
        for logged in self.log:
            if isinstance(logged.event, ev.RunStarted):
                assert active is None
                active = logged.run_id
                assert active is not None
            elif logged.run_id is not None:
                assert logged.run_id == active
            assert logged.run_id not in over
            if isinstance(logged.event, ev.RunFinished | ev.RunFailed):
                assert active is not None
                over.add(active)
                active = None
        assert (self.state.active_run.run_id if self.state.active_run else None) == active

    @invariant()
    def statuses_follow_document_002(self) -> None:
        allowed = {
            "starting": {"running", "aborting", "finished", "error"},
            "running": {"awaiting_approval", "aborting", "finished", "error"},
            "awaiting_approval": {"running", "aborting", "finished", "error"},
            "aborting": {"finished"},
        }
        status = "idle"
        for logged in self.log:
            if isinstance(logged.event, ev.RunStarted):
                status = "idle"
            elif isinstance(logged.event, ev.RunStatusChanged):
                assert logged.event.status in allowed.get(status, {"starting"})
                status = logged.event.status

    @invariant()
    def a_run_waits_for_people_when_a_call_does(self) -> None:
        run = self.state.active_run
        if run is not None:
            assert bool(run.pending()) == (run.status == "awaiting_approval")
            cancelled = {effect.run_id for effect in self.effects if isinstance(effect, cmd.CancelRun)}
            assert run.status != "aborting" or run.run_id in cancelled

    @invariant()
    def calls_live_once(self) -> None:
        seen: Counter[tuple[str, str]] = Counter()
        pending: set[str] = set()
        for logged in self.log:
            match logged.event:
                case ev.ToolCalled(call_id=call_id):
                    seen["called", call_id] += 1
                case ev.ApprovalRequested(call_id=call_id):
                    assert not seen["started", call_id]
                    seen["asked", call_id] += 1
                    pending.add(call_id)
                case ev.ApprovalDecided(call_id=call_id, decision=decision, by=by):
                    if call_id in pending and decision == "approve":
                        assert by == "web", "only people approve what people were asked"
                    seen["decided", call_id] += 1
                    seen[decision, call_id] += 1
                    pending.discard(call_id)
                case ev.ToolStarted(call_id=call_id):
                    assert call_id not in pending
                    assert not seen["deny_continue", call_id]
                    assert not seen["deny_abort", call_id]
                    assert not seen["finished", call_id]
                    seen["started", call_id] += 1
                case ev.ToolFinished(call_id=call_id):
                    assert call_id not in pending
                    seen["finished", call_id] += 1
                case ev.RunFinished() | ev.RunFailed():
                    assert not pending
                case ev.TurnStarted():
                    called = {call_id for what, call_id in seen if what == "called"}
                    assert all(seen["finished", call_id] for call_id in called)
        assert set(seen.values()) <= {0, 1}

    @invariant()
    def effects_happen_at_most_once(self) -> None:
        tools = Counter(effect.call_id for effect in self.effects if isinstance(effect, cmd.RunTool))
        starts = Counter(effect.run_id for effect in self.effects if isinstance(effect, StartRun | StartCompaction))
        assert set(tools.values()) | set(starts.values()) <= {1}
        runs = {logged.run_id for logged in self.log if isinstance(logged.event, ev.RunStarted)}
        assert set(starts) == runs
        assert {effect.run_id for effect in self.effects if isinstance(effect, ResumeRun)} <= runs

    @invariant()
    def messages_are_taken_once_and_keep_their_order(self) -> None:
        said = [logged.event for logged in self.log if isinstance(logged.event, ev.UserInput)]
        taken = [logged.event for logged in self.log if isinstance(logged.event, ev.InputAccepted)]
        assert all(message.content != "forged" for message in said)
        assert set(Counter(message.input_id for message in said).values()) <= {1}
        ids = [(m.client_msg_id, m.input_id) for m in said] + [(t.client_msg_id, t.input_id) for t in taken]
        inputs_of = Counter(msg_id for msg_id, _ in set(ids) if msg_id is not None)
        assert set(inputs_of.values()) <= {1}
        withdrawn = [logged.event.input_id for logged in self.log if isinstance(logged.event, ev.InputWithdrawn)]
        assert len(withdrawn) == len(set(withdrawn))
        assert not set(withdrawn) & {message.input_id for message in said}
        taken = [event for event in taken if event.input_id not in withdrawn]
        for delivery in ("queue", "steer"):
            order = [event.input_id for event in taken if event.delivery == delivery]
            spoken = [message.input_id for message in said if message.input_id in order]
            assert spoken == order[: len(spoken)]
        assert [waiting.input_id for waiting in self.state.waiting] == [
            event.input_id for event in taken if event.input_id not in {message.input_id for message in said}
        ]

    @invariant()
    def the_conversation_can_be_read_from_where_it_was_compacted(self) -> None:
        rest = [logged for logged in self.log if logged.event_id > self.state.compacted_through]
        assert history(rest).messages() == history(self.log).messages()

    def teardown(self) -> None:
        """Whatever happened, one abort ends it."""
        if self.state.closed:
            return
        while self.state.active_run is not None:
            self.do(cmd.Abort(now=self.now))
            self.report(ev.RunFinished(stop_reason="aborted"))
        assert self.state.waiting == ()
        assert isinstance(self.log[-1].event, ev.RunFinished) or self.state.run is None or self.state.run.settled


TestSessions = pytest.mark.proof("E2")(Sessions.TestCase)
TestSessions.settings = settings(examples(150), stateful_step_count=50)
