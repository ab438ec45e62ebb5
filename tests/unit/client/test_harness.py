"""Agents as harnesses of the contract: spawn, events, inject, stop, resume, permissions and what a spec means."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shlex
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.machine import slack
from support.transports import eventually

from makai.client.harness.handle import SETTLE_S, SessionHandle
from makai.client.harness.opening import MakaiHarness, open_harness
from makai.core.errors import (
    ChannelClosed,
    InvalidRequest,
    NoProvider,
    ProviderUnavailable,
    SessionNotFound,
    SpawnFailed,
    StorageUnavailable,
    Unsupported,
)
from makai.core.messages import UserMessage
from makai.core.request import Context
from makai.core.stream_events import StreamEvent
from makai.harness.acp.stub_agent import BEHAVIOURS
from makai.harness.contract import events as out
from makai.harness.contract.events import is_terminal
from makai.harness.contract.interfaces import Handle, HarnessProvider
from makai.harness.contract.spec import PermissionConfig, Spec
from makai.providers.base import ProviderRequest
from makai.providers.scripted import SCENARIO_VARIABLE, ScriptedProvider
from makai.sessions import commands as cmd
from makai.sessions import requests as req

WAIT_S = 60.0
AGENT = Path(__file__).parents[2] / "support" / "acp_agent.py"


class Lab:
    """A folder to work in, and harnesses over it that are shut down at the end."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.home = folder / "home"
        self.opened: list[MakaiHarness] = []

    def open(self, name: str = "stub", *, scenario: str = "say: Hi", **options: object) -> MakaiHarness:
        path = self.work.parent / "scenario.txt"
        path.write_text(scenario, encoding="utf-8")
        environ = {"PATH": os.environ["PATH"], SCENARIO_VARIABLE: str(path)}
        self.opened.append(open_harness(name, environ=environ, home=self.home, **options))  # type: ignore[arg-type]
        return self.opened[-1]

    def spec(self, prompt: str = "Do it", behaviour: str = "", **fields: object) -> Spec:
        options = {"stub.behavior": behaviour} if behaviour else {}
        given = {"provider_config": options, "cwd": str(self.work), **fields}
        return Spec(prompt=prompt, **given)  # type: ignore[arg-type]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    async with asyncio.timeout(WAIT_S):
        for harness in lab.opened:
            await harness.shutdown()


async def read(handle: Handle) -> list[out.Event]:
    async with asyncio.timeout(WAIT_S):
        return [event async for event in handle]


def kinds(events: list[out.Event]) -> list[str]:
    return [event.kind for event in events]


def is_dead(pid: int) -> bool:
    """Whether a process has ended; its parent may not have heard of it yet."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def script_of(pid: int) -> str:
    """The second word of the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1]


def keeps_the_law(events: list[out.Event]) -> bool:
    inits = [isinstance(event, out.InitEvent) for event in events]
    ends = [is_terminal(event) for event in events]
    return inits.index(True) == 0 and sum(inits) == 1 and sum(ends) == 1 and ends[-1]


@pytest.mark.req("DM-PROV-003", "DM-PROV-014")
@pytest.mark.parametrize("behaviour", sorted(set(BEHAVIOURS) - {"hang-then-timeout", "inject-test"}))
async def test_every_behaviour_of_the_stub_keeps_the_law_of_the_stream(lab: Lab, behaviour: str) -> None:
    handle = await lab.open().spawn(lab.spec(behaviour=behaviour))
    events = await read(handle)

    assert keeps_the_law(events)
    assert events[0] == out.InitEvent(session_id=handle.session_id)
    assert handle.session_id.startswith("stub-session-")


@pytest.mark.req("DM-PROV-003", "DM-PROV-014", "DM-SPEC-013")
async def test_the_stub_succeeds_with_a_pull_request(lab: Lab) -> None:
    events = await read(await lab.open().spawn(lab.spec()))

    final = "Opened stub://pr/123.\nWORK_RESULT:passed"
    assert events[1:] == [
        out.SystemEvent(subtype="agent_notice", message="starting"),
        out.AssistantTextEvent(text="Looking at the repository."),
        out.ToolUseEvent(tool_name="Bash", tool_use_id="tu-1", input={"command": "git status"}, tool_category="shell"),
        out.ToolResultEvent(tool_name="Bash", tool_use_id="tu-1", content="clean"),
        out.AssistantTextEvent(text=final),
        out.ResultEvent(
            success=True,
            message=final,
            cost=out.CostData(input_tokens=10, output_tokens=5, total_cost_usd=0.001, num_turns=1),
        ),
    ]


