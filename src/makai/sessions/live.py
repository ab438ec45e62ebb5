"""A session that is in use: the one place where its commands are decided, committed, published and carried out.

Decisions are the engine's, durability is the log's, and how a run is carried out is its harness's; this module keeps
the order, in which nothing is published before it is logged:

    inbox ─► decide (all that waits, one batch) ─► append (wakes followers) ─► answer who asked ─► effects

While an append is under way the inbox fills, so the busier a session is the more one commit holds. Facts whose
durability no caller waits for are held for up to `WINDOW_S` after the previous commit ended; a command, a question or
the start of a tool is committed at once and takes them along. An idle session has no task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, assert_never

from makai.aio.cancellation import consume_exception
from makai.aio.tasks import BackgroundTasks
from makai.core import session_events as ev
from makai.core.errors import InvalidRequest, LogConflict, MakaiError, OwnershipLost, SessionRefused, StorageUnavailable
from makai.core.lent_variables import NO_CALLER, CallerVariables
from makai.core.secret import Secret
from makai.harness import base
from makai.sessions import commands as cmd
from makai.sessions.engine import MAX_WAITING, Batch, decide
from makai.sessions.inbox import Effects, Inbox, Order
from makai.sessions.loading import STATE_FORMAT
from makai.sessions.log.base import Checkpoint, Claim, EventLog, Pending
from makai.sessions.open_texts import OpenTexts
from makai.sessions.run_port import SessionRunPort
from makai.sessions.state import SessionState, evolve, packed

log = logging.getLogger(__name__)

MAX_PENDING: Final = 4_000
"""How many facts of a run may wait for their commit before the run waits too."""
ABORT_S: Final = 10.0
"""How long a cancelled run may take to clean up; then it is over, whatever its task still does."""
WINDOW_S: Final = 0.005
"""How long facts that no caller waits for are gathered, counted from the end of the previous commit."""
MAX_ENVIRONS: Final = 2 * MAX_WAITING
"""Inputs whose callers' variables are kept."""
CHECKPOINT_EVERY: Final = 1_000
MAX_SLEEP_S: Final = 30.0
"""How long an alarm is trusted: a computer that slept, or whose time was set, has another idea of how late it is."""
_RETRY_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_BROKEN: Final = ev.RunFailed(
    code="internal_error", message="The agent broke the order of events.", hint="Please report this."
)


