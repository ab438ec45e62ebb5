"""What comes at the same time, and what fails half-way: an owner's sessions are the same ones afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.live_sessions import SCENARIO_MODEL, Desk, decoded, desk, new_session, owned_sessions, refused, whole_log
from support.troubled_log import TroubledLog, once

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import LogDamaged, StorageUnavailable
from makai.core.messages import AssistantMessage
from makai.core.request import ToolDefinition
from makai.harness.base import ToolAnswer, ToolRequest
from makai.sessions import owner
from makai.sessions.commands import Abort, Compact, SetTitle
from makai.sessions.conversation import conversation
from makai.sessions.log.base import Checkpoint, LoggedEvent, Pending
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession, DeleteSession, ForkSession, GetState, ListSessions, RunCommand
from makai.sessions.state import fold

ENDLESS = "say: One.\npace: 2ms\nrepeat: 100000 word"
WEATHER = ToolDefinition(name="weather", description="The weather.", parameters_schema_json='{"type":"object"}')
ASKS_WEATHER = 'tool: weather {"city": "Oslo"}\n---\nsay: It is fine.'


@pytest.fixture
def log() -> TroubledLog:
    return TroubledLog()


async def test_requests_while_or_after_the_owner_closes_are_refused(tmp_path: Path) -> None:
    async with new_session(tmp_path, "echo", MemoryLog()) as (sessions, client):
        await sessions.close()
        for attempt in (client.send("Hi"), sessions.dispatch(CreateSession(model_ref=SCENARIO_MODEL))):
            with pytest.raises(StorageUnavailable):
                async with asyncio.timeout(60):
                    await attempt


async def test_a_session_whose_recovery_cannot_be_stored_is_recovered_by_the_next_request(
    log: TroubledLog, tmp_path: Path
) -> None:
    async with new_session(tmp_path, ENDLESS, log) as (_, client):
        await client.send("Go on")
        await client.until(lambda logged: len(client.seen) > 8)
    log.refuses = once(lambda event: isinstance(event, ev.RunResumed))
    async with owned_sessions(tmp_path, "say: Done.", log) as sessions:
        with pytest.raises(StorageUnavailable):
            await sessions.dispatch(GetState(client.session_id))
        again = Desk(sessions, client.session_id, after=len(client.seen))
        assert isinstance(await again.until_settled(), ev.RunFinished)


async def test_a_session_that_is_asked_for_while_it_is_created_is_one_session(log: TroubledLog, tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, ENDLESS, log) as sessions:
        log.gate.clear()
        creating = asyncio.ensure_future(sessions.dispatch(CreateSession(model_ref=SCENARIO_MODEL, session_id="s")))
        await log.until_appending(ev.SessionCreated)
        log.lookups.clear()
        watcher = sessions.follow("s")
        watching = asyncio.ensure_future(watcher.next())
        await asyncio.sleep(0)
        log.gate.set()
        await creating
        client = Desk(sessions, "s")
        await client.send("Hi")  # goes to the session that was created
        log.lookups.set()  # and now the watcher finds it in the log
        seen = decoded(await watching)
        await client.until(lambda logged: len(client.seen) > 8)
        await sessions.dispatch(RunCommand("s", Abort(now=0)))
        await client.until_settled()
        while not isinstance(seen[-1].event, ev.RunFinished):
            async with asyncio.timeout(60):
                seen += decoded(await watcher.next())
        assert seen == client.seen == await whole_log(sessions, "s")
        assert client.events(ev.RunResumed) == []
        watcher.close()


async def test_a_session_is_deleted_with_everything_that_waits_in_it(log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, ENDLESS, log) as (sessions, client):
        await client.send("First")
        for number in range(5):
            await client.send(f"Later {number}", delivery="queue")
        async with asyncio.timeout(60):
            assert await sessions.dispatch(DeleteSession(client.session_id))
        assert [task.get_name() for task in asyncio.all_tasks() if "makai-run" in task.get_name()] == []


async def test_an_owner_that_closes_does_not_let_a_deletion_wait_for_a_run_that_is_left_as_it_is(
    log: TroubledLog,
    tmp_path: Path,
) -> None:
    async with new_session(tmp_path, ENDLESS, log) as (sessions, client):
        await client.send("Go on")
        log.gate.clear()
        deleting = asyncio.ensure_future(sessions.dispatch(DeleteSession(client.session_id)))
        await log.until_appending(ev.RunAborted)
        closing = asyncio.ensure_future(sessions.close())
        await asyncio.sleep(0)
        log.gate.set()
        with pytest.raises(StorageUnavailable):
            async with asyncio.timeout(60):
                await deleting
        await closing


async def test_a_deletion_that_cannot_be_stored_leaves_the_session_and_its_followers(
    log: TroubledLog, tmp_path: Path
) -> None:
    async with new_session(tmp_path, "echo", log) as (sessions, client):
        await client.run("Hi")
        log.refuses_deletion = True
        with pytest.raises(StorageUnavailable):
            await sessions.dispatch(DeleteSession(client.session_id))
        await client.run("Still there?")
        log.refuses_deletion = False
        waiting = asyncio.ensure_future(client.until_settled())
        assert await sessions.dispatch(DeleteSession(client.session_id))
        with refused("UNKNOWN_SESSION"):
            await waiting


async def test_the_id_of_a_session_that_is_being_deleted_is_taken_until_it_is_gone(
    log: TroubledLog, tmp_path: Path
) -> None:
    async with new_session(tmp_path, ENDLESS, log) as (sessions, client):
        await client.send("Go on")
        wanted = CreateSession(model_ref=SCENARIO_MODEL, session_id=client.session_id)
        deleting = asyncio.ensure_future(sessions.dispatch(DeleteSession(client.session_id)))
        await asyncio.sleep(0)
        with refused("SESSION_EXISTS"):
            await sessions.dispatch(wanted)
        assert await deleting
        assert await sessions.dispatch(wanted) == client.session_id
        (created,) = await whole_log(sessions, client.session_id)
        assert created.event_id == 1


class DamagedLog(TroubledLog):
    """A log of which one session cannot be read. It tells which runs ended."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged = ""
        self.finished: asyncio.Queue[str] = asyncio.Queue(10)

    async def stored(self, session_id: str, events: Sequence[Pending], last: int) -> None:
        if any(isinstance(pending.event, ev.RunFinished) for pending in events):
            self.finished.put_nowait(session_id)

    async def read(
        self, session_id: str, after: int = 0, limit: int = 1000, *, deltas: bool = True
    ) -> list[LoggedEvent]:
        if session_id == self.damaged:
            raise LogDamaged("An event is damaged.", session_id=session_id, event_id=1)
        return await super().read(session_id, after, limit, deltas=deltas)


