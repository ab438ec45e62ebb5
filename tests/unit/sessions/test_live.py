"""One live session: what is acknowledged is durable, what is not durable is not claimed, and every run ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest
from support.troubled_log import TroubledLog, once

from makai.aio.tasks import BackgroundTasks
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import SessionRefused, StorageUnavailable
from makai.harness.base import RunPort, RunStart, Settlement
from makai.harness.client_tools import ToolExecutors
from makai.harness.registry import UnknownHarness
from makai.sessions.commands import Abort, ApproveCall, Create, Send, SetTitle, TimePassed
from makai.sessions.live import LiveSession
from makai.sessions.log.base import Claim, replay
from makai.sessions.run_port import SessionRunPort
from makai.sessions.state import SessionState

SESSION = "session"


class Stage(UnknownHarness):
    """A live session whose runs do what the test says."""

    def __init__(self, work: Callable[[LiveSession, SessionRunPort], Awaitable[Settlement]]) -> None:
        super().__init__("staged", ())
        self.log = TroubledLog()
        self.tasks = BackgroundTasks()
        self.now = 1_000
        self.work = work
        execute = ToolExecutors().execute
        self.session = LiveSession(
            SESSION, SessionState(), self.log, lambda name: self, self.tasks, lambda: self.now, execute, Claim(1)
        )

    async def run(self, port: RunPort, start: RunStart) -> Settlement:  # type: ignore[override]
        assert isinstance(port, SessionRunPort)
        return await self.work(self.session, port)

    async def begin(self) -> None:
        await self.session.submit(Create(now=self.now, model_ref="m"))
        await self.session.submit(Send(now=self.now, input_id="i1", content="Hi"))

    async def until_settled(self) -> ev.SessionEvent:
        """How the run ended; within a bound, for a run that never ends is what these tests are about."""
        await self.until(lambda state: state.active_run is None)
        return (await self.events())[-1]

    async def failure(self) -> str:
        """The code that the run failed with, from its beginning to its end."""
        await self.begin()
        settled = await self.until_settled()
        assert isinstance(settled, ev.RunFailed)
        return settled.code

    async def until(self, wanted: Callable[[SessionState], bool]) -> None:
        """Returns when the session is in such a state."""
        news = asyncio.Event()
        unwatch = self.log.watch(SESSION, news.set)
        async with asyncio.timeout(60):
            while not wanted(self.session.state):
                news.clear()
                await news.wait()
        unwatch()

    async def events(self) -> list[ev.SessionEvent]:
        return [logged.event async for logged in replay(self.log, SESSION) if isinstance(logged, ev.Logged)]


def asked(call_id: str, deadline_ms: int | None = None) -> ev.ApprovalRequested:
    return ev.ApprovalRequested(call_id=call_id, name="shell", arguments_json="{}", digest="d", deadline_ms=deadline_ms)


async def question(session: LiveSession, port: SessionRunPort, deadline_ms: int | None = None) -> ev.ApprovalDecided:
    """A turn with one call about which a person is asked."""
    await session.report(port.run_id, ev.TurnStarted(turn=1))
    await session.report(port.run_id, ev.ToolCalled(call_id="c1", name="shell", arguments_json="{}"))
    await session.report(port.run_id, ev.TurnEnded(turn=1, stop_reason="tool_use"))
    answer = port.question("c1")
    await session.report(port.run_id, asked("c1", deadline_ms))
    return await answer


async def ends(session: LiveSession, port: SessionRunPort) -> Settlement:
    return ev.RunFinished(stop_reason="end_turn")


async def test_a_run_of_which_something_could_not_be_kept_has_failed_and_does_not_claim_otherwise() -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        await session.report(port.run_id, ev.TurnStarted(turn=1))
        await session.submit(TimePassed(now=0))
        stage.log.gate.clear()
        await session.report(port.run_id, ev.AssistantText(content_index=0, text="the answer"))
        await stage.log.until_appending(ev.AssistantText)
        # These wait behind the append that fails, and the run ends before anyone knows.
        await session.report(port.run_id, ev.TurnEnded(turn=1, stop_reason="end_turn"))
        asyncio.get_running_loop().call_later(0.01, stage.log.gate.set)
        return ev.RunFinished(stop_reason="end_turn")

    stage = Stage(work)
    stage.log.refuses = once(lambda event: isinstance(event, ev.AssistantText))
    assert await stage.failure() == "storage_unavailable"
    assert not any(isinstance(event, ev.AssistantText) for event in await stage.events())


async def test_a_question_that_could_not_be_kept_does_not_wait_for_an_answer() -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        await question(session, port)
        raise AssertionError("the question was not kept")

    stage = Stage(work)
    stage.log.refuses = once(lambda event: isinstance(event, ev.ApprovalRequested))
    assert await stage.failure() == "storage_unavailable"


async def test_an_event_that_no_log_can_hold_fails_its_run_and_no_other() -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        await session.report(port.run_id, ev.TurnStarted(turn=1))
        await session.submit(TimePassed(now=0))
        stage.log.gate.clear()
        await session.report(port.run_id, ev.AssistantText(content_index=0, text="first"))
        await stage.log.until_appending(ev.AssistantText)
        await session.report(port.run_id, ev.AssistantText(content_index=1, text="\udc80 is no text"))
        renamed.append(asyncio.ensure_future(session.submit(SetTitle(now=1, title="Ours"))))
        await asyncio.sleep(0)
        stage.log.gate.set()
        await asyncio.Event().wait()
        raise AssertionError

    renamed: list[asyncio.Future[object]] = []
    stage = Stage(work)
    assert await stage.failure() == "invalid_request"
    await renamed[0]
    assert stage.session.state.title == "Ours"


class Unusual(BaseException):
    """Neither an error nor a cancellation."""


async def test_a_run_that_ends_in_something_unusual_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        raise Unusual

    stage = Stage(work)
    assert await stage.failure() == "internal_error"
    assert "Unusual" in caplog.text


async def test_an_abort_in_the_same_commit_as_the_start_of_the_run_ends_it() -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        await asyncio.Event().wait()
        raise AssertionError

    stage = Stage(work)
    await stage.session.submit(Create(now=1, model_ref="m"))
    stage.log.gate.clear()
    title = asyncio.ensure_future(stage.session.submit(SetTitle(now=1, title="t")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sent = asyncio.ensure_future(stage.session.submit(Send(now=1, input_id="i1", content="Hi")))
    aborted = asyncio.ensure_future(stage.session.submit(Abort(now=1)))
    await asyncio.sleep(0)
    stage.log.gate.set()
    await asyncio.gather(title, sent, aborted)
    assert await stage.until_settled() == ev.RunFinished(stop_reason="aborted")


async def test_a_question_runs_out_although_the_clock_went_backwards_meanwhile() -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        decided = await question(session, port, deadline_ms=stage.now + 50)
        await session.report(
            port.run_id, ev.ToolFinished(call_id="c1", content=(Text(text=decided.reason),), is_error=True)
        )
        return ev.RunFinished(stop_reason="end_turn")

    stage = Stage(work)
    await stage.begin()
    await stage.until(lambda state: state.next_deadline() is not None)
    stage.now -= 30  # when the alarm rings it is too early
    asyncio.get_running_loop().call_later(0.1, lambda: setattr(stage, "now", 2_000))
    assert await stage.until_settled() == ev.RunFinished(stop_reason="end_turn")


async def test_a_question_that_is_withdrawn_in_the_moment_of_its_decision_stays_decided() -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        asking = asyncio.ensure_future(question(session, port))
        await session.submit(TimePassed(now=0))
        await stage.until(lambda state: state.active_run is not None and state.active_run.pending() != ())
        approving = asyncio.ensure_future(session.submit(ApproveCall(now=stage.now, call_id="c1", by="me")))
        await asyncio.sleep(0)
        session.withdraw(port.run_id, "c1", "The time of the run is up.")
        await approving
        assert (await asking).decision == "approve"
        await session.report(port.run_id, ev.ToolFinished(call_id="c1", content=(), is_error=True))
        return ev.RunFinished(stop_reason="max_turns")

    stage = Stage(work)
    await stage.begin()
    assert await stage.until_settled() == ev.RunFinished(stop_reason="max_turns")


async def test_what_waits_for_its_commit_when_the_process_closes_is_committed_and_acknowledged() -> None:
    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        raise AssertionError("the process is closing")

    stage = Stage(work)
    await stage.session.submit(Create(now=1, model_ref="m"))
    stage.log.gate.clear()
    titled = asyncio.ensure_future(stage.session.submit(SetTitle(now=1, title="one")))
    await stage.log.until_appending(ev.TitleChanged)
    sent = asyncio.ensure_future(stage.session.submit(Send(now=1, input_id="i1", content="Hi")))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(stage.tasks.close(10))
    await asyncio.sleep(0)
    stage.log.gate.set()
    async with asyncio.timeout(60):
        await asyncio.gather(titled, sent, closing)
    assert stage.session.state.title == "one"
    with pytest.raises(StorageUnavailable):
        async with asyncio.timeout(60):
            await stage.session.submit(SetTitle(now=1, title="two"))


async def test_a_session_whose_end_of_run_cannot_be_stored_yet_is_in_use() -> None:
    stage = Stage(ends)
    stage.log.refuses = once(lambda event: isinstance(event, ev.RunFinished))
    await stage.begin()
    await stage.log.until_appending(ev.RunFinished)
    async with asyncio.timeout(60):
        while stage.session._committer is not None:
            await asyncio.wait({stage.session._committer})
    assert not stage.session.is_idle  # or another one would be loaded beside it
    assert await stage.until_settled() == ev.RunFinished(stop_reason="end_turn")


async def test_a_run_that_is_settled_leaves_the_session_idle() -> None:
    stage = Stage(ends)
    await stage.begin()
    await stage.until_settled()
    await stage.tasks.close(5)
    assert stage.session.is_idle
    assert stage.session.port is None


class Connection:
    """Something that a caller of a session has."""


async def refused_caller(session: LiveSession) -> weakref.ref[Connection]:
    connection = Connection()
    with pytest.raises(SessionRefused):
        await session.submit(Send(now=1_000, input_id="i1", content="Hi"))
    return weakref.ref(connection)


async def test_a_refused_command_leaves_nothing_of_its_caller_in_memory() -> None:
    """The refusal has the frames of the caller that waited for it, and with them a connection."""

    async def work(session: LiveSession, port: SessionRunPort) -> Settlement:
        raise AssertionError("there is no run")

    session = Stage(work).session
    caller = await refused_caller(session)
    async with asyncio.timeout(60):
        while caller() is not None:
            await asyncio.sleep(0)  # the task that refused it is about to end
            gc.collect()
