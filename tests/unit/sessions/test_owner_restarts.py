"""A session outlives the process that runs it: the next owner finds everything, resumes what can be resumed and runs
nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.live_sessions import SCENARIO_MODEL, Desk, desk, new_session, owned_sessions, whole_log
from support.session_trials import Trial, asked
from support.troubled_log import TroubledLog

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import HomeInUse, SessionRefused, StorageUnavailable
from makai.core.request import ToolDefinition
from makai.harness.base import ToolAnswer, ToolRequest
from makai.sessions.commands import ApproveCall, Create, DenyCall
from makai.sessions.log.base import Pending
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import GetState, ListApprovals, ListGrants, ListSessions, RevokeGrant, RunCommand
from makai.sessions.state import fold

WRITES = 'tool: shell {"command": "echo x >> made"}\n---\nsay: Done.'
WEATHER = ToolDefinition(name="weather", description="The weather.", parameters_schema_json='{"type":"object"}')


@pytest.mark.proof("T4")
async def test_a_pending_approval_is_still_pending_after_a_restart_and_its_tool_runs_once(
    tmp_path: Path, project: Path
) -> None:
    async with new_session(tmp_path, WRITES, cwd=project) as (_, client):
        await client.send("Make it")
        asked = await client.until_asked()
    async with owned_sessions(tmp_path, WRITES) as sessions:
        (pending,) = await sessions.dispatch(ListApprovals())
        assert pending.request == asked
        again = Desk(sessions, client.session_id, after=len(client.seen))
        await again.approve(asked.call_id)
        assert isinstance(await again.until_settled(), ev.RunFinished)
        assert again.events(ev.RunResumed) == [ev.RunResumed()]
        assert again.events(ev.ToolStarted) == [ev.ToolStarted(call_id=asked.call_id)]
        assert (project / "made").read_text() == "x\n"
        assert fold(await whole_log(sessions, client.session_id)) == await sessions.dispatch(
            GetState(client.session_id)
        )


async def test_what_was_asked_before_a_restart_is_not_done_to_a_file_that_changed_since(
    tmp_path: Path, project: Path
) -> None:
    script = 'tool: edit {"path": "a.txt", "old_text": "one", "new_text": "two"}\n---\nsay: Then not.'
    (project / "a.txt").write_text("one\n")
    async with new_session(tmp_path, script, cwd=project) as (_, client):
        await client.send("Change it")
        asked = await client.until_asked()
    (project / "a.txt").write_text("one\nand something new\n")
    async with owned_sessions(tmp_path, script) as sessions:
        again = Desk(sessions, client.session_id, after=len(client.seen))
        assert isinstance(await again.until_settled(), ev.RunFinished)
        (decided,) = again.events(ev.ApprovalDecided)
        assert decided.by == "agent"
        with pytest.raises(SessionRefused):
            await again.approve(asked.call_id)
    assert (project / "a.txt").read_text() == "one\nand something new\n"


async def test_a_tool_that_had_started_is_interrupted_and_never_run_again(tmp_path: Path) -> None:
    script = "tool: weather {}\n---\nsay: Never mind."
    asked: list[ToolRequest] = []
    async with new_session(tmp_path, script, terms=ev.SessionTerms(tools=(WEATHER,))) as (sessions, client):
        never = asyncio.Event()

        async def waits(request: ToolRequest) -> ToolAnswer:
            asked.append(request)
            await never.wait()
            return ToolAnswer(content=())

        await sessions.register_executor(client.session_id, waits)
        await client.send("Weather?")
        await client.until(lambda logged: isinstance(logged.event, ev.ToolStarted))
    async with owned_sessions(tmp_path, script) as sessions:
        again = Desk(sessions, client.session_id, after=len(client.seen))
        assert isinstance(await again.until_settled(), ev.RunFinished)
        (finished,) = again.events(ev.ToolFinished)
        assert finished.interrupted
        assert finished.is_error
        assert [event.text for event in again.events(ev.AssistantText)] == ["Never mind."]
    assert len(asked) == 1


async def test_an_answer_that_broke_off_is_asked_for_again(tmp_path: Path) -> None:
    async with new_session(tmp_path, "say: Half\npace: 5ms\nrepeat: 100000 word") as (_, client):
        await client.send("Tell me")
        await client.until(lambda logged: len(client.seen) > 10)
    async with owned_sessions(tmp_path, "say: A whole answer.", recover_all=True) as sessions:
        again = Desk(sessions, client.session_id, after=len(client.seen))
        assert isinstance(await again.until_settled(), ev.RunFinished)
        assert [event.text for event in again.events(ev.AssistantText)] == ["A whole answer."]
        assert [logged.event_id for logged in (*client.seen, *again.seen)] == list(
            range(1, len(client.seen) + len(again.seen) + 1)
        )


async def test_words_that_waited_are_answered_by_the_next_owner(tmp_path: Path) -> None:
    async with new_session(tmp_path, "pace: 5ms\nrepeat: 100000 word") as (_, client):
        await client.send("First")
        await client.until(lambda logged: len(client.seen) > 8)
        await client.send("Second", delivery="queue")
    async with owned_sessions(tmp_path, "echo") as sessions:
        again = Desk(sessions, client.session_id)
        await again.until_settled()
        await again.until_settled()
        assert [event.content for event in again.events(ev.UserInput)] == ["First", "Second"]


async def test_looking_at_sessions_resumes_nothing(tmp_path: Path, project: Path) -> None:
    async with new_session(tmp_path, WRITES, cwd=project) as (sessions, client):
        await client.send("Make it")
        await client.until_asked()
        before = await whole_log(sessions, client.session_id)
    async with owned_sessions(tmp_path, WRITES) as sessions:
        (summary,) = await sessions.dispatch(ListSessions())
        assert summary.status == "awaiting_approval"
        assert await whole_log(sessions, client.session_id) == before


async def test_a_grant_for_always_is_remembered_by_the_next_session_in_the_folder(
    tmp_path: Path, project: Path
) -> None:
    script = 'tool: shell {"command": "touch made"}\n---\nsay: Done.'
    async with new_session(tmp_path, script, cwd=project) as (sessions, client):
        await client.send("Make it")
        asked = await client.until_asked()
        assert asked.grant
        await sessions.dispatch(
            RunCommand(client.session_id, ApproveCall(now=0, call_id=asked.call_id, by="tester", scope="always"))
        )
        await client.until_settled()
    async with owned_sessions(tmp_path, script) as sessions:
        other = await desk(sessions, cwd=project)
        assert isinstance(await other.run("Make it again"), ev.RunFinished)
        assert [event.by for event in other.events(ev.ApprovalDecided)] == ["rule"]


async def test_a_revoked_grant_no_longer_counts_in_the_session_it_was_given_in(tmp_path: Path, project: Path) -> None:
    call = 'tool: shell {"command": "touch made"}\n---\nsay: Done.'
    async with new_session(tmp_path, f"{call}\n---\n{call}", cwd=project) as (sessions, client):
        await client.send("Make it")
        asked = await client.until_asked()
        always = ApproveCall(now=0, call_id=asked.call_id, by="tester", scope="always")
        await sessions.dispatch(RunCommand(client.session_id, always))
        await client.until_settled()
        (grant,) = await sessions.dispatch(ListGrants(str(project)))
        assert await sessions.dispatch(RevokeGrant(grant.folder, grant.rule))

        await client.send("Make it again")
        assert (await client.until_asked()).grant == grant.rule


async def test_two_processes_cannot_own_one_home(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "echo"):
        with pytest.raises(HomeInUse):
            async with owned_sessions(tmp_path, "echo"):
                raise AssertionError("unreachable")


async def test_a_long_session_is_opened_from_its_checkpoint(tmp_path: Path) -> None:
    async with new_session(tmp_path, "echo") as (sessions, client):
        for number in range(120):
            await client.run(f"message {number}")
        before = await sessions.dispatch(GetState(client.session_id))
    async with owned_sessions(tmp_path, "echo") as sessions:
        assert await sessions.dispatch(GetState(client.session_id)) == before
        assert fold(await whole_log(sessions, client.session_id)) == before


async def test_a_full_disk_fails_the_run_and_the_session_recovers(tmp_path: Path) -> None:
    log = TroubledLog()
    async with new_session(tmp_path, "pace: 1ms\nrepeat: 3000 word\n---\nsay: Hello.", log) as (sessions, client):
        await client.send("Go")
        await client.until(lambda logged: len(client.seen) > 8)
        log.refuses = lambda event: True
        while not log.arrivals.empty():
            log.arrivals.get_nowait()
        with pytest.raises(StorageUnavailable):
            await client.send("More", delivery="queue")
        async with asyncio.timeout(60):
            for _ in range(3):  # the command, a fact of the run, and its end
                await log.arrivals.get()
        assert await whole_log(sessions, client.session_id)  # reads go on
        log.refuses = lambda event: False
        failed = await client.until_settled()
        assert isinstance(failed, ev.RunFailed)
        assert failed.code == "storage_unavailable"
        assert isinstance(await client.run("Again"), ev.RunFinished)
        assert fold(await whole_log(sessions, client.session_id)) == await sessions.dispatch(
            GetState(client.session_id)
        )


async def test_a_clock_that_goes_backwards_does_not_disorder_a_session(
    tmp_path: Path,
) -> None:
    async with new_session(tmp_path, "echo") as (sessions, client):
        await client.run("One")
        sessions._clock = lambda: 1_000  # as after a wrong time server
        await client.run("Two")
        times = [logged.ts for logged in await whole_log(sessions, client.session_id)]
        assert times == sorted(times)


async def stored(trial: Trial) -> MemoryLog:
    """A log that holds this session, as `s`."""
    log = MemoryLog()
    await log.append("s", [Pending(logged.ts, logged.run_id, logged.event) for logged in trial.log], 0)
    return log


def with_a_shell() -> Trial:
    """A session whose client has a shell, in which a run began."""
    trial = Trial()
    trial.do(Create(now=1, model_ref=SCENARIO_MODEL, terms=ev.SessionTerms(tools=(SHELL,))))
    trial.send("Hi")
    return trial


SHELL = ToolDefinition(name="shell", description="A shell.", parameters_schema_json='{"type":"object"}')


async def test_a_resumed_run_does_what_was_approved_tells_what_was_denied_and_asks_on(tmp_path: Path) -> None:
    before = with_a_shell()
    before.call("c1", "c2", "c3", "c4", ask=True)
    before.approve("c1")
    before.do(DenyCall(now=2, call_id="c2", by="me", reason="not today"))
    before.approve("c4")
    before.report(ev.ToolStarted(call_id="c4"))
    log = await stored(before)
    carried_out: list[str] = []

    async def execute(request: ToolRequest) -> ToolAnswer:
        carried_out.append(request.call_id)
        return ToolAnswer(content=(Text(text="done"),))

    async with owned_sessions(tmp_path, "say: Well.", log) as sessions:
        await sessions.register_executor("s", execute)
        client = Desk(sessions, "s")
        await client.until(lambda logged: isinstance(logged.event, ev.ToolFinished) and logged.event.call_id == "c1")
        await client.deny("c3", "nor tomorrow")
        assert isinstance(await client.until_settled(), ev.RunFinished)
        said = {event.call_id: event.content[0] for event in client.events(ev.ToolFinished)}
        assert {call_id: part.text for call_id, part in said.items() if isinstance(part, Text)} == {
            "c1": "done",
            "c2": "denied: not today",
            "c3": "denied: nor tomorrow",
            "c4": "The server ended while this tool ran; what it did is unknown.",
        }
        assert carried_out == ["c1"]


async def test_a_question_that_ran_out_while_no_server_was_there_is_denied_when_one_is(tmp_path: Path) -> None:
    before = with_a_shell()
    before.call("c1")
    before.report(asked("c1", deadline_ms=5_000))
    log = await stored(before)
    async with owned_sessions(tmp_path, "say: Well.", log, recover_all=True) as sessions:
        client = Desk(sessions, "s")
        assert isinstance(await client.until_settled(), ev.RunFinished)
        assert [event.by for event in client.events(ev.ApprovalDecided)] == ["deadline"]
