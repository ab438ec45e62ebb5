"""Laws that every run keeps, whatever the model does and whenever it is stopped."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support.agent import FakeHost, ScriptedModels, asked, fixed, said
from support.agent_scripts import SCRIPTS, all_tools
from support.profiles import examples

from makai.agent.loop import run_agent
from makai.agent.settings import AgentOutcome, AgentSettings
from makai.core import session_events as ev
from makai.core.messages import ToolMessage
from makai.core.usage import Usage
from makai.providers.preparation import NO_RESULT, prepare


def check_order(facts: list[ev.SessionEvent]) -> None:
    """Turns do not overlap and are numbered; what belongs into a turn is in one; calls end before the next turn."""
    open_turn: int | None = None
    last_turn = 0
    calls: dict[str, str] = {}
    for fact in facts:
        match fact:
            case ev.TurnStarted(turn=turn):
                assert open_turn is None
                assert turn == last_turn + 1
                assert all(state == "finished" for state in calls.values())
                open_turn = last_turn = turn
            case ev.TurnEnded(turn=turn):
                assert turn == open_turn
                open_turn = None
            case ev.AssistantText() | ev.AssistantTextDelta() | ev.Reasoning() | ev.ReasoningDelta():
                assert open_turn is not None
            case ev.UserInput() | ev.Compacted():
                assert open_turn is None
            case ev.ToolCalled(call_id=call_id):
                assert open_turn is not None
                assert call_id not in calls
                calls[call_id] = "called"
            case ev.ToolStarted(call_id=call_id):
                assert open_turn is None
                assert calls[call_id] == "called"
                calls[call_id] = "started"
            case ev.ToolProgress(call_id=call_id):
                assert calls[call_id] == "started"
            case ev.ToolFinished(call_id=call_id, interrupted=interrupted):
                assert calls[call_id] in ("called", "started")
                assert not interrupted or calls[call_id] == "started"
                calls[call_id] = "finished"
            case _:
                pass
    assert open_turn is None
    assert Counter(calls.values()).keys() <= {"finished"}


@examples(60)
@given(
    script=SCRIPTS,
    denial=st.sampled_from(["deny_continue", "deny_continue", "deny_abort"]),
    steering=st.lists(st.booleans(), max_size=4),
    max_turns=st.integers(1, 8),
    max_output_tokens=st.sampled_from([None, None, 7]),
    abort_after=st.none() | st.integers(0, 150),
)
def test_every_run_is_lawful(
    script: str,
    denial: ev.Decision,
    steering: list[bool],
    max_turns: int,
    max_output_tokens: int | None,
    abort_after: int | None,
) -> None:
    host = FakeHost({"denied": denial}, [[said("More", f"i{n}")] if more else [] for n, more in enumerate(steering)])
    models = ScriptedModels(script)
    tools = all_tools()
    settings = AgentSettings(model=None, max_turns=max_turns, max_output_tokens=max_output_tokens, keep_tokens=0)

    async def perform() -> AgentOutcome | None:
        task = asyncio.ensure_future(run_agent(host, models, asked(), fixed(tools), host.decide, settings))
        async with asyncio.timeout(60):
            if abort_after is not None:
                for _ in range(abort_after):  # turns of the event loop: any await may be the one that is cancelled
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait({task})
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return None if task.cancelled() else task.result()

    outcome = asyncio.run(perform())

    check_order(host.facts)
    started = [fact.call_id for fact in host.facts if isinstance(fact, ev.ToolStarted)]
    assert len(started) == len(set(started)) >= sum(len(tool.ran) for tool in tools.values())
    assert outcome is not None or abort_after is not None
    if outcome is not None:
        assert (outcome.error is not None) == (outcome.stop_reason == "error")
        turns = [fact.usage for fact in host.facts if isinstance(fact, ev.TurnEnded)]
        summaries = sum(not request.context.tools for request in models.requests)
        assert outcome.usage == sum(turns, Usage()) or summaries
    for request in models.requests:
        results = [message for message in request.context.messages if isinstance(message, ToolMessage)]
        prepared = prepare(request.context, request.model, inline_system=True).messages
        assert [message for message in prepared if isinstance(message, ToolMessage)] == results
        assert all(message.result.content != NO_RESULT for message in results)