class LiveSession:
    def __init__(
        self,
        session_id: str,
        state: SessionState,
        log: EventLog,
        harness_of: Callable[[str], base.SessionHarness],
        tasks: BackgroundTasks,
        clock: Callable[[], int],
        execute: Callable[[base.ToolRequest], Awaitable[base.ToolAnswer | None]],
        claim: Claim,
        checkpointed: int = 0,
    ) -> None:
        """`harness_of` finds the agent by its id, which can change; `execute` has a client execute a tool;
        `checkpointed` is the last event that a stored checkpoint covers."""
        self.session_id = session_id
        self.state = state
        """After everything that is committed."""
        self._open_texts = OpenTexts()
        """The same, of the run that this object carries out."""
        self.on_change: set[Callable[[], None]] = set()
        """Called when `state` has changed, which is a moment after the log has."""
        self.port: SessionRunPort | None = None
        """The port of the active run, or None when the session is idle."""
        self.deleted = False
        self.forgotten = False
        """Set when the owner dropped this object to make room; the session may be loaded again as another object."""
        self.stale: OwnershipLost | None = None
        """Set when another writer changed the log: this object is out of date, and the session is loaded again."""
        self.log = log
        self.claim = claim
        self.clock = clock
        self._harness_of = harness_of
        self.execute = execute
        self._tasks = tasks
        self._inbox = Inbox()
        self._committer: asyncio.Task[None] | None = None
        self._window: asyncio.TimerHandle | None = None
        """Starts the committer; set while the inbox holds only facts that can wait."""
        self._window_ends = 0.0
        self._room = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._supervisor: asyncio.Task[None] | None = None
        """Carries out the newest run."""
        self._checkpointed = checkpointed
        self._given_call_ids: set[str] = set()
        """In the active run."""
        self._environs: dict[str, CallerVariables] = {}
        """Variables of callers by the input that they came with; of a compaction by ""."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if the session were forgotten and read from the log again. A run that ended and
        is not yet in the log, because the disk is full, has still to be settled."""
        is_quiet = not self._inbox and self._committer is None
        is_quiet = is_quiet and self.state.restoring is None
        return is_quiet and self.port is None and self.state.active_run is None

    @property
    def is_closing(self) -> bool:
        """Whether this process lets go of the session; an active run is left for the next one to resume."""
        return self._tasks.closing

    def fresh_call_id(self, vendor_call_id: str) -> str:
        """An id for a call, unique also among those whose facts are still on their way to the log."""
        call_id = self.state.fresh_call_id(vendor_call_id, self._given_call_ids)
        self._given_call_ids.add(call_id)
        return call_id

    async def submit(self, command: cmd.Command, environ: Mapping[str, Secret] | None = None) -> Effects:
        """Have a command decided; returns when its events are durable. A cancelled caller does not take it back.
        `environ` are variables of the caller, for the run that the command starts."""
        if self.deleted:
            raise SessionRefused("UNKNOWN_SESSION", "The session was deleted.")
        if self.is_closing:
            raise StorageUnavailable("The session is being closed.", hint="Try again.")
        if self.stale:
            raise self.stale
        if isinstance(command, cmd.Send) and isinstance(self.harness, base.InputHarness):
            try:
                self.harness.check_input(self.state.model_ref, command.content)
            except InvalidRequest as error:
                raise SessionRefused("BAD_ARGUMENT", error.message, hint=error.hint) from None
        waiter: asyncio.Future[Effects] = asyncio.get_running_loop().create_future()
        input_id = command.input_id if isinstance(command, cmd.Send | cmd.RetryRun) else ""
        if environ:
            self._keep_environ(input_id, environ)
        self._put(Order(command, waiter))
        try:
            effects = await waiter
        except MakaiError:
            if environ:
                self._environs.pop(input_id, None)  # a refused command starts no run that could use them
            raise
        if isinstance(command, cmd.WithdrawInput):
            self._environs.pop(command.input_id, None)
        return effects

    def _keep_environ(self, input_id: str, environ: Mapping[str, Secret]) -> None:
        if len(self._environs) >= MAX_ENVIRONS:
            del self._environs[next(iter(self._environs))]  # of an input that an earlier run read while it was active
        self._environs[input_id] = CallerVariables(environ)

    async def report(self, run_id: str, event: ev.SessionEvent) -> None:
        """Take a fact of a run; it is durable soon. Waits only when too many are on their way. A process that lets go
        keeps nothing more: the next one resumes the run from what is in the log."""
        if self._tasks.closing:
            return
        self._check(run_id)
        self._inbox.put_report(self.clock(), run_id, event)
        self._wake_committer()
        while self._inbox.facts > MAX_PENDING:
            self._room.clear()
            await self._room.wait()

    def report_delta(self, run_id: str, event: ev.Delta) -> bool:
        """Take a delta of a run without waiting; False when `report` has to decide what becomes of it."""
        inbox = self._inbox
        if inbox.facts >= MAX_PENDING:
            return False
        # This runs for every word of a model: `encoding.block_of` written out, and no further call.
        if inbox.block == (type(event), run_id, event.content_index, event.parent_call_id):
            inbox.words.append(event.delta)
            inbox.facts += 1
            return True
        if self._tasks.closing or self.port is None or self.port.failure is not None:
            return False
        inbox.put_report(self.clock(), run_id, event)
        self._wake_committer()
        return True

    async def report_durably(self, run_id: str, event: ev.SessionEvent) -> Effects:
        """Take a fact of a run; returns what follows from it, once it is durable."""
        self._check(run_id)
        return await self.submit(cmd.Report(now=self.clock(), event=event, run_id=run_id))

    async def adopt(self, events: Sequence[Pending], *, is_last: bool) -> None:
        """Continue another session's log. Only before this session is known, and with nothing under way. A run that is
        active there ends here with the last of them, in one append: a process that finds the log, should this one die
        now, must not resume it and do a second time what is done there."""
        state = self.state
        for event in events:
            number, ts = state.last_event_id + 1, max(event.ts, state.last_ts)
            logged = ev.Logged(event_id=number, ts=ts, event=event.event, run_id=event.run_id)
            state = evolve(state, logged)
            self._open_texts.take((logged,))
        if is_last and state.active_run is not None:
            over = ev.RunFinished(stop_reason="aborted")
            report = cmd.Report(now=self.clock(), event=over, run_id=state.active_run.run_id)
            ending = decide(state, report, self._open_texts.broken_off)
            events = [*events, *(Pending(logged.ts, logged.run_id, logged.event) for logged in ending.events)]
            state = ending.state
        _, last = await self.log.append(self.session_id, events, self.state.last_event_id, self.claim.generation)
        if last != state.last_event_id:
            raise AssertionError("deltas are joined before they are copied")
        self.state = state

    def withdraw(self, run_id: str, call_id: str, reason: str) -> None:
        """Withdraw a question. One that was decided in this moment stays decided."""
        withdrawn = ev.ApprovalDecided(call_id=call_id, decision="deny_continue", by="agent", reason=reason)
        late: asyncio.Future[Effects] = asyncio.get_running_loop().create_future()
        late.add_done_callback(consume_exception)
        if not self.is_closing:
            self._put(Order(cmd.Report(now=self.clock(), event=withdrawn, run_id=run_id), late))

    def _port_of(self, run_id: str | None) -> SessionRunPort | None:
        return self.port if self.port is not None and self.port.run_id == run_id else None

    def _check(self, run_id: str) -> None:
        port = self.port
        if port is not None and port.failure is not None and port.run_id == run_id:
            raise port.failure

    def _put(self, order: Order) -> None:
        self._inbox.put(order)
        self._wake_committer()

    def _wake_committer(self) -> None:
        if self._inbox.has_urgent:
            self._end_window()
        if self._committer is None and self._window is None:
            self._start_committer()

    def _start_committer(self) -> None:
        """Commit now, or when the window of facts that can wait is over."""
        loop = asyncio.get_running_loop()
        remaining_s = self._window_ends - loop.time()
        if remaining_s > 0 and not self._inbox.has_urgent and not self.is_closing:
            self._window = loop.call_later(remaining_s, self._commit_now)
        else:
            self._commit_now()

    def _commit_now(self) -> None:
        self._end_window()
        if self._committer is None and self._inbox:
            work = self._commit_all()
            self._committer = self._tasks.start(work, f"makai-commit-{self.session_id}", may_finish=True)

    def _end_window(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None

    async def _commit_all(self) -> None:
        orders: list[Order] = []
        try:
            loop = asyncio.get_running_loop()
            while self._inbox and (self._inbox.has_urgent or self.is_closing or loop.time() >= self._window_ends):
                orders = self._inbox.take()
                await self._commit(orders)
                self._window_ends = loop.time() + WINDOW_S
                self._room.set()
        except BaseException:
            # The disk outlasted the patience of `close`, or there is a bug.
            for order in (*orders, *self._inbox.take_all()):
                self._refuse(order, StorageUnavailable("Whether this was stored is unknown.", hint="Look, then retry."))
            raise
        finally:
            self._committer = None
            self._room.set()
            if self._inbox:
                self._start_committer()

    async def _commit(self, orders: list[Order]) -> None:
        batch = Batch(self.state, self._open_texts)
        decided: list[tuple[Order, Effects]] = []
        for order in orders:
            try:
                if (failure := self._failure(order.command)) is not None:
                    self._refuse(order, failure)
                else:
                    decided.append((order, batch.take(order.whole())))
            except SessionRefused as error:
                self._refuse(order, error)
        if batch.events:
            pending = [Pending(logged.ts, logged.run_id, logged.event) for logged in batch.events]
            try:
                await self.log.append(self.session_id, pending, self.state.last_event_id, self.claim.generation)
            except MakaiError as error:
                await self._not_stored([order for order, _ in decided], error)
                return
            self.state = batch.state
            self._open_texts.take(batch.events)
            for tell in tuple(self.on_change):
                tell()
        for order, effects in decided:
            order.done(effects)
        for _, effects in decided:
            for effect in effects:
                if not self.deleted and not self.is_closing:
                    self._carry_out(effect)
        if batch.events:
            self._set_alarm()
            self.save_checkpoint_if_due()

    async def _not_stored(self, orders: list[Order], error: MakaiError) -> None:
        if isinstance(error, InvalidRequest) and len(orders) > 1:
            # One of them holds what no log can: the others must not suffer for it.
            half = len(orders) // 2
            await self._commit(orders[:half])
            await self._commit(orders[half:])
            return
        if self.deleted:
            error = SessionRefused("UNKNOWN_SESSION", "The session was deleted.")
        elif isinstance(error, LogConflict | OwnershipLost):
            error = self.lose(error)
        for order in orders:
            self._refuse(order, error)

    def lose(self, error: LogConflict | OwnershipLost) -> OwnershipLost:
        """Stop using this object. Whatever it runs is left as it is in the log, for the owner to resume."""
        log.error("session %s has another writer, and is read again: %s", self.session_id, error)
        if isinstance(error, LogConflict):
            hint = "It was read again. Look at its newest events, then try again."
            error = OwnershipLost("Another process changed this session; nothing was stored.", hint=hint)
        self.stale = error
        self._cancel_alarm()
        if self.port is not None:
            self.port.fail(error)
        for tell in tuple(self.on_change):
            tell()
        return error

    async def stopped(self) -> None:
        """Returns when no run of this object is under way any more."""
        if self._supervisor is not None:
            await asyncio.wait({self._supervisor}, timeout=2 * ABORT_S)

    def _failure(self, command: cmd.Command) -> MakaiError | None:
        """Why nothing more of this run is kept: after a hole in its log, only the news of its failure is."""
        port = self.port
        if port is None or port.failure is None or not isinstance(command, cmd.Report):
            return None
        return None if command.run_id != port.run_id or isinstance(command.event, ev.RunFailed) else port.failure

    def _refuse(self, order: Order, error: MakaiError) -> None:
        """Fail the waiting caller; a fact without one ends its run, because the log would have a hole."""
        if order.waiter is not None:
            order.fail(error)
        elif isinstance(order.command, cmd.Report):
            port = self._port_of(order.command.run_id)
            if port is not None and not port.failure:
                log.error("a fact of a run was refused: %s", error)
                port.fail(error)

    def save_checkpoint_if_due(self) -> None:
        """So that the next start need not read the whole log."""
        state = self.state
        is_due = state.last_event_id - self._checkpointed >= CHECKPOINT_EVERY
        if is_due and state.active_run is None and not self.deleted and not self.is_closing:
            self._checkpointed = state.last_event_id
            checkpoint = Checkpoint(event_id=state.last_event_id, format=STATE_FORMAT, data=packed(state))
            self._tasks.start(self.log.save_checkpoint(self.session_id, checkpoint), "makai-checkpoint")

    def _set_alarm(self) -> None:
        """Look again when the next approval runs out, or a little earlier."""
        self._cancel_alarm()
        deadline = self.state.next_deadline()
        if deadline is not None:
            seconds = min(max(deadline - self.clock(), 0) / 1000, MAX_SLEEP_S)
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._time_passed)

    def _time_passed(self) -> None:
        self._alarm = None
        deadline = self.state.next_deadline()
        if deadline is None or self.is_closing or self.deleted:
            return
        if deadline > self.clock():
            self._set_alarm()
        else:
            self._put(Order(cmd.TimePassed(now=self.clock())))

    def forget(self) -> None:
        """Stop the timers, because nothing more will be asked of this object; commit what was reported so far."""
        self.forgotten = True
        self._cancel_alarm()
        self._commit_now()

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _environ_of(self, start: base.RunStart) -> CallerVariables:
        """A resumed run has none: its caller was connected to the process before."""
        match start:
            case base.StartRun(input_id=input_id):
                return self._environs.pop(input_id, NO_CALLER)
            case base.StartCompaction():
                return self._environs.pop("", NO_CALLER)
            case base.ResumeRun():
                return NO_CALLER
            case _:
                assert_never(start)

    def _carry_out(self, effect: cmd.AnyEffect) -> None:
        port = self._port_of(effect.run_id)
        match effect:
            case base.StartRun() | base.ResumeRun() | base.StartCompaction():
                self.port = SessionRunPort(self, effect.run_id, self._environ_of(effect))
                self._given_call_ids.clear()
                work = self._supervise(self.port, effect)
                self._supervisor = self._tasks.start(work, f"makai-run-{effect.run_id}")
            case cmd.CancelRun() if port is not None:
                port.abort()
            case cmd.CancelRun():  # no task runs it: its end could not be logged in any way that was tried
                settle = self._settle(SessionRunPort(self, effect.run_id), ev.RunFinished(stop_reason="aborted"))
                self._tasks.start(settle, f"makai-settle-{effect.run_id}")
            case cmd.Steer():
                if port is not None:
                    port.steer(effect)
            case cmd.ResolveApproval():
                if port is not None:
                    port.resolve(effect)
            case cmd.RunTool():
                pass  # the task that reported the start waits for it, and runs the tool now
            case _:
                assert_never(effect)

    async def _supervise(self, port: SessionRunPort, start: base.RunStart) -> None:
        """Carry out a run and settle it, however it ends. When this process ends, it stays as it is in the log."""
        outcome: list[base.Settlement] = []
        work = self._tasks.start(self._run(port, start, outcome), f"makai-work-{port.run_id}")
        await port.until_stopped(work)
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=ABORT_S)
        if self._tasks.closing:
            return
        if not work.done():
            log.error("run %s ignores its cancellation and was left behind", port.run_id)
        try:
            await self._settle(port, outcome[0] if outcome else _unfinished(port))
        finally:
            if self.port is port:
                self.port = None

    @property
    def harness(self) -> base.SessionHarness:
        return self._harness_of(self.state.harness)

    async def _run(self, port: SessionRunPort, start: base.RunStart, outcome: list[base.Settlement]) -> None:
        try:
            outcome.append(await self.harness.run(port, start))
        except asyncio.CancelledError:
            if not port.is_aborted:
                raise
        except MakaiError as error:
            outcome.append(base.run_failed(error))
        except Exception as error:
            log.exception("a run failed unexpectedly")
            message = f"Internal error: {type(error).__name__}."
            outcome.append(ev.RunFailed(code="internal_error", message=message, hint="Please report this."))

    async def _settle(self, port: SessionRunPort, settlement: base.Settlement) -> None:
        """Have the end of a run logged, for as long as it takes: until then the session is busy."""
        attempt = 0
        while not self.stale:
            if port.failure is not None and settlement is not _BROKEN:
                settlement = base.run_failed(port.failure, settlement.usage)  # however well it thinks it ended
            try:
                await self.submit(cmd.Report(now=self.clock(), event=settlement, run_id=port.run_id))
                return
            except MakaiError as error:
                if error is port.failure:
                    continue  # what the run said before its end was lost while its end waited behind it
                if isinstance(error, StorageUnavailable):
                    log.warning("the end of run %s cannot be stored yet: %s", port.run_id, error)
                    await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
                    attempt += 1
                    continue
                if isinstance(error, SessionRefused) and error.code in ("UNKNOWN_SESSION", "SESSION_CLOSED"):
                    return
                log.error("the end of run %s was refused: %s", port.run_id, error)
                if settlement is _BROKEN:
                    return
                settlement = _BROKEN


def _unfinished(port: SessionRunPort) -> base.Settlement:
    """The end of a run that did not say how it ended."""
    if port.is_aborted or port.failure is not None:
        return ev.RunFinished(stop_reason="aborted")
    return ev.RunFailed(
        code="internal_error", message="The agent ended without an outcome.", hint="Please report this."
    )