@pytest.mark.parametrize(
    ("behaviour", "terminal"),
    [
        ("fail-on-clone", out.AgentErrorEvent(message="stub could not clone the repository.", code="clone_failed")),
        ("mid-stream-error", out.AgentErrorEvent(message="stub crashed.", code="provider_crash")),
        ("silent-fail", out.AgentErrorEvent(message="stub ended without a result.", code="spawn_no_result")),
    ],
)
async def test_the_stub_fails_with_one_error(lab: Lab, behaviour: str, terminal: out.Event) -> None:
    assert (await read(await lab.open().spawn(lab.spec(behaviour=behaviour))))[-1] == terminal


async def test_a_slow_tool_reports_its_progress(lab: Lab) -> None:
    spec = lab.spec(provider_config={"stub.behavior": "slow-tool", "stub.progressTicks": 2})
    events = await read(await lab.open().spawn(spec))

    assert kinds(events) == ["init", "tool_use", "tool_progress", "tool_progress", "tool_result", "result"]


@pytest.mark.req("DM-PROV-008", "DM-PROV-009")
async def test_a_message_reaches_a_session_while_its_events_are_read(lab: Lab) -> None:
    handle = await lab.open().spawn(lab.spec(behaviour="inject-test"))
    assert handle.session_id == ""
    events: list[out.Event] = []
    async with asyncio.timeout(WAIT_S):
        async for event in handle:
            events.append(event)
            if isinstance(event, out.SystemEvent) and event.subtype == "agent_notice":
                await handle.inject("go left")

    assert handle.session_id == events[0].session_id  # type: ignore[union-attr]
    assert out.AssistantTextEvent(text="Injected: go left") in events
    with pytest.raises(InvalidRequest, match="has ended"):
        await handle.inject("too late")


@pytest.mark.req("DM-PROV-009", "DM-CAP-005")
async def test_a_harness_without_injection_refuses_messages(lab: Lab) -> None:
    harness = lab.open(f"acp:{sys.executable} {AGENT}")
    handle = await harness.spawn(lab.spec("say Hi"))
    with pytest.raises(Unsupported, match="message_injection"):
        await handle.inject("x")
    assert kinds(await read(handle)) == ["init", "assistant_text", "result"]


@pytest.mark.req("DM-PROV-010", "DM-PROV-011")
async def test_a_session_can_be_stopped_often_and_ends_with_one_terminal(lab: Lab) -> None:
    handle = await lab.open().spawn(lab.spec(behaviour="hang-then-timeout"))
    await asyncio.gather(handle.stop(), handle.stop())
    events = await read(handle)
    await handle.stop()

    assert keeps_the_law(events)
    assert isinstance(events[-1], out.ResultEvent)
    assert (events[-1].success, events[-1].error_subtype) == (False, "stopped")


def steps_of(handle: SessionHandle, monkeypatch: pytest.MonkeyPatch) -> list[str | float]:
    """What a handle does from now on: requests by their names, and waits for the end by their seconds."""
    steps: list[str | float] = []
    dispatch, settled_within = handle._sessions.dispatch, handle._settled_within

    def dispatched(request: req.Request[Any]) -> Awaitable[Any]:
        steps.append(type(request).__name__)
        return dispatch(request)

    def waited(seconds: float) -> Awaitable[None]:
        steps.append(seconds)
        return settled_within(seconds)

    monkeypatch.setattr(handle._sessions, "dispatch", dispatched)
    monkeypatch.setattr(handle, "_settled_within", waited)
    return steps