async def test_a_damaged_session_does_not_keep_the_others_from_being_recovered(tmp_path: Path) -> None:
    log = DamagedLog()
    async with owned_sessions(tmp_path, ENDLESS, log) as sessions:
        clients = [await desk(sessions) for _ in range(3)]
        for client in clients:
            await client.send("Go on")
            await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
    log.damaged = (await log.sessions())[0].session_id  # the first to be recovered
    async with owned_sessions(tmp_path, "say: Done.", log, recover_all=True) as sessions:
        async with asyncio.timeout(60):
            await asyncio.gather(*(log.finished.get() for _ in range(2)))
        assert [
            summary.session_id for summary in await sessions.dispatch(ListSessions()) if summary.status == "running"
        ] == [log.damaged]


async def test_a_session_used_by_many_short_owners_gets_its_checkpoint_in_the_end(
    log: TroubledLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makai.sessions.live.CHECKPOINT_EVERY", 30)
    async with owned_sessions(tmp_path, "echo", log) as sessions:
        session_id = (await desk(sessions)).session_id
    for number in range(6):  # each of them adds fewer events than a checkpoint takes
        async with owned_sessions(tmp_path, "echo", log) as sessions:
            client = Desk(sessions, session_id, after=await log.last(session_id))
            await client.run(f"message {number}")
    checkpoint = await log.checkpoint(session_id)
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.event_id > 30


async def test_unused_sessions_are_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "MAX_LIVE", 10)
    async with owned_sessions(tmp_path, "echo", MemoryLog()) as sessions:
        for _ in range(40):
            await desk(sessions)
        assert len(sessions._live) <= 10
        for summary in await sessions.dispatch(ListSessions()):
            assert (await sessions.dispatch(GetState(summary.session_id))).last_event_id == 1
        assert len(sessions._live) <= 10


async def test_a_session_that_was_forgotten_before_its_reader_came_is_found_again(
    log: TroubledLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "MAX_LIVE", 1)
    async with owned_sessions(tmp_path, "echo", log) as sessions:
        ids = [(await desk(sessions)).session_id for _ in range(8)]
    async with owned_sessions(tmp_path, "echo", log) as sessions:
        clients = [Desk(sessions, session_id) for session_id in ids for _ in range(2)]
        # All are loaded at once, and each that is loaded makes room for itself.
        await asyncio.gather(*(client.until(lambda logged: True) for client in clients))
        for session_id in ids:
            await sessions.dispatch(RunCommand(session_id, SetTitle(now=0, title="new")))
        await asyncio.gather(*(client.until(lambda logged: logged.event_id == 2) for client in clients))


