"""Aborting a run: whatever it is doing, it stops, closes what is open and leaves nothing behind."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.agent import FakeHost, FakeTool, ScriptedModels, asked, called, finished, fixed, text, turn

from makai.agent.loop import run_agent
from makai.agent.settings import AgentSettings
from makai.core import session_events as ev
from makai.tools.base import ToolContext, ToolOutcome, text_outcome

INTERRUPTED = "Interrupted: the run was aborted; what the tool did so far is unknown."
NOT_RUN = "Not run: the run was aborted."


async def aborted(
    script: str,
    *tools: FakeTool,
    when: type[ev.SessionEvent] | Callable[[ev.SessionEvent], bool],
    host: FakeHost | None = None,
    times: int = 1,
    **settings: Any,
) -> FakeHost:
    """Run until a fact of this type is logged, cancel the run there, and give the host."""
    host = host or FakeHost()
    reached = asyncio.Event()
    is_reached = when if not isinstance(when, type) else lambda fact: isinstance(fact, when)
    host.on_fact = lambda fact: reached.set() if is_reached(fact) else None
    named = {tool.definition.name: tool for tool in tools}
    agent = AgentSettings(model=None, **settings)
    task = asyncio.ensure_future(run_agent(host, ScriptedModels(script), asked(), fixed(named), host.decide, agent))
    async with asyncio.timeout(60):
        await reached.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
    return host


async def for_ever(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    await asyncio.Event().wait()
    return text_outcome("never")


async def test_an_abort_while_the_model_speaks_ends_the_turn() -> None:
    host = await aborted("say: Half\nstall", when=ev.AssistantTextDelta)

    assert host.told == [
        ev.TurnStarted(turn=1),
        ev.AssistantTextDelta(content_index=0, delta="Half"),
        ev.TurnEnded(turn=1, stop_reason="aborted"),
    ]
    assert len(asyncio.all_tasks()) == 1


async def test_an_abort_before_the_answer_ended_closes_the_calls_it_had() -> None:
    """Also when it is asked for again while the last facts are on their way."""

    class Slow(FakeHost):
        async def emit(self, event: ev.SessionEvent) -> None:
            await super().emit(event)
            for _ in range(10):
                await asyncio.sleep(0)

    tool = FakeTool("look")
    script = "tool: look {}\nsay: x\nstall"
    host = await aborted(script, tool, when=ev.AssistantTextDelta, host=Slow(), times=8)

    assert host.told == [
        ev.TurnStarted(turn=1),
        called("look"),
        ev.AssistantTextDelta(content_index=1, delta="x"),
        ev.TurnEnded(turn=1, stop_reason="aborted"),
        finished("c1", NOT_RUN, is_error=True),
    ]
    assert tool.ran == []
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("times", [1, 3])
async def test_an_abort_while_tools_run_stops_them_and_says_which_were_interrupted(times: int) -> None:
    cleaned_up: list[str] = []

    async def busy(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        try:
            context.progress("working")
            return await for_ever(arguments, context)
        finally:
            await asyncio.sleep(0.01)  # the process it started has to go first
            context.progress("stopping")
            cleaned_up.append(arguments["name"])

    script = 'tool: busy {"name":"a"}\ntool: busy {"name":"b"}\ntool: edit {}'
    tools = (FakeTool("busy", busy), FakeTool("edit", kind="edit"))
    started = iter(range(2))
    host = await aborted(
        script, *tools, when=lambda fact: isinstance(fact, ev.ToolProgress) and next(started) == 1, times=times
    )

    assert host.told == [
        *turn(
            1,
            called("busy", "c1", '{"name":"a"}'),
            called("busy", "c2", '{"name":"b"}', content_index=1),
            called("edit", "c3", kind="edit", content_index=2),
            stop="tool_use",
        ),
        ev.ToolStarted(call_id="c1"),
        ev.ToolStarted(call_id="c2"),
        ev.ToolProgress(call_id="c1", text="working"),
        ev.ToolProgress(call_id="c2", text="working"),
        finished("c1", INTERRUPTED, is_error=True, interrupted=True),
        finished("c2", INTERRUPTED, is_error=True, interrupted=True),
        finished("c3", NOT_RUN, is_error=True),
    ]
    assert sorted(cleaned_up) == ["a", "b"]
    assert len(asyncio.all_tasks()) == 1


async def test_an_abort_while_a_person_is_asked_withdraws_the_question() -> None:
    withdrawn: list[str] = []

    class Host(FakeHost):
        async def decide(self, call: ev.ToolCalled, *about: Any) -> Any:
            try:
                self.on_fact(call)
                await asyncio.Event().wait()
            finally:
                withdrawn.append(call.call_id)

    asked_of: list[ev.SessionEvent] = []

    def second_time(fact: ev.SessionEvent) -> bool:
        asked_of.append(fact)
        return isinstance(fact, ev.ToolCalled) and asked_of.count(fact) == 2

    host = await aborted("tool: look {}", FakeTool("look"), when=second_time, host=Host())

    assert withdrawn == ["c1"]
    assert host.told[4:] == [finished("c1", NOT_RUN, is_error=True)]


async def test_a_tool_that_ignores_its_cancellation_does_not_hold_up_the_abort(
    caplog: pytest.LogCaptureFixture,
) -> None:
    let_go = asyncio.Event()
    is_over = asyncio.Event()

    async def stubborn(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        is_over.set()
        return text_outcome("at last")

    with caplog.at_level(logging.ERROR):
        host = await aborted(
            "tool: stubborn {}",
            FakeTool("stubborn", stubborn),
            when=ev.ToolStarted,
            stop_grace_s=0.02,
        )

    assert host.told[4:] == [ev.ToolStarted(call_id="c1"), finished("c1", INTERRUPTED, is_error=True, interrupted=True)]
    let_go.set()
    await asyncio.wait_for(is_over.wait(), 60)


async def test_a_host_that_cannot_keep_the_last_facts_does_not_hold_up_the_abort(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(FakeHost):
        async def emit(self, event: ev.SessionEvent) -> None:
            await super().emit(event)
            if isinstance(event, ev.TurnEnded):
                await asyncio.Event().wait()

    monkeypatch.setattr("makai.agent.loop.CLEAN_UP_S", 0.02)
    with caplog.at_level(logging.ERROR):
        host = await aborted("say: Half\nstall", when=ev.AssistantTextDelta, host=Stuck())

    assert host.told == [*turn(1, *text("Half")[:1])[:2], ev.TurnEnded(turn=1, stop_reason="aborted")]
    assert "did not end within" in caplog.text
    assert len(asyncio.all_tasks()) == 1