@pytest.mark.req("DM-PROV-011", "DM-SPEC-002")
async def test_a_process_that_does_not_stop_is_killed_and_the_stream_ends(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    silent = shlex.quote(json.dumps({"silent": ["session/prompt"]}))
    command = shlex.quote(f"trap '' TERM; exec {sys.executable} {AGENT} {silent}")
    harness = lab.open(f"acp:sh -c {command}")
    handle = await harness.spawn(lab.spec(on_process_spawned=pids.append))
    [pid] = pids
    assert sys.platform != "linux" or script_of(pid) == str(AGENT)
    steps = steps_of(handle, monkeypatch)
    began = asyncio.get_running_loop().time()
    await handle.stop(grace_s=0.2)

    # On a busy machine the time alone does not tell a kill from the abort, which ends the process later.
    assert steps[:4] == ["RunCommand", 0.2, "ReleaseAgent", SETTLE_S]
    assert 0.2 <= asyncio.get_running_loop().time() - began < 2.5 * slack()
    assert keeps_the_law(await read(handle))
    await eventually(lambda: is_dead(pid))


DIES_AT_ONCE = """#!/bin/sh
case "$*" in
--version) echo {version} ;;
"threads new") echo T-0123abcd-0000-4000-8000-000000000000 ;;
*) echo $$ >>{said}; exit 3 ;;
esac
"""


@pytest.mark.req("DM-SPEC-002")
@pytest.mark.parametrize(
    ("name", "program", "version"),
    [
        ("claude-code", "claude", "2.1.325"),
        ("codex", "codex", "0.166.0"),
        ("amp", "amp", "0.0.1790142911"),
        ("opencode", "opencode", "1.18.33"),
        ("antigravity", "agy", "1.0.0"),
    ],
)
async def test_the_process_that_answers_is_reported_once_although_it_dies_at_once(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, program: str, version: str
) -> None:
    pids, said = list[int](), tmp_path / "said"
    (tmp_path / program).write_text(DIES_AT_ONCE.format(version=version, said=shlex.quote(str(said))))
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with suppress(SpawnFailed):
        await read(await lab.open(name).spawn(lab.spec(on_process_spawned=pids.append, autonomous=True)))
    assert pids == [int(said.read_text())]


@pytest.mark.req("DM-PROV-011")
def test_a_session_has_five_seconds_to_stop_unless_its_caller_says_otherwise() -> None:
    for stop in (SessionHandle.stop, Handle.stop):
        assert inspect.signature(stop).parameters["grace_s"].default == 5.0


@pytest.mark.req("DM-PROV-012")
async def test_cancelling_a_spawn_frees_the_process(lab: Lab) -> None:
    pipe, started = lab.work / "pid", asyncio.Event()
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    asyncio.get_running_loop().add_reader(descriptor, started.set)
    harness = lab.open(f"acp:sh -c {shlex.quote(f'echo $$ > {pipe}; exec sleep 600')}")
    spawning = asyncio.create_task(harness.spawn(lab.spec()))
    try:
        await asyncio.wait_for(started.wait(), WAIT_S)
        pid = int(os.read(descriptor, 32))
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
    assert not is_dead(pid)
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning

    await eventually(lambda: is_dead(pid))


@pytest.mark.req("DM-PROV-013")
async def test_shutting_down_after_a_session_has_ended_closes_what_sessions_share(lab: Lab) -> None:
    harness = lab.open("native")
    ended = await harness.spawn(lab.spec(model="scripted/scenario"))
    await read(ended)
    shared = harness._sessions
    assert shared is not None
    assert not (await shared.dispatch(req.GetState(ended.session_id))).closed
    await harness.shutdown()
    await harness.shutdown()

    with pytest.raises(StorageUnavailable, match="being closed"):
        await shared.dispatch(req.GetState(ended.session_id))
    with pytest.raises(ChannelClosed, match="was shut down"):
        await harness.spawn(lab.spec())


@pytest.mark.req("DM-PROV-004", "DM-PROV-006")
def test_a_missing_program_and_an_unknown_name_are_found_before_any_session(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    for name in ("claude-code", "codex", "gemini", "amp"):
        with pytest.raises(ProviderUnavailable, match="not installed"):
            open_harness(name, environ=environ, home=tmp_path)
    with pytest.raises(ProviderUnavailable, match="no agent or program"):
        open_harness("acp:no-such-program", environ=environ, home=tmp_path)
    with pytest.raises(NoProvider, match="no harness 'spring-ai'"):
        open_harness("spring-ai", environ=environ, home=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("DM-PROV-006")
async def test_a_session_that_cannot_start_raises_spawn_failed(lab: Lab) -> None:
    with pytest.raises(SpawnFailed, match="needs a folder"):
        await lab.open().spawn(lab.spec(cwd=str(lab.work / "nowhere")))
    with pytest.raises(SpawnFailed, match="true"):
        await lab.open("acp:true").spawn(lab.spec())
    with pytest.raises(SpawnFailed, match="OPENAI_API_KEY"):
        await lab.open("native").spawn(lab.spec(model="openai/gpt-6.1-sol"))


@pytest.mark.req("DM-PROV-007")
@pytest.mark.parametrize("first_behaviour", ["resume-steer", "hang-then-timeout"])
async def test_resume_continues_the_agents_own_session_in_another_harness(lab: Lab, first_behaviour: str) -> None:
    first = await lab.open().spawn(lab.spec(behaviour=first_behaviour))
    if first_behaviour == "hang-then-timeout":
        await first.stop()
    said = out.AssistantTextEvent(text="No pull request yet.") in await read(first)
    assert said == (first_behaviour == "resume-steer")

    resumed = await lab.open().resume(first.session_id, lab.spec("Open it", behaviour="resume-steer"))
    events = await read(resumed)

    assert keeps_the_law(events)
    assert resumed.session_id == first.session_id
    assert out.AssistantTextEvent(text="Open it\nWORK_RESULT:passed stub://pr/123") in events


@pytest.mark.req("DM-PROV-007")
async def test_resume_refuses_what_cannot_be_resumed(lab: Lab) -> None:
    with pytest.raises(SessionNotFound):
        await lab.open().resume("", lab.spec())
    with pytest.raises(SessionNotFound, match="knows no session"):
        await lab.open().resume("lost", lab.spec(provider_config={"stub.resumeFailure": True}))
    with pytest.raises(SessionNotFound):
        await lab.open("native").resume("unknown", lab.spec())


@pytest.mark.req("DM-PROV-007")
@pytest.mark.parametrize("session_id", ["../x", "/etc/passwd", "a/../b", "..\\x", "-p", "a\0b", "a\nb", "x" * 1025])
async def test_an_id_that_an_agent_could_take_for_a_file_or_an_option_starts_nothing(lab: Lab, session_id: str) -> None:
    harness, spawned = lab.open(f"acp:{sys.executable} {AGENT}"), list[int]()
    with pytest.raises(SessionNotFound, match="cannot be the id of a session"):
        await harness.resume(session_id, lab.spec(on_process_spawned=spawned.append))

    assert (spawned, harness._sessions) == ([], None)


@pytest.mark.req("DM-PROV-007")
async def test_resume_refuses_a_session_that_has_ended_for_good(lab: Lab) -> None:
    harness = lab.open("native", keep=True)
    ended = await harness.spawn(lab.spec(model="scripted/scenario"))
    await read(ended)
    assert harness._sessions is not None
    await harness._sessions.dispatch(req.RunCommand(ended.session_id, cmd.Close(now=0)))

    with pytest.raises(SessionNotFound, match="has ended"):
        await harness.resume(ended.session_id, lab.spec())


@pytest.mark.req("DM-PROV-007")
async def test_a_harness_without_resume_refuses_any_id(lab: Lab) -> None:
    program = lab.work / "gemini"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    harness = open_harness("gemini", environ={"PATH": str(lab.work)}, home=lab.home)

    for session_id in ("s-1", ""):
        with pytest.raises(Unsupported, match="session_resume"):
            await harness.resume(session_id, lab.spec())


@pytest.mark.req("DM-PROV-007", "DM-PROV-013")
async def test_the_native_loop_runs_and_resumes_sessions_that_are_kept(lab: Lab) -> None:
    script = "say: One.\nusage: input=5 output=4\n---\nsay: Two."
    harness = lab.open("native", scenario=script, keep=True)
    handle = await harness.spawn(lab.spec(model="scripted/scenario"))
    events = await read(handle)
    await harness.shutdown()
    await harness.shutdown()

    assert kinds(events) == ["init", "assistant_text", "result"]
    assert events[-1] == out.ResultEvent(
        success=True, message="One.", cost=out.CostData(input_tokens=5, output_tokens=4, num_turns=1)
    )
    again = await lab.open("native", scenario=script, keep=True).resume(handle.session_id, lab.spec("More"))
    assert [event.text for event in await read(again) if isinstance(event, out.AssistantTextEvent)] == ["Two."]
    assert again.session_id == handle.session_id


@pytest.mark.req("DM-SPEC-010", "DM-SPEC-012", "DM-SPEC-013")
async def test_the_native_loop_gets_instructions_last_and_context_once_and_stops_after_its_turns(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Context] = []
    stream = ScriptedProvider.stream

    def noted(self: ScriptedProvider, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        asked.append(request.context)
        return stream(self, request)

    monkeypatch.setattr(ScriptedProvider, "stream", noted)
    script = "\n---\n".join(['tool: read {"path": "a.txt"}'] * 4)
    given = {"base_instructions": "Base.", "system_prompt_append": "After.", "initial_context": "Context."}
    spec = lab.spec(model="scripted/scenario", max_turns=2, **given)
    events = await read(await lab.open("native", scenario=script).spawn(spec))

    assert len(asked) == 2
    for context in asked:
        standard, _, appended = (context.system_prompt or "").rpartition("\n\nBase.")
        assert (len(standard) > 100, appended) == (True, "\n\nAfter.")
        assert msgspec.json.encode(context).count(b"Context.") == 1
        assert context.messages[0] == UserMessage(content="Context.\n\nDo it")
    assert isinstance(events[-1], out.ResultEvent)
    assert (events[-1].success, events[-1].error_subtype) == (False, "error_max_turns")


@pytest.mark.req("DM-SPEC-005", "DM-SPEC-007", "DM-SPEC-014")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "no person takes part"),
        ({"autonomous": True}, ""),
        ({"allowed_tools": ("Bash(git status)",)}, ""),
        ({"allowed_tools": ("Bash(git:*)",), "disallowed_tools": ("Bash(git status)",)}, "forbid"),
        ({"autonomous": True, "disallowed_tools": ("Bash",)}, "forbid"),
        ({"permission_config": PermissionConfig(default_decision="allow")}, ""),
        ({"permission_config": PermissionConfig(default_decision="deny")}, "No permission"),
        ({"autonomous": True, "permission_config": PermissionConfig()}, "no person takes part"),
        ({"permission_config": PermissionConfig(allow_patterns=("Bash(git:*)",))}, ""),
        (
            {"permission_config": PermissionConfig(default_decision="allow", disallow_patterns=("Bash(git:*)",))},
            "forbid",
        ),
    ],
)
async def test_permissions_are_decided_without_a_person(lab: Lab, fields: dict[str, object], reason: str) -> None:
    spec = msgspec.structs.replace(lab.spec(provider_config={"stub.asks": True}), **fields)
    events = await read(await lab.open().spawn(spec))

    denied = [event.message for event in events if isinstance(event, out.SystemEvent) and "denied" in event.subtype]
    assert [reason in message for message in denied] == ([True] if reason else [])
    results = [event for event in events if isinstance(event, out.ToolResultEvent)]
    assert [result.is_error for result in results] == [bool(reason)]


@pytest.mark.req("DM-SPEC-007")
async def test_a_permission_that_cannot_be_read_is_no_session(lab: Lab) -> None:
    with pytest.raises(SpawnFailed, match="cannot be read"):
        await lab.open().spawn(lab.spec(disallowed_tools=("Bash(",)))


@pytest.mark.req("DM-CAP-006")
async def test_effort_that_an_agent_does_not_know_is_reported_before_the_session_and_in_its_events(lab: Lab) -> None:
    seen: list[out.SystemEvent] = []
    harness = lab.open(f"acp:{sys.executable} {AGENT}", observe=seen.append)
    handle = await harness.spawn(lab.spec("say Hi", effort="high"))
    reported = list(seen)
    events = await read(handle)

    assert [notice.subtype for notice in reported] == ["capability_mismatch", "setting_ignored"]
    assert reported[0].raw == {"capability": "reasoning_effort", "field": "effort", "value": "high"}
    assert events[1:3] == reported


@pytest.mark.req("DM-CAP-008", "DM-PROV-001")
async def test_a_harness_has_the_shape_of_the_contract_and_keeps_its_name(lab: Lab) -> None:
    harness = lab.open()
    before = (harness.name, harness.capabilities, harness.manifest())
    handle = await harness.spawn(lab.spec())
    assert isinstance(harness, HarnessProvider)
    assert isinstance(handle, Handle)
    assert (harness.name, harness.capabilities, harness.manifest()) == before
    await read(handle)
    await harness.shutdown()

    assert (harness.name, harness.capabilities, harness.manifest()) == before
    assert msgspec.json.encode(before[0]) == b'"stub"'