async def test_a_follower_that_is_closed_while_it_looks_for_its_session_leaves_nothing_behind(
    log: TroubledLog, tmp_path: Path
) -> None:
    async with owned_sessions(tmp_path, "echo", log) as sessions:
        session_id = (await desk(sessions)).session_id
    async with owned_sessions(tmp_path, "echo", log) as sessions:
        log.lookups.clear()
        follower = sessions.follow(session_id)
        reading = asyncio.ensure_future(follower.next())
        await asyncio.sleep(0)
        follower.close()
        log.lookups.set()
        assert await reading == []
        assert sessions._live[session_id].is_idle


async def test_an_owner_that_closes_leaves_no_task_behind(log: TroubledLog, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with new_session(tmp_path, ENDLESS, log) as (sessions, client):
        other = (await desk(sessions)).session_id
        await client.send("Go on")
        await client.until(lambda logged: len(client.seen) > 8)
    async with owned_sessions(tmp_path, ENDLESS, log) as sessions:
        log.lookups.clear()
        waiting = [asyncio.ensure_future(sessions.dispatch(GetState(known))) for known in (client.session_id, other)]
        await asyncio.sleep(0)
        await sessions.close()
        log.lookups.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, StorageUnavailable) for outcome in outcomes)
    assert asyncio.all_tasks() == before


async def test_clients_that_attended_a_deleted_session_are_not_asked_by_the_next_one_of_its_name(
    tmp_path: Path,
) -> None:
    async with owned_sessions(tmp_path, ASKS_WEATHER, MemoryLog()) as sessions:
        wanted = CreateSession(model_ref=SCENARIO_MODEL, session_id="s", terms=ev.SessionTerms(tools=(WEATHER,)))

        async def execute(request: ToolRequest) -> ToolAnswer:
            raise AssertionError("of another session")

        await sessions.dispatch(wanted)
        await sessions.register_executor("s", execute)
        await sessions.dispatch(DeleteSession("s"))
        await sessions.dispatch(wanted)
        client = Desk(sessions, "s")
        await client.run("Weather?")
        (finished,) = client.events(ev.ToolFinished)
        assert isinstance(finished.content[0], Text)
        assert finished.content[0].text.startswith("tool_unavailable")


@pytest.mark.parametrize("text", ["x" * 17_000_000, "\udc80"], ids=["too much", "no text"])
async def test_an_answer_of_a_client_that_no_log_can_hold_fails_the_call_and_not_the_run(
    tmp_path: Path, text: str
) -> None:
    async with new_session(tmp_path, ASKS_WEATHER, MemoryLog(), terms=ev.SessionTerms(tools=(WEATHER,))) as (
        sessions,
        client,
    ):

        async def execute(request: ToolRequest) -> ToolAnswer:
            return ToolAnswer(content=(Text(text=text),))

        await sessions.register_executor(client.session_id, execute)
        assert isinstance(await client.run("Weather?"), ev.RunFinished)
        (finished,) = client.events(ev.ToolFinished)
        assert finished.is_error


async def test_a_fork_in_the_middle_of_an_answer_has_what_was_said_so_far(log: TroubledLog, tmp_path: Path) -> None:
    async with new_session(tmp_path, "pace: 2ms\nrepeat: 100000 word", log) as (sessions, client):
        await client.send("Go on")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        at = client.seen[-1].event_id
        fork = await sessions.dispatch(ForkSession(origin=client.session_id, at=at))
        fork_of_fork = await sessions.dispatch(ForkSession(origin=fork))
        for session_id in (fork, fork_of_fork):
            last = (await conversation(log, session_id)).messages()[-1]
            assert isinstance(last, AssistantMessage)
            assert isinstance(last.content[0], Text)
            assert last.content[0].text.startswith("word")


async def test_a_fork_can_be_compacted_before_anything_was_said_in_it(log: TroubledLog, tmp_path: Path) -> None:
    script = "repeat: 2000 word\n---\nwhen: summary\nsay: They said hello.\n---\nsay: Yes."
    async with new_session(tmp_path, script, log) as (sessions, client):
        await client.run("Hi")
        made = await sessions.dispatch(ForkSession(origin=client.session_id))
        fork = Desk(sessions, made, after=(await sessions.dispatch(GetState(made))).last_event_id)
        await fork.do(Compact(now=0, input_id="c1"))
        assert isinstance(await fork.until_settled(), ev.RunFinished)
        assert len(fork.events(ev.Compacted)) == 1
        assert len((await conversation(log, fork.session_id)).messages()) == 1
        assert isinstance(await fork.run("Still there?"), ev.RunFinished)
        assert fold(await whole_log(sessions, fork.session_id)) == await sessions.dispatch(GetState(fork.session_id))


async def test_what_was_decided_for_always_in_a_folder_does_not_concern_sessions_without_one(
    log: TroubledLog, tmp_path: Path
) -> None:
    denied = ev.ApprovalDecided(
        call_id="c", decision="deny_continue", by="me", scope="always", grant="mcp__weather__now"
    )
    created = ev.SessionCreated(model_ref="m", cwd="/elsewhere")
    await log.append("elsewhere", [Pending(1, None, created), Pending(1, None, denied)], 0)
    tool = ToolDefinition(name="mcp__weather__now", description="", parameters_schema_json='{"type":"object"}')
    async with new_session(
        tmp_path, "tool: mcp__weather__now {}\n---\nsay: Fine.", log, terms=ev.SessionTerms(tools=(tool,))
    ) as (sessions, client):

        async def execute(request: ToolRequest) -> ToolAnswer:
            return ToolAnswer(content=(Text(text="sunny"),))

        await sessions.register_executor(client.session_id, execute)
        await client.run("Weather?")
        assert [event.is_error for event in client.events(ev.ToolFinished)] == [False]


async def test_words_that_wait_in_a_log_without_an_active_run_are_answered(log: TroubledLog, tmp_path: Path) -> None:
    """As in a log that a repair has cut."""
    async with new_session(tmp_path, ENDLESS, log) as (_, client):
        await client.send("First")
        await client.send("Second", delivery="queue")
        await client.do(Abort(now=0))
        await client.until_settled()
    events = await whole_log_of(log, client.session_id)
    cut = MemoryLog()
    end = next(logged.event_id for logged in events if isinstance(logged.event, ev.RunFinished))
    await cut.append("s", [Pending(e.ts, e.run_id, e.event) for e in events[:end]], 0)
    async with owned_sessions(tmp_path, "say: Done.", cut) as sessions:
        again = Desk(sessions, "s", after=end)
        await again.until_settled()
        assert [event.content for event in again.events(ev.UserInput)] == ["Second"]
        assert len(again.events(ev.RunStarted)) == 1


async def whole_log_of(log: MemoryLog, session_id: str) -> list[ev.Logged]:
    return decoded(await log.read_raw(session_id, 0, 100_000))


class LateAnswerLog(TroubledLog):
    """Stores events, and answers the append only when `answer` is set: readers of the log are ahead of its writer."""

    def __init__(self) -> None:
        super().__init__()
        self.was_stored = asyncio.Event()
        self.answer = asyncio.Event()
        self.answer.set()

    async def stored(self, session_id: str, events: Sequence[Pending], last: int) -> None:
        self.was_stored.set()
        await self.answer.wait()


async def test_a_follower_gives_out_no_event_that_the_state_does_not_hold_yet(tmp_path: Path) -> None:
    log = LateAnswerLog()
    async with new_session(tmp_path, "echo", log) as (sessions, client):
        follower = sessions.follow(client.session_id)
        assert [record.event_id for record in await follower.next()] == [1]
        log.was_stored.clear()
        log.answer.clear()
        renaming = asyncio.ensure_future(client.do(SetTitle(now=0, title="New")))
        following = asyncio.ensure_future(follower.next())
        async with asyncio.timeout(60):
            await log.was_stored.wait()
        done, _ = await asyncio.wait({following}, timeout=0.05)
        assert done == set()
        log.answer.set()
        async with asyncio.timeout(60):
            assert [record.event_id for record in await following] == [2]
            await renaming
        assert (await sessions.dispatch(GetState(client.session_id))).title == "New"


async def test_a_follower_of_a_session_that_was_dropped_to_make_room_sees_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "MAX_LIVE", 2)
    async with new_session(tmp_path, "echo", MemoryLog()) as (sessions, client):
        follower = sessions.follow(client.session_id)
        assert [record.event_id for record in await follower.next()] == [1]
        for _ in range(4):
            await desk(sessions)
        await client.do(SetTitle(now=0, title="New"))
        async with asyncio.timeout(60):
            assert [record.event_id for record in await follower.next()] == [2]
